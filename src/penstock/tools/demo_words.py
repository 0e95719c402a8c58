"""What `penstock demo` prints for people. Every command in it works when it is pasted as it is."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.net.listener import Address

_FLAGS = ("--tcp-address", "--http-address", "--admin-address")
_PORT_STEP = 1000  # 4150 is taken: try 5150, then 6150, ...
_PORT_MAX = 65535


class Words:
    """The demo's texts for one data path, called as `penstock demo` or as `make run`."""

    def __init__(self, data_path: Path, called_as: str, given: Sequence[str]) -> None:
        """`given` are the arguments of the user, to be repeated where a command goes on."""
        self.data_path = data_path
        self._called_as = called_as
        self._given = [one for one in given if not one.startswith("--called-as")]
        self._place = shlex.quote(str(data_path.absolute()))
        self._penstock = shlex.quote(str(Path(sys.executable).with_name("penstock")))

    def intro(self, topic: str, consumers: str, tcp: Address, http: Address, pid: int) -> str:
        return f"""\
nsqd is up: TCP {tcp}, HTTP {http}, data in {self.data_path}, process {pid}.
Every OK below came after the message was on disk. Topic {topic}; consumers: {consumers}.

Try, in another terminal:
  curl 'http://{http}/stats'                          everything it knows, as text
  curl -d 'hello' 'http://{http}/pub?topic=greetings'  publish; stored before it says OK
  curl -X POST 'http://{http}/channel/pause?topic={topic}&channel=archive'   (then unpause)
  {self._penstock} log dump {self._place} --topic {topic} --count 5 --bodies   what is stored
  kill -9 {pid}; {self._penstock} log verify {self._place}   every acknowledged message is there
"""

    def no_web(self, lacks: str) -> str:
        return f"No web UI: {lacks}\n" if lacks not in ("", "off") else ""

    def archive(self, http: Address, table: str, lake: Path, lacks: str) -> str:
        if lacks:
            return "" if lacks == "off" else f"No archive in a Delta table: {lacks}\n"
        query = f"SELECT topic, count(*), max(timestamp) FROM {table} GROUP BY topic"
        place = shlex.quote(str(lake.absolute()))
        return f"""\
All messages also go into the Delta table {lake / table}, each exactly once:
  {self._penstock} sql --url http://{http} --lake {place} "{query}"
"""

    def farewell(self) -> str:
        if not self.data_path.exists():
            return ""
        return f"""\
Stopped: nsqd in order, every message and channel stays in {self.data_path}.
  {self._again(self._given)}   goes on with them
  rm -r {self._place}   deletes them
"""

    def taken(self, wanted: Sequence[Address | None], is_free: Callable[[Address], bool]) -> str:
        """`wanted` in the order of the flags, None for a listener that is off."""
        taken = [one for one in wanted if one is not None and not is_free(one)]
        flags = [
            f"{flag}={_free_near(one, is_free)}"
            for flag, one in zip(_FLAGS, wanted, strict=True)
            if one in taken and one is not None
        ]
        renamed = tuple(flag.partition("=")[0] for flag in flags)
        kept = [one for one in self._given if not one.startswith(renamed)]
        return (
            f"{' and '.join(map(str, taken))}: taken. Is another nsqd running? Stop it, or choose "
            f"other ports:\n  {self._again([*kept, *flags])}"
        )

    def _again(self, arguments: Sequence[str]) -> str:
        if self._called_as:
            words = shlex.join(arguments)
            return self._called_as + (f" {shlex.quote(f'ARGS={words}')}" if words else "")
        return " ".join([self._penstock, "demo", shlex.join(arguments)]).rstrip()


def _free_near(address: Address, is_free: Callable[[Address], bool]) -> Address:
    for port in range(address.port + _PORT_STEP, _PORT_MAX, _PORT_STEP):
        if is_free(other := Address(address.host, port, "")):
            return other
    return Address(address.host, 0, "")
