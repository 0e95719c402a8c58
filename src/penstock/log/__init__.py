"""The log: batches in segments, synced, recovered, read and removed.

`partition.PartitionLog` is the log of one partition; `disk` is what it asks of a disk; `recovery`
holds the rules of a start; `verify` and `inspect` look at a data directory from outside.
"""
