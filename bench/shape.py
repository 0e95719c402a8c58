"""What a scenario's topic and its messages have beyond a body: partitions, keys, headers, tags.

The generator repeats a prebuilt buffer. With keys that buffer holds one unit after another until
every key has had its turn, so each message of a cycle has a key of its own; all members have a
fixed width, so that every unit, and every frame that comes back, has the same size.
"""

import json
from dataclasses import dataclass

TAG = "blue"
KEY_DIGITS = 7
DISPATCH_TAG = "##client_dispatch_tag"


@dataclass(frozen=True, slots=True)
class Shape:
    partitions: int = 1
    keys: int = 0  # different ones, taken in turn; 0: messages have none
    headers: bool = False  # each message has some, and consumers get them
    tagged: bool = False  # each message has a tag, and the consumer asks for that tag
    order: str = "none"  # of the channels

    @property
    def is_plain(self) -> bool:
        return self == PLAIN

    @property
    def extended(self) -> bool:
        """Does the topic have to take headers?"""
        return self.headers or self.tagged

    @property
    def has_ext(self) -> bool:
        """Is a message published with a JSON object in front of its body?"""
        return self.extended or self.keys > 0

    def units(self, batch: int) -> int:
        """Publishing commands until every key has had its turn."""
        return max(1, -(-self.keys // batch))

    def ext(self, number: int) -> bytes:
        """The JSON object of message `number`."""
        members: dict[str, str] = {}
        if self.keys:
            members["key"] = f"k{number % self.keys:0{KEY_DIGITS}}"
        if self.headers:
            members |= {"source": "bench", "content-type": "text/plain"}
        if self.tagged:
            members[DISPATCH_TAG] = TAG
        return json.dumps(members, separators=(",", ":")).encode()

    @property
    def frame_ext_bytes(self) -> int:
        """How much longer its frames are for an extended consumer: a version, a length, the JSON
        object."""
        return 3 + len(self.ext(0)) if self.extended else 0


PLAIN = Shape()
