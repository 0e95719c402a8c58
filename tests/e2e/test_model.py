"""Random V2 traffic against the model of a topic and its channels (`kernel/model.py`).

Every delivery has to be one that the model allows at that instant: the right channel, body, id and
attempts, not while paused, not beyond RDY, not early, not after FIN. After every step the counts of
product and model agree, and no message waits while a consumer has room for it. In the end all is
drained, and nothing is missing.
"""

import os
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from penstock import limits

from .channel_traffic import LATE_NS, Traffic

settings.register_profile(
    "channel-model",
    stateful_step_count=50,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)

# What comes first is drawn most: traffic that meets is worth more than traffic side by side.
topics = st.sampled_from(("t", "t", "t", "u"))
channels = st.sampled_from(("a", "a", "b", "c#ephemeral"))
which = st.integers(0, 5)  # of the consumers that are there
shares = st.integers(1, 4)  # one of so many messages
delays_ms = st.sampled_from((0, 1, 70, 1_000, 5_500, 30_000))
cuts = st.sampled_from((-1, -1, 1, 7, 25))  # where the bytes of a command are torn; -1: nowhere
accidents = st.sampled_from(
    (
        "unpause",
        "create channel",
        "pause channel",
        "pause topic",
        "empty channel",
        "empty topic",
        "limit attempts",
        "delete channel",
        "delete topic",
        "hold syncs",
        "let syncs go",
        "kill",
        "stop",
    )
)

Step = tuple[str, dict[str, Any]]


def step(weight: int, method: str, /, **arguments: st.SearchStrategy[Any]) -> list[Any]:
    """A method of Traffic and what to call it with."""
    return [st.tuples(st.just(method), st.fixed_dictionaries(arguments))] * weight


# One rule for all: with many, each example would leave most kinds of traffic out altogether.
STEPS: list[st.SearchStrategy[Step]] = [
    *step(2, "pub", name=topics, count=st.sampled_from((1, 1, 2, 5, 30)),
          size=st.sampled_from((1, 1, 900)), cut=cuts),
    *step(1, "mpub", name=topics, count=st.sampled_from((1, 3, 20, 200)),
          size=st.sampled_from((1, 300)), cut=cuts),
    *step(2, "dpub", name=topics, delay_ms=delays_ms, count=st.integers(1, 3), cut=cuts),
    *step(2, "subscribe", name=topics, channel_name=channels,
          timeout_ms=st.sampled_from((0, 1_000, 7_300)), rdy=st.sampled_from((0, 1, 2, 50))),
    *step(1, "ready", number=which, rdy=st.sampled_from((0, 1, 2, 7, 63, 100, 2500)), cut=cuts),
    *step(2, "finish", number=which, share=shares, cut=cuts),
    *step(2, "requeue", number=which, share=shares, delay_ms=delays_ms, cut=cuts),
    *step(2, "touch", number=which, share=shares, cut=cuts),
    *step(1, "settle_any", number=which, index=st.integers(0, 1_000),
          verb=st.sampled_from(("FIN", "REQ", "TOUCH"))),
    *step(1, "close_politely", number=which),
    *step(1, "hang_up", number=which),
    *step(3, "operate", name=topics, channel_name=channels, action=accidents),
    *step(1, "pass_time", ms=st.sampled_from((1, 10, 400, 1_000, 1_100, 6_000, 65_000))),
    *step(3, "pass_time_up_to_the_next_timer", past_ns=st.sampled_from((-1, -1, 0, LATE_NS))),
]  # fmt: skip


class ChannelMachine(RuleBasedStateMachine):
    directory = Path()
    made = 0

    def __init__(self) -> None:
        super().__init__()
        self.traffic: Traffic | None = None

    @initialize(
        durability=st.sampled_from(("disk", "os")),
        tail_memory_bytes_max=st.sampled_from((1, 4 * limits.KIB, 4 * limits.MIB)),
        segment_bytes_max=st.sampled_from((4 * limits.KIB, 64 * limits.KIB)),
        journal_bytes_max=st.sampled_from((1, limits.KIB, limits.MIB)),
        retains=st.booleans(),
    )
    def start(self, **options: Any) -> None:
        ChannelMachine.made += 1
        path = self.directory / str(ChannelMachine.made)
        self.traffic = Traffic(path, **options)
        self.traffic.check()

    @rule(step=st.one_of(STEPS))
    def go_on(self, step: Step) -> None:
        method, arguments = step
        getattr(self.traffic, method)(**arguments)
        if self.traffic is not None:
            self.traffic.check()

    def teardown(self) -> None:
        traffic, self.traffic = self.traffic, None
        if traffic is None:
            return
        try:
            if not traffic.w.faults:
                traffic.drain()
        finally:
            traffic.close()


def test_a_message_that_timed_out_does_not_wait_for_delayed_ones(tmp_path: Path) -> None:
    """Found by the test below: the only place went to new messages, which were all delayed."""
    traffic = Traffic(tmp_path / "t", "disk", retains=True, tail_memory_bytes_max=1)
    traffic.pub("u", 1, 1, -1)
    traffic.dpub("u", 5_500, 2, -1)
    traffic.subscribe("u", "a", 1_000, 1)
    traffic.pass_time(1_000)
    traffic.check()
    traffic.drain()
    traffic.close()


def test_channels_do_what_the_model_allows_and_nothing_else(tmp_path: Path) -> None:
    """PENSTOCK_MODEL_EXAMPLES asks for more of them, on a machine that has the time."""
    examples = int(os.environ.get("PENSTOCK_MODEL_EXAMPLES") or 200)
    profile = settings(settings.get_profile("channel-model"), max_examples=examples)
    machine = type("Machine", (ChannelMachine,), {"directory": tmp_path})
    run_state_machine_as_test(machine, settings=profile)
