"""The coordinator's port (`penstock.cluster.coordinator`) over etcd v3.

Read `address` for how a cluster is named, `messages` for what goes over the wire, `watch` for
changes as they come, and `session` for the rest: which endpoint is asked, and what a failure means.
"""
