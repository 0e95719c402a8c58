"""The coordinator's port (`penstock.cluster.coordinator`) over etcd v3.

Read `address` for how a cluster is named, `messages` for what goes over the wire, `watch` for
changes as they come, and `session` for the rest: which endpoint is asked, and what a failure means.

Names are resolved as the system does it. gRPC's own resolver asks a name server for IPv6 addresses
also of what `/etc/hosts` names; where that server does not answer, etcd was found 12 s late.
"""

import os

os.environ.setdefault("GRPC_DNS_RESOLVER", "native")  # read when grpc is first imported
