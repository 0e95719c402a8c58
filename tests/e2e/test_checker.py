"""The judge is judged: an innocent history passes, and each promise, once broken, is named."""

from collections.abc import Callable

import pytest

from .checker import Promise
from .history import ChannelGone, ChannelMade, PublishFailed, PublishUnknown
from .story import MS, TIMEOUT_NS, Story

A, B, C = b"a", b"b", b"c"
TIMEOUT_MS = TIMEOUT_NS // MS
CAUSES: dict[str, Callable[[Story], Story]] = {  # why a message may come again
    "requeue": lambda story: story.requeued(0),
    "timeout": lambda story: story.wait(TIMEOUT_MS),
    "disconnect": lambda story: story.disconnected(),
    "crash": lambda story: story.crashed(),
    "stop": lambda story: story.stopped(),
}


def once(story: Story) -> Story:
    """A message is published, and delivered."""
    return story.publish(A).delivered(0, A)


def twice(story: Story) -> Story:
    return once(story).requeued(0).delivered(0, A, 2)


# What happens, and the promise that it breaks to which message; None: it breaks none.
STORIES: dict[str, tuple[Callable[[Story], Story], tuple[Promise, bytes] | None]] = {
    "an acknowledged message that nobody got is lost":
        (lambda story: once(story).publish(B), (Promise.KEPT, B)),
    "a deleted channel is owed nothing, and a new one of its name is":
        (lambda story: story.publish(A).add(ChannelGone(story.now_ns, "ch")).publish(B)
         .add(ChannelMade(story.now_ns, "ch", False)).publish(C), (Promise.KEPT, C)),
    "a body that nobody published is an invention":
        (lambda story: story.delivered(0, B), (Promise.TRUE, B)),
    "a message that comes again uncalled":
        (lambda story: once(story).wait(TIMEOUT_MS - 10).delivered(0, A, 2),
         (Promise.CALLED_FOR, A)),
    "a crash ends what was under way":
        (lambda story: once(story).requeued(0).crashed().delivered(0, A, 2).delivered(0, A, 3),
         (Promise.CALLED_FOR, A)),
    **{f"the first delivery is attempt {n}":
       (lambda story, n=n: story.publish(A).delivered(0, A, n), (Promise.ATTEMPTS, A))
       for n in (0, 2, 3, 5)},
    **{f"the third delivery is attempt {n}":
       (lambda story, n=n: twice(story).requeued(0).delivered(0, A, n), (Promise.ATTEMPTS, A))
       for n in (1, 2, 4)},
    **{f"after a crash the last count may come twice, {n}":
       (lambda story, n=n: twice(story).crashed().delivered(0, A, n),
        (Promise.ATTEMPTS, A) if n == 1 else None)
       for n in (1, 2, 3, 4)},
    **{f"a message comes again after a {name}":
       (lambda story, cause=cause: cause(once(story)).delivered(0, A, 2), None)
       for name, cause in CAUSES.items()},
    **{f"a confirmed finish lasts over a {name}":
       (lambda story, cause=cause: cause(once(story).finished(0)).delivered(0, A, 2),
        (Promise.FINISHED, A))
       for name, cause in CAUSES.items()},
    "an unconfirmed finish may be forgotten by a crash":
        (lambda story: once(story).finish_sent(0).crashed().delivered(0, A, 2), None),
    "a delayed message that comes early":
        (lambda story: story.publish(A, delay_ms=500).wait(450).delivered(0, A),
         (Promise.ON_TIME, A)),
    "a requeue with a delay that comes early":
        (lambda story: once(story).requeued(0, delay_ms=300).wait(200).delivered(0, A, 2),
         (Promise.ON_TIME, A)),
}  # fmt: skip


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.mark.parametrize("name", STORIES)
def test_a_story(story: Story, name: str) -> None:
    tell, broken = STORIES[name]
    assert tell(story).broken() == ([] if broken is None else [broken])


def test_an_ordinary_life_breaks_nothing(story: Story) -> None:
    story.made("other", gets_backlog=False)
    story.publish(A).publish(B, C, publisher="q")
    for channel in ("ch", "other"):
        for number, body in enumerate((A, B, C)):
            story.delivered(number, body, channel=channel).finished(number, channel)
    assert story.verdict() == []


def test_a_publish_of_unknown_outcome_may_be_lost_or_not(story: Story) -> None:
    for body in (A, B):
        story.add(PublishUnknown(story.now_ns, story.attempt(body)))
    story.attempt(C)  # never answered at all
    story.delivered(0, A)
    assert story.verdict() == []


def test_an_id_has_one_body(story: Story) -> None:
    once(story).publish(B).delivered(0, B, 2)
    assert (Promise.TRUE, B) in story.broken()


@pytest.mark.parametrize("answer_first", [True, False])
def test_a_refused_message_is_not_delivered(story: Story, answer_first: bool) -> None:
    refused = story.attempt(A)
    if answer_first:
        story.add(PublishFailed(story.now_ns, refused))
    story.delivered(0, A)
    if not answer_first:
        story.add(PublishFailed(story.now_ns, refused))
    assert story.broken() == [(Promise.TRUE, A)]


def test_a_refused_message_is_not_stored(story: Story) -> None:
    story.add(PublishFailed(story.now_ns, story.attempt(A)))
    assert story.broken() == []
    assert story.broken(ch=frozenset([A])) == [(Promise.TRUE, A)]


def test_half_an_mpub_is_broken_whatever_its_outcome(story: Story) -> None:
    story.add(PublishUnknown(story.now_ns, story.attempt(A, B, C)))
    story.delivered(0, A)
    assert story.broken() == [(Promise.WHOLE, B)]
    assert story.broken(ch=frozenset([B, C])) == []


@pytest.mark.parametrize(("late_ms", "innocent"), [(2000, True), (0, False)])
def test_two_sockets_may_be_read_in_the_wrong_order(
    story: Story, late_ms: int, innocent: bool
) -> None:
    once(story).wait(2 * TIMEOUT_MS).delivered(0, A, 3)
    story.delivered(0, A, 2, consumer="two", late_ms=late_ms)
    assert ((Promise.ATTEMPTS, A) in story.broken()) is not innocent


def test_ids_rise_along_a_publisher(story: Story) -> None:
    first, second = story.attempt(A), story.attempt(B)
    story.acknowledged(first).acknowledged(second).delivered(2, A).delivered(1, B)
    assert story.broken() == [(Promise.RISING, B)]
