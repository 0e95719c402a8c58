"""One form of the kernel in the middle of a history, and all that can be seen of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.kernel import Event, Section

from .recovery import Recovery
from .turns import MS, SECOND, WALL_NS, Side, TraceEvent, entries, log_name, messages

TAILS = ((b"t", 0), (b"u", 0), (b"t", 1))
WINDOW_TAILS = (0, 0, 1, 2)  # which tail each window stands on
PAST = 8
PAST_SECTIONS = {
    Section.TIMESTAMP: {0: 5, 1: 6, 7: -1},
    Section.ID: {1: 77, 2: 78, 3: 77, 6: (1 << 64) - 1},
    Section.DUE: {2: WALL_NS + SECOND, 4: WALL_NS + 2 * SECOND, 5: 1},
    Section.ATTEMPTS: {1: 3, 4: 1, 5: 0xFFFF},
    Section.TRACE: {0: 42, 2: 43, 5: (1 << 64) - 1},
    Section.KEY: {0: b"key"},
    Section.HEADERS: {1: b'{"a":"1"}', 3: b"{}", 4: b'{"a":"2"}', 7: b'{"b":"3"}'},
}
CONSUMERS_MAX = 4
TIMEOUTS_NS = (700 * MS, 2 * SECOND, 5 * SECOND + 1)


WINDOW_STATE = [
    "low",
    "next",
    "depth",
    "order",
    "behind",
    "in_flight",
    "delayed",
    "unparked",
    "search_start",
    "search_end",
    "searched",
    "floor",
    "timeout_count",
    "requeue_count",
    "expired_count",
    "auto_ack_count",
    "allowance",
    "exhausted",
    "message_count",
    "finish_count",
    "zone_local_count",
    "region_local_count",
    "global_count",
    "consumers",
    "due_ns",
    "journal_dirty",
    "paused",
]
TAIL_STATE = [
    "open_count",
    "open_bytes",
    "sealed_count",
    "sealed_batches",
    "sealed_max",
    "written_end",
    "committed_end",
    "handed_end",
    "memory_start",
    "handing",
    "refusing",
    "append_end_max",
    "message_count",
    "message_bytes",
]
CONN_STATE = [
    "serial",
    "rdy",
    "closing",
    "in_flight",
    "message_count",
    "finish_count",
    "requeue_count",
    "published",
    "unsent",
    "pending",
    "last_command_ns",
    "holds_output",
    "sample_rate",
    "timeout_ns",
    "enveloped",
    "extended",
    "detailed",
]


class World:
    """One form in the middle of a history: topics, channels, clients."""

    def __init__(
        self, form: SimpleNamespace, memory: int, sealed_max: int = 1, seed: int = 0
    ) -> None:
        self.side = Side(form, rdy_count_max=2500, seed=seed)
        self.tails = [self.tail_with_a_past(*name, memory) for name in TAILS]
        for tail in self.tails:
            tail.sealed_max = sealed_max
        self.windows = [self.side.window(self.tails[place], 0) for place in WINDOW_TAILS]
        for window in self.windows[1:]:
            window.measures_latency = True
        self.recoveries = [Recovery(0) for _ in self.windows]
        self.publishers = [self.side.connect() for _ in range(2)]
        self.consumers: list[Any] = []
        self.names: dict[int, str] = {}
        self.refused_count = 0
        self.held: dict[int, list[int]] = {}  # serial -> ids that came and were not answered

    def tail_with_a_past(self, topic: bytes, partition: int, memory: int) -> Any:
        """Its first messages have been somewhere else before, and lie behind the memory."""
        past = self.side.kernel.encode_batch(
            [b"past %d" % number for number in range(PAST)],
            0,
            (1 + len(self.side.written)) << 22,
            99,
            sections=PAST_SECTIONS,
        )
        tail = self.side.tail(topic, PAST, memory, partition=partition)
        tail.handed_end = 0
        tail.traceable = True
        self.side.written[log_name(tail)].append(past)
        return tail

    def named(self, event: tuple[Any, ...]) -> tuple[Any, ...]:
        """An event without objects that belong to one form."""

        def name(member: Any) -> Any:
            if isinstance(member, list):
                return [tuple(map(name, one)) if isinstance(one, tuple) else one for one in member]
            if hasattr(member, "serial"):
                return f"conn {member.serial}"
            if hasattr(member, "touch_max_ns"):
                return f"window {self.windows.index(member)}"
            return log_name(member) if hasattr(member, "topic") else member

        return tuple(name(member) for member in event)

    def take(self, events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Answer events as a daemon would; returns them, named."""
        seen = []
        while events:
            event = events.pop(0)
            seen.append(self.named(event))
            if event[0] == Event.LINE:
                event[1].reply(0, b"answer")
                event[1].resume()
            elif event[0] == Event.REFUSED:
                self.settle_refusal(event[1])
                event[3].refusing, event[3].append_end_max = False, 0
            elif event[0] == Event.SPREAD_REFUSED:
                self.settle_refusal(event[1])
                for tail, _ in event[3]:
                    tail.refusing, tail.append_end_max = False, 0
            elif event[0] == Event.TRACED:
                _, conn, _, tail, _, _, trace_id, body = event
                tail.append(body, 0, {Section.TRACE: trace_id}, conn)
                conn.reply(0, b"traced")
                conn.resume()
            elif event[0] == Event.PUB_FAILED:
                event[1].reply(1, b"E_PUB_FAILED")
                event[1].close_after_flush()
            elif event[0] == Event.NEED:
                _, window, which, offset = event
                window.load(which, self.side.block(log_name(window.tail), offset, 2))
                events += self.side.flush()
        return seen

    def settle_refusal(self, conn: Any) -> None:
        """There is room now: the same command comes again. Every third one is passed over."""
        self.refused_count += 1
        if self.refused_count % 3 == 0:
            conn.reply(1, b"refused")
            conn.pass_over()
        conn.resume()

    def outputs(self) -> list[bytes]:
        taken = []
        for conn in [*self.consumers, *self.publishers]:
            data = conn.take_output()
            taken.append(data)
            self.held.setdefault(conn.serial, []).extend(m.id for m in messages(data))
        return taken

    def state(self) -> list[list[Any]]:
        for window in self.windows:
            assert (window.deadline_ns > 0) == (window.in_flight > 0)
        conns = self.consumers + self.publishers
        return [
            *([getattr(window, name) for name in WINDOW_STATE] for window in self.windows),
            *(sorted(window.in_flight_records(10_000)) for window in self.windows),
            *([getattr(tail, name) for name in TAIL_STATE] for tail in self.tails),
            *([getattr(conn, name) for name in CONN_STATE] for conn in conns),
            *([self.windows.index(window) for window in conn.windows] for conn in conns),
        ]

    def journals(self) -> list[bytes]:
        taken = []
        for window, recovery in zip(self.windows, self.recoveries, strict=True):
            journal = window.take_journal()
            recovery.apply(entries(journal))
            whole = Recovery(0)
            whole.apply(entries(window.snapshot()))
            assert recovery.known() == whole.known()
            taken.append(journal)
        return taken

    def trace(self) -> list[TraceEvent]:
        """In which order one call goes over what it drops is free."""
        return sorted(self.side.trace(self.windows), key=str)

    def latencies(self) -> list[dict[int, int]]:
        """Asked for after the journals: in the compiled form those settle what was finished."""
        return [window.take_latencies() for window in self.windows]

    def close(self) -> None:
        self.side.close()
