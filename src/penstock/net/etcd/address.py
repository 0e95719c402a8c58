"""Which etcd, and where in it: `etcd://[user@]host:port[,host:port...][/cluster]`.

| part | | default |
|---|---|---|
| scheme | `etcd`: plain; `etcds`: over TLS | |
| user | of etcd's own; its password stands in a file, never here | none |
| host:port | one or several members of one etcd; IPv6 in brackets | port 2379 |
| cluster | several clusters of Penstock can share an etcd | `penstock` |

All keys of a cluster begin with `/penstock/<cluster>/`.
"""

import re
from typing import NamedTuple

from penstock.errors import ConfigError
from penstock.limits import COORDINATOR_ENDPOINTS_MAX

NAME = "cluster"
DEFAULT = "penstock"
PORT = 2379
_RULE = "etcd://[user@]host:port[,host:port...][/cluster], or etcds:// for TLS"
_ADDRESS = re.compile(
    r"(?P<scheme>etcds?)://(?:(?P<user>[^@/,:]+)@)?(?P<hosts>[^/@]+)(?:/(?P<cluster>[^/]*))?/?"
)
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_CLUSTER = re.compile(r"[A-Za-z0-9._-]{1,64}")


class EtcdAddress(NamedTuple):
    endpoints: tuple[str, ...]  # host:port
    cluster: str = DEFAULT
    user: str = ""
    is_secure: bool = False

    @property
    def prefix(self) -> str:
        return f"/penstock/{self.cluster}/"


def parse_address(text: str) -> EtcdAddress:
    """Raises ConfigError, which shows no password: one in the address is refused by its form."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        shown = re.sub(r"//[^@]*@", "//...@", text)
        raise ConfigError(NAME, shown, _RULE)
    endpoints = tuple(_endpoint(text, host) for host in match["hosts"].split(","))
    if len(endpoints) > COORDINATOR_ENDPOINTS_MAX:
        raise ConfigError(NAME, text, f"{COORDINATOR_ENDPOINTS_MAX} endpoints at most")
    cluster = match["cluster"] or DEFAULT
    if not _CLUSTER.fullmatch(cluster):
        raise ConfigError(NAME, text, "a cluster's name has 1 to 64 of A-Z a-z 0-9 . _ -")
    return EtcdAddress(endpoints, cluster, match["user"] or "", match["scheme"] == "etcds")


def _endpoint(text: str, host: str) -> str:
    match = _HOST.fullmatch(host)
    port = int(match["port"] or PORT) if match is not None else 0
    if match is None or not 0 < port < 65536:
        raise ConfigError(NAME, text, f"{host!r} is no host with a port; {_RULE}")
    return f"{match['host']}:{port}"
