"""Replicas of a cluster on this node: roles, log and journal replication, forwarding."""
