"""The form of NSQ's statsd keys."""


def expand_prefix(prefix: str, broadcast_address: str, http_port: int) -> str:
    """`%s` stands for this daemon; a dot ends the prefix."""
    host = f"{broadcast_address}:{http_port}".replace(".", "_").replace(":", "_")
    expanded = prefix.replace("%s", host)
    return expanded if not expanded or expanded.endswith(".") else expanded + "."
