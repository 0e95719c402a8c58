"""The rules of one partition on several nodes, without clock, disk, thread or socket.

Leader and follower are two state machines, `PartitionLeader` and `PartitionFollower`. Their shell
reports events (an append was written, a frame arrived, a transaction was refused) by calling a
method, and then carries out the effects in `out`, in order. The simulator and the node have
different shells; the machines are the same.

A shell guarantees:

1. An effect that promises durability is durable before anything after it in `out` is sent.
2. An epoch is durable before anything acts on it.
3. An append is written before it is sent, sent before it is synced, and synced before the leader
   acknowledges it itself. The machines wait for `wrote` and `synced`; the shell does not call them
   early.
4. A publisher's OK comes after `CommitTo`, never before.
5. A leader's epoch is in the ledger before the `PartitionLeader` is created.
6. A truncation, and its sync, is complete before `Matched` is sent.
7. Frames of a session that has ended are dropped.

Why commits are safe. Call a set *possible* when it is in force, or a transaction that was sent
could still install it. A leader commits what every member of every possible set has acknowledged to
it in its epoch, after matching. Every member of the set in force therefore holds everything that
was committed. A new leader is such a member. It makes its epoch durable before its leadership
begins, and from then on acknowledges nothing of a lower one: a later commit of the old leader rests
on an acknowledgement that the new one gave *before*, so that append is in the log with which it
takes leadership. The old leader cannot exclude the new one, because the record has changed and its
revision is compared. This argument reads no clock. It needs five conditions:

- a leadership ends with the incarnation of its process, and with a failed write;
- acknowledgements count only after matching, by session and replica id;
- a transaction with an unknown outcome is settled by a later one;
- a new member is level with the log's end at the start of the epoch;
- a replica that may have lost what it acknowledged is not elected until that is known.
"""
