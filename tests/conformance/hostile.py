"""What a hostile client sends: streams of commands, mostly valid, then damaged and cut to pieces.

Everything comes from a `random.Random` that the caller seeds, so a seed replays a run. Sequences
that are valid get deep into the states; damage in one place leaves the rest of them standing.
"""

import json
import random
import struct

MAGIC = b"  V2"
TOPICS = [b"a", b"b", b"c.d", b"e#ephemeral"]
CHANNELS = [b"x", b"y#ephemeral"]
BAD_NAMES = [b"", b"a$", b"x" * 65, b"#ephemeral", b"\xff", b"a b"]
NUMBERS = [b"", b"0", b"1", b"5", b"2500", b"2501", b"-1", b"99999999999999999999", b"0x1", b"1.5"]
LARGE = [1 << 20, (1 << 20) + 1, 5 << 20, (5 << 20) + 1, (1 << 31) - 1]
SIZES = [-(1 << 31), -1, 0, 1, 4, 100, *LARGE]
SPEECH = [b"PUB ", b"MPUB ", b"FIN ", b"SUB a x\n", b"CLS\n", b"\n", b"\r\n", b" ", b"\x00", MAGIC]
FIELDS = {
    "client_id": ["", "x", 5, None],
    "feature_negotiation": [True, False, 1],
    "heartbeat_interval": [-1, 0, 1000, 1, 60001, "1000"],
    "output_buffer_timeout": [-1, 0, 25, 24, 500],
    "output_buffer_size": [-1, 0, 64, 65537, 1.5],
    "sample_rate": [0, 50, 99, 100],
    "msg_timeout": [0, 1000, 2000, 1],
    "tls_v1": [True, False],
    "snappy": [True, False],
    "deflate": [True, False],
    "deflate_level": [0, 1, 9, -1],
    "unknown": [[1, {"x": None}]],
}


def size(number: int) -> bytes:
    return struct.pack(">i", number)


def sized(body: bytes) -> bytes:
    return size(len(body)) + body


def name(rng: random.Random, good: list[bytes]) -> bytes:
    return rng.choice(good) if rng.random() < 0.97 else rng.choice(BAD_NAMES)


def number(rng: random.Random) -> bytes:
    return b"%d" % rng.randrange(3000) if rng.random() < 0.8 else rng.choice(NUMBERS)


def identify(rng: random.Random, upgrades: bool) -> bytes:
    values = {key: rng.choice(FIELDS[key]) for key in rng.sample(list(FIELDS), rng.randrange(5))}
    if not upgrades:  # what follows would be read as TLS or as a compressed stream
        for key in ("tls_v1", "snappy", "deflate"):
            values.pop(key, None)
    return b"IDENTIFY\n" + sized(json.dumps(values).encode())


def command(rng: random.Random, ids: list[bytes]) -> bytes:
    topic, channel = name(rng, TOPICS), name(rng, CHANNELS)
    body = rng.randbytes(rng.choice([1, 1, 5, 40, 3000]))
    message_id = rng.choice(ids) if ids and rng.random() < 0.8 else rng.randbytes(8).hex().encode()
    match rng.randrange(16):
        case 0 | 1 | 2:
            return b"PUB %b\n" % topic + sized(body)
        case 3 | 4:
            count = rng.randrange(1, 6)
            return b"MPUB %b\n" % topic + sized(size(count) + sized(body) * count)
        case 5:
            return b"DPUB %b %b\n" % (topic, number(rng)) + sized(body)
        case 6 | 7:
            return b"RDY %b\n" % number(rng)
        case 8:
            return b"FIN %b\n" % message_id
        case 9:
            return b"REQ %b %b\n" % (message_id, number(rng))
        case 10:
            return b"TOUCH %b\n" % message_id
        case 11:
            return rng.choice([b"NOP\n", b"NOP\r\n", b"CLS\n", b"AUTH\n" + sized(b"secret")])
        case 12:
            return b"SUB %b %b\n" % (topic, channel)
        case 13:
            return b"PUB %b\n" % topic + size(rng.choice(SIZES))
        case 14:
            return b"MPUB %b\n" % topic + size(rng.choice(SIZES)) + size(rng.choice(SIZES))
    return rng.randbytes(rng.randrange(1, 30))


def conversation(rng: random.Random, ids: list[bytes], upgrades: bool = False) -> bytes:
    """One client's stream: often a proper consumer's beginning, then anything."""
    stream = MAGIC if rng.random() < 0.97 else rng.randbytes(4)
    if rng.random() < 0.5:
        stream += identify(rng, upgrades)
    if rng.random() < 0.6:
        stream += b"SUB %b %b\nRDY %d\n" % (
            rng.choice(TOPICS),
            rng.choice(CHANNELS),
            rng.choice([1, 5, 2500]),
        )
    stream += b"".join(command(rng, ids) for _ in range(rng.randrange(12)))
    return damaged(rng, stream) if rng.random() < 0.6 else stream


def damaged(rng: random.Random, stream: bytes) -> bytes:
    data = bytearray(stream)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0 if at < len(data):
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.randrange(1, 8)]
            case 2:
                data[at:at] = rng.choice(SPEECH)
            case 3:
                data[at : at + 4] = size(rng.choice(SIZES))
            case _:
                data[at:at] = data[at // 2 : at // 2 + rng.randrange(1, 40)]
    return bytes(data)


def pieces(rng: random.Random, stream: bytes) -> list[bytes]:
    cuts = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.randrange(8)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]


# --- nsqlookupd ---

PEER = {
    "broadcast_address": "b",
    "hostname": "h",
    "tcp_port": 4150,
    "http_port": 4151,
    "version": "1",
}
ODD = ["", "\ud800", 0, -1, 1 << 40, 1.5, None, [], {}, True]


def gossip(rng: random.Random) -> bytes:
    """What one nsqd tells nsqlookupd."""
    peer = dict(PEER)
    if rng.random() < 0.3:
        peer[rng.choice(list(peer))] = rng.choice(ODD)  # type: ignore[assignment]
    stream = b"  V1" if rng.random() < 0.97 else rng.randbytes(4)
    stream += b"IDENTIFY\n" + sized(json.dumps(peer).encode())
    for _ in range(rng.randrange(12)):
        verb = rng.choice([b"REGISTER", b"UNREGISTER", b"REGISTER", b"PING", b"IDENTIFY", b"NOP"])
        names = [name(rng, TOPICS), name(rng, CHANNELS)][: rng.randrange(3)]
        stream += b" ".join([verb, *names]) + rng.choice([b"\n", b"\r\n", b" \n"])
    if rng.random() < 0.2:
        stream += b"IDENTIFY\n" + size(rng.choice(SIZES))
    return damaged(rng, stream) if rng.random() < 0.5 else stream


LOOKUPD_TARGETS = [
    b"/ping", b"/info", b"/topics", b"/channels", b"/channels?topic=a", b"/lookup?topic=a",
    b"/lookup", b"/nodes", b"/debug", b"/topic/create?topic=b", b"/topic/create?topic=$",
    b"/topic/delete?topic=b", b"/channel/create?topic=b&channel=x",
    b"/channel/delete?topic=b&channel=x", b"/topic/tombstone?topic=a&node=b:4151", b"/nothing",
]  # fmt: skip

# --- HTTP ---

TARGETS = [
    b"/ping", b"/info", b"/stats", b"/stats?format=json", b"/stats?topic=a&channel=x", b"/pub",
    b"/pub?topic=a", b"/pub?topic=a&defer=10", b"/pub?topic=a$", b"/mpub?topic=a",
    b"/mpub?topic=a&binary=true", b"/topic/create?topic=b", b"/topic/pause?topic=b",
    b"/topic/unpause?topic=b", b"/topic/empty?topic=b", b"/topic/delete?topic=gone",
    b"/channel/create?topic=b&channel=x", b"/channel/empty?topic=b&channel=x",
    b"/channel/pause?topic=b&channel=x", b"/channel/unpause?topic=b&channel=x",
    b"/config/nsqlookupd_tcp_addresses", b"/debug/freememory", b"/nothing", b"//", b"*", b"/%ff%00",
    b"/pub?topic=a&topic=b&&=&x", b"/stats?format=%7B", b"http://elsewhere/ping",
]  # fmt: skip
METHODS = [b"GET", b"POST", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"DELETE", b"BREW", b"get"]
HEADERS = [
    b"Connection: close", b"Connection: keep-alive", b"Expect: 100-continue", b"Content-Length: 0",
    b"Content-Length: -1", b"Content-Length: 5, 5", b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Upgrade: websocket",
    b"Accept: application/vnd.nsq; version=1.0", b"X-" + b"y" * 5000, b"No colon", b": empty",
    b"Cookie: \xff\x00", b" folded", b"Host:", b"Host: localhost", b"Host: b",
]  # fmt: skip


def request(rng: random.Random, targets: list[bytes]) -> bytes:
    body = rng.randbytes(rng.choice([0, 0, 1, 50, 3000]))
    if rng.random() < 0.3:
        body = size(2) + sized(b"one") + sized(b"two")
    lines = [b"%b %b HTTP/1.%d" % (rng.choice(METHODS), rng.choice(targets), rng.randrange(2))]
    lines += rng.sample(HEADERS, rng.choice([0, 0, 1, 2]))
    match rng.randrange(4):
        case 0:
            lines.append(b"Transfer-Encoding: chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        case 1 | 2:
            lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def browsing(rng: random.Random, targets: list[bytes] = TARGETS) -> bytes:
    stream = b"".join(request(rng, targets) for _ in range(rng.randrange(1, 6)))
    return damaged(rng, stream) if rng.random() < 0.5 else stream
