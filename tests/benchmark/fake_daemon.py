"""A tiny NSQ daemon in memory, to try the generator against; it can be told to misbehave.

`--fault` names one wrong: `error` answers a publish with an error frame, `close` drops a
connection, `twice` delivers with attempts 2, `lose` forgets every tenth message, `extra` answers a
publish twice.
"""

import argparse
import asyncio
import json
import signal
import struct
import sys

FAULT_AFTER = 50  # publishing commands that go well before the fault shows


class Channel:
    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self.in_flight: set[bytes] = set()
        self.credit = 0
        self.writer: asyncio.StreamWriter | None = None


class Daemon:
    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.topics: dict[str, dict[str, Channel]] = {}
        self.backlog: dict[str, list[bytes]] = {}
        self.commands = 0
        self.next_id = 1

    def publish(self, topic: str, bodies: list[bytes]) -> None:
        channels = self.topics.get(topic, {})
        for body in bodies:
            self.next_id += 1
            if self.fault == "lose" and self.next_id % 10 == 0:
                continue
            message = b"%016x" % self.next_id + body
            if not channels:
                self.backlog.setdefault(topic, []).append(message)
            for channel in channels.values():
                channel.waiting.append(message)
        for channel in channels.values():
            self.deliver(channel)

    def deliver(self, channel: Channel) -> None:
        out = []
        attempts = 2 if self.fault == "twice" else 1
        while channel.writer and channel.waiting and len(channel.in_flight) < channel.credit:
            message = channel.waiting.pop(0)
            channel.in_flight.add(message[:16])
            data = struct.pack(">qH", 1, attempts) + message
            out.append(struct.pack(">II", 4 + len(data), 2) + data)
        if out and channel.writer:
            channel.writer.write(b"".join(out))

    def channel(self, topic: str, name: str) -> Channel:
        channels = self.topics.setdefault(topic, {})
        if name not in channels:
            channels[name] = Channel()
            channels[name].waiting = self.backlog.pop(topic, [])
        return channels[name]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel: Channel | None = None
        try:
            await reader.readexactly(4)
            while line := await reader.readline():
                verb, *words = line.decode().split()
                if verb == "IDENTIFY":
                    await self.body(reader)
                    answer(writer, b"OK")
                elif verb in ("PUB", "MPUB"):
                    await self.take_publish(reader, writer, verb, words[0])
                elif verb == "SUB":
                    channel = self.channel(*words)
                    channel.writer, channel.credit = writer, 0
                    answer(writer, b"OK")
                elif channel is not None:
                    self.consumer_command(channel, writer, verb, words)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            if channel is not None and channel.writer is writer:
                channel.writer = None
            writer.close()

    def consumer_command(
        self, channel: Channel, writer: asyncio.StreamWriter, verb: str, words: list[str]
    ) -> None:
        if verb == "RDY":
            channel.credit = int(words[0])
        elif verb == "FIN":
            channel.in_flight.remove(words[0].encode())
        elif verb == "CLS":
            channel.credit = 0
            answer(writer, b"CLOSE_WAIT")
        self.deliver(channel)

    async def body(self, reader: asyncio.StreamReader) -> bytes:
        (size,) = struct.unpack(">I", await reader.readexactly(4))
        return await reader.readexactly(size)

    async def take_publish(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, verb: str, topic: str
    ) -> None:
        data = await self.body(reader)
        bodies = [data]
        if verb == "MPUB":
            bodies, at = [], 4
            for _ in range(struct.unpack(">I", data[:4])[0]):
                (size,) = struct.unpack(">I", data[at : at + 4])
                bodies.append(data[at + 4 : at + 4 + size])
                at += 4 + size
        self.commands += 1
        if self.commands > FAULT_AFTER and self.fault == "error":
            answer(writer, b"E_PUB_FAILED the disk is full", kind=1)
            return
        if self.commands > FAULT_AFTER and self.fault == "close":
            raise ConnectionError
        self.publish(topic, bodies)
        answer(writer, b"OK")
        if self.commands > FAULT_AFTER and self.fault == "extra":
            answer(writer, b"OK")

    async def serve_stats(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        topics = [
            {
                "topic_name": name,
                "depth": 0,
                "channels": [
                    {"depth": len(c.waiting), "in_flight_count": len(c.in_flight)}
                    for c in channels.values()
                ],
            }
            for name, channels in self.topics.items()
        ]
        text = json.dumps({"topics": topics}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
        await writer.drain()
        writer.close()


def answer(writer: asyncio.StreamWriter, data: bytes, kind: int = 0) -> None:
    writer.write(struct.pack(">II", 4 + len(data), kind) + data)


async def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tcp", required=True)
    parser.add_argument("--http", required=True)
    parser.add_argument("--fault", default="")
    options = parser.parse_args(argv)
    daemon = Daemon(options.fault)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    servers = [
        await asyncio.start_server(serve, *address.split(":"))
        for serve, address in ((daemon.serve_stats, options.http), (daemon.serve, options.tcp))
    ]
    await stop.wait()
    for server in servers:
        server.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
