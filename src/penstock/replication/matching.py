"""Where two logs begin to differ.

A log is a sequence of batches whose epochs never decrease. One leader wrote all batches of an
epoch, in order, so two logs that both have a batch of epoch *e* at the same offset have the same
batches up to the end of *e* in the shorter of the two. The **common end** of two logs is therefore
in the newest epoch that both have: where the first of them leaves it.

    leader     1 1 1 2 2 4 4 4          epochs (1, 0) (2, 3) (4, 5)     end 8
    follower   1 1 1 2 2 2 3            epochs (1, 0) (2, 3) (3, 6)     end 7
    common           2 2                the newest common epoch is 2: min(5, 6) = 5

It is not enough to look for the follower's newest epoch only (3 here: the leader has none), nor to
compare ends: equal ends prove nothing. The epochs come from the batches' own headers, never from a
file beside the log. If one of the logs begins at the common end, it has no batch before it, and
nothing can be compared: if the other log has one, the two have nothing in common. At the common end
both sides compare the crc of the batch before it: a difference there is a fault of a disk or of the
program, and stops the replica.
"""

from penstock.log.epochs import Extent


def common_end(leader: Extent, follower: Extent) -> int | None:
    """None: they have nothing in common, and the follower begins again at the leader's start."""
    if follower.end < leader.start or follower.start > leader.end:
        return None
    here, there = len(leader.epochs) - 1, len(follower.epochs) - 1
    while here >= 0 and there >= 0:
        mine, other = leader.epochs[here][0], follower.epochs[there][0]
        if mine == other:
            end = min(leader.end_of(here), follower.end_of(there))
            is_shared = end > max(leader.start, follower.start)
            return end if is_shared or leader.start == follower.start == end else None
        here -= mine > other
        there -= other > mine
    return follower.start if follower.start == leader.start else None
