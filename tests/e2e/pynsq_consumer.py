"""Consumes with pynsq's Reader and prints one JSON line per delivery.

`pynsq_consumer.py OPTIONS`, a JSON object: `port` (or `lookupd`, a URL), `topic`, `channel`,
`count` (of FINs, then it ends), `max_in_flight`, and `first`, what to do with a message at its
first attempt: `finish`, `requeue`, `requeue later` (after a second), `requeue with backoff`,
`ignore` (let it time out), `touch` (hold it for 2.7 seconds, with a message timeout of two),
`batch` (keep messages until the reader is starved, as pynsq's documentation shows, then finish all
of them), or `as it says` (each does what its body is). `connection` holds options of pynsq's own
(tls_v1, snappy, deflate, ...).
"""

import json
import sys
import time
from typing import Any

import nsq
from tornado.ioloop import IOLoop

MESSAGE_TIMEOUT_S = 2
TOUCH_EVERY_S = 0.9
TOUCHES = 3
BACKOFF_S_MAX = 60  # the first one takes a 36th of it
LINGER_S = 0.2  # the last FIN has to leave


class Script:
    def __init__(self, options: dict[str, Any]) -> None:
        self.first: str = options.get("first", "finish")
        self.left: int = options["count"]
        self.batch: list[nsq.Message] = []
        self.reader = CountingReader(
            options["topic"],
            options["channel"],
            message_handler=self.handle,
            **addresses(options),
            **options.get("connection", {}),
            max_in_flight=options.get("max_in_flight", 1),
            max_tries=0,
            heartbeat_interval=1,
            max_backoff_duration=BACKOFF_S_MAX,
            msg_timeout=MESSAGE_TIMEOUT_S if self.first == "as it says" else None,
        )

    def handle(self, message: nsq.Message) -> None:
        message.enable_async()
        event = {
            "body": message.body.decode(),
            "attempts": message.attempts,
            "at": time.monotonic(),
            "heartbeats": self.reader.heartbeats,
        }
        print(json.dumps(event), flush=True)
        first = event["body"] if self.first == "as it says" else self.first
        if message.attempts > 1 or first == "finish":
            self.finish(message)
        elif first == "requeue":
            message.requeue(delay=0, backoff=False)
        elif first == "requeue later":
            message.requeue(delay=1, backoff=False)
        elif first == "requeue with backoff":
            message.requeue(delay=0, backoff=True)
        elif first == "touch":
            self.touch(message, TOUCHES)
        elif first == "batch":
            self.gather(message)

    def touch(self, message: nsq.Message, times: int) -> None:
        if times == 0:
            self.finish(message)
            return
        message.touch()
        IOLoop.current().call_later(TOUCH_EVERY_S, self.touch, message, times - 1)

    def gather(self, message: nsq.Message) -> None:
        self.batch.append(message)
        if self.reader.is_starved():
            batch, self.batch = self.batch, []
            for one in batch:
                self.finish(one)

    def finish(self, message: nsq.Message) -> None:
        message.finish()
        self.left -= 1
        if self.left == 0:
            IOLoop.current().call_later(LINGER_S, self.end)

    def end(self) -> None:
        self.reader.close()
        IOLoop.current().stop()


def addresses(options: dict[str, Any]) -> dict[str, Any]:
    if "lookupd" in options:
        return {"lookupd_http_addresses": [options["lookupd"]], "lookupd_poll_interval": 1}
    return {"nsqd_tcp_addresses": [f"127.0.0.1:{options['port']}"]}


class CountingReader(nsq.Reader):
    heartbeats = 0

    def heartbeat(self, conn: Any) -> None:
        self.heartbeats += 1


if __name__ == "__main__":
    Script(json.loads(sys.argv[1]))
    nsq.run()
