"""Publishes with pynsq, each way it has, and prints what it was answered.

`pynsq_producer.py PORT TOPIC [CONNECTION OPTIONS]`: one message by PUB, three by MPUB, one by DPUB
400 ms ahead, then a window of a hundred PUBs without waiting. The answers come back as a JSON list.
"""

import json
import sys
from typing import Any

import nsq
from tornado.ioloop import IOLoop

DELAY_MS = 400
WINDOW = 100
POLL_S = 0.02


class Script:
    def __init__(self, port: str, topic: str, connection: str = "{}") -> None:
        self.topic = topic
        self.answers: list[str] = []
        self.writer = nsq.Writer([f"127.0.0.1:{port}"], **json.loads(connection))
        IOLoop.current().add_callback(self.when_connected)

    def when_connected(self) -> None:
        if any(conn.connected() for conn in self.writer.conns.values()):
            self.writer.pub(self.topic, b"one", self.after_pub)
        else:
            IOLoop.current().call_later(POLL_S, self.when_connected)

    def note(self, data: Any) -> None:
        self.answers.append(data.decode() if isinstance(data, bytes) else repr(data))

    def after_pub(self, conn: Any, data: Any) -> None:
        self.note(data)
        self.writer.mpub(self.topic, [b"two", b"three", b"four"], self.after_mpub)

    def after_mpub(self, conn: Any, data: Any) -> None:
        self.note(data)
        self.writer.dpub(self.topic, DELAY_MS, b"later", self.after_dpub)

    def after_dpub(self, conn: Any, data: Any) -> None:
        self.note(data)
        for number in range(WINDOW):
            self.writer.pub(self.topic, b"window %d" % number, self.after_window)

    def after_window(self, conn: Any, data: Any) -> None:
        self.note(data)
        if len(self.answers) == WINDOW + 3:
            print(json.dumps(self.answers))
            IOLoop.current().stop()


if __name__ == "__main__":
    Script(*sys.argv[1:])
    nsq.run()
