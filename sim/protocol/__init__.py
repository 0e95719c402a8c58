"""The protocol world: the machines of replication over model parts, thousands of histories a core.

Read `world` for what may happen, `observer` for what must hold all the same, `calm` for what must
follow, and `switches` for the proof that a missing rule is noticed.
"""
