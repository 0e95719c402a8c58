"""The cluster's decisions about many partitions and nodes, without I/O: metadata, elections,
proposals.

Read `coordinator` for the party that decides, `keys` and `documents` for what it keeps, and `view`
for what a node knows of it; `placement`, `moves` and `controller` for where replicas are;
`channel_creation` for channels.
"""
