"""Nodes of real parts in a world that fails: log, ledger, roles and kernel on simulated disks."""
