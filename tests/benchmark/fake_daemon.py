"""A tiny NSQ daemon in memory, to try the generator against; it can be told to misbehave.

`--fault` names one wrong: `error` answers a publish with an error frame, `close` drops a
connection, `twice` delivers with attempts 2, `lose` forgets every tenth message, `extra` answers a
publish twice. Channels are there once somebody has subscribed.
"""

import asyncio
import json
import signal
import struct
import sys
from collections import deque

FAULT_AFTER = 50  # publishing commands that go well before the fault shows


class Channel:
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.waiting: deque[bytes] = deque()
        self.in_flight: set[bytes] = set()
        self.credit = 0

    def deliver(self, attempts: int) -> None:
        while self.waiting and len(self.in_flight) < self.credit:
            message = self.waiting.popleft()
            self.in_flight.add(message[:16])
            answer(self.writer, struct.pack(">qH", 1, attempts) + message, kind=2)


class Daemon:
    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.attempts = 2 if fault == "twice" else 1
        self.topics: dict[str, dict[str, Channel]] = {}
        self.commands = self.messages = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel: Channel | None = None
        try:
            await reader.readexactly(4)
            while line := await reader.readline():
                verb, *words = line.decode().split()
                if verb == "IDENTIFY":
                    await sized(reader)
                    answer(writer, b"OK")
                elif verb in ("PUB", "MPUB"):
                    data = await sized(reader)
                    self.take(writer, words[0], bodies_of(data) if verb == "MPUB" else [data])
                elif verb == "SUB":
                    channel = Channel(writer)
                    self.topics.setdefault(words[0], {})[words[1]] = channel
                    answer(writer, b"OK")
                elif channel is not None:
                    self.consumer_command(channel, verb, words)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def take(self, writer: asyncio.StreamWriter, topic: str, bodies: list[bytes]) -> None:
        self.commands += 1
        fault = self.fault if self.commands > FAULT_AFTER else ""
        if fault == "error":
            answer(writer, b"E_PUB_FAILED the disk is full", kind=1)
            return
        if fault == "close":
            raise ConnectionError
        for body in bodies:
            self.messages += 1
            for channel in self.topics.get(topic, {}).values():
                if self.fault != "lose" or self.messages % 10:
                    channel.waiting.append(b"%016x" % self.messages + body)
        for channel in self.topics.get(topic, {}).values():
            channel.deliver(self.attempts)
        for _ in range(2 if fault == "extra" else 1):
            answer(writer, b"OK")

    def consumer_command(self, channel: Channel, verb: str, words: list[str]) -> None:
        if verb == "RDY":
            channel.credit = int(words[0])
        elif verb == "FIN":
            channel.in_flight.remove(words[0].encode())
        elif verb == "CLS":
            channel.credit = 0
            answer(channel.writer, b"CLOSE_WAIT")
        channel.deliver(self.attempts)

    async def serve_stats(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        topics = []
        for name, channels in self.topics.items():
            rows = [{"depth": len(one.waiting), "in_flight_count": len(one.in_flight)}
                    for one in channels.values()]  # fmt: skip
            topics.append({"topic_name": name, "depth": 0, "channels": rows})
        text = json.dumps({"topics": topics}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        await writer.drain()
        writer.close()


async def sized(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">I", await reader.readexactly(4))
    return await reader.readexactly(size)


def bodies_of(data: bytes) -> list[bytes]:
    bodies, at = [], 4
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        bodies.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return bodies


def answer(writer: asyncio.StreamWriter, data: bytes, kind: int = 0) -> None:
    writer.write(struct.pack(">II", 4 + len(data), kind) + data)


async def main(options: dict[str, str]) -> None:
    daemon = Daemon(options["fault"])
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    servers = [
        await asyncio.start_server(serve, *options[name].split(":"))
        for name, serve in (("http", daemon.serve_stats), ("tcp", daemon.serve))
    ]
    await stop.wait()
    for server in servers:
        server.close()


if __name__ == "__main__":
    asyncio.run(main(dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])))
