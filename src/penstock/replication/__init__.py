"""The rules of one partition on several nodes, without clock, disk, thread or socket.

A leader and its followers are two machines, `PartitionLeader` and `PartitionFollower`. Their shell
reports what has happened (a row was written, a frame came, a transaction was refused) by calling a
method, and then carries out the effects that stand in `out`, in their order. The simulator's shell
and the node's are two; the machines are the same.

What a shell owes to the machines:

1. What an effect says is durable before anything is sent that follows it in `out`.
2. An epoch is durable before anything happens on its ground.
3. A row is written before it is sent, sent before it is synced, and synced before it is
   acknowledged by oneself. The machines wait for `wrote` and `synced`; the shell does not call them
   early.
4. A publisher's OK comes after `CommitTo`, never before.
5. A leader's epoch is in the ledger before the `PartitionLeader` is made.
6. A cut, and the sync of it, is done before `Matched` is sent.
7. Frames of a session that has ended are dropped.

Why commits are safe. Call a set *possible* when it is in force, or a transaction that was sent
could still install it. A leader commits what every member of every possible set has acknowledged to
it in its epoch, after matching. So every member of whatever set is in force holds everything that
was committed. A new leader is such a member. It makes its epoch durable before its leadership
begins, and acknowledges nothing of a lower one from then on: a later commit of the old leader rests
on an acknowledgement that the new one gave *before*, so that row is in the log with which it takes
leadership. The old leader cannot leave the new one out, for the record has moved and its revision
is compared. No clock is read in this argument. It needs five conditions:

- a leadership ends with the incarnation of its process, and with a failed write;
- acknowledgements count only after matching, by session and replica id;
- a transaction whose outcome is unknown is settled by a later one;
- a new member is level with the log's end at the start of the epoch;
- a replica that may have lost what it acknowledged is not elected before that is known.
"""
