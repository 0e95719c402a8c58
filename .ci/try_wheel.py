"""Is an installed wheel whole? Run by a Python that has the wheel, and nothing of a checkout.

On Linux nsqd runs as a process of its own, and a message goes through it. Elsewhere there is no
nsqd: its kernel needs epoll. A client runs there, and has its part of the kernel compiled.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import penstock
from penstock.client import Consumer, Producer
from penstock.kernel import crc32c

WAIT_S_MAX = 60.0


async def through(address: str, body: bytes) -> None:
    async with Producer(address) as producer:
        await producer.pub("tried", body)
    async with Consumer("tried", "once", address) as consumer:
        async for message in consumer:
            if message.body != body:
                sys.exit(f"published {body!r}, received {message.body!r}")
            await message.fin()
            return


def try_nsqd(scripts: Path) -> None:
    with tempfile.TemporaryDirectory() as data:
        flags = [f"--data-path={data}", "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
        log = Path(data, "nsqd.log")
        with log.open("wb") as stderr:
            nsqd = subprocess.Popen([scripts / "nsqd", *flags], stderr=stderr)
        try:
            address = asyncio.run(asyncio.wait_for(listening(log, nsqd), WAIT_S_MAX))
            asyncio.run(asyncio.wait_for(through(address, b"whole"), WAIT_S_MAX))
            nsqd.terminate()
            code = nsqd.wait(WAIT_S_MAX)
        finally:
            nsqd.kill()
        if code:
            sys.exit(f"nsqd stopped with code {code}: {log.read_text()}")


async def listening(log: Path, nsqd: subprocess.Popen[bytes]) -> str:
    while True:
        said = log.read_text()
        if found := re.search(r"TCP: listening on (\S+:\d+)", said):
            return found[1]
        if nsqd.poll() is not None:
            sys.exit(f"nsqd did not start: {said}")
        await asyncio.sleep(0.05)


def main() -> None:
    if crc32c.__module__ != "penstock.kernel._codec":
        sys.exit("the wheel has no compiled kernel")
    scripts = Path(sysconfig.get_path("scripts"))
    subprocess.run([scripts / "penstock", "--version"], check=True)
    if sys.platform == "linux":
        try_nsqd(scripts)
    print(f"penstock {penstock.__version__} of {Path(penstock.__file__).parent} is whole")


if __name__ == "__main__":
    main()
