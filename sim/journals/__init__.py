"""A world for the state beside the log: journals of a partition on several nodes.

The machines of `penstock.replica.journalline` and the real files of `penstock.log.journalfile`, on
disks that lose what was not synced. Messages of the log, and elections, are modelled as far as
journals notice them: the log of every replica is level, and the coordinator answers at once.
"""
