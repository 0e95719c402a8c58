"""Commits of staged blocks over several leaders: all of the stages become messages, or none.

An app (a Spark query) stages blocks in any partitions, and then commits a **version** that names
them. Each of the partitions may have another leader, and any party may end between any two steps.

| step | by | what | durable in |
|---|---|---|---|
| open | the committer | a prepare key, which names the partitions | the coordinator |
| prepare | each leader | a record that **pins** the stages | the journal of the set |
| decide | the committer | app, version, partitions; the prepare key goes | one transaction |
| store | each leader | the **part**: batches that follow one another, each with a mark | the log |
| done | each leader | the set has the whole part: its pin goes | the journal of the set |
| close | the committer | all parts are done, or their topic's life is over | the coordinator |

Until the decision nothing is stored, and an error refuses the commit. After it nothing can stop it:
whoever asks for the commit again, or for a later version of the app, goes on with it first.

**The log alone says how far a part has come.** Each of its batches carries the transaction, the
place of its first message in the part, and whether more follows. Nothing else is written between.
So a new leader finishes the part at its log's end before anything else, without asking anyone:
that a part has begun proves that it was decided. And any reader on any replica knows the **visible
end**: the committed end, or the base of the part that is not whole below it.

`committer` is the one who asks, `partline` a partition's leader, `marks` what logs say of parts,
`changes` the transactions.
"""
