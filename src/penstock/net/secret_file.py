"""Secrets for changes over HTTP, in files: nsqd and nsqlookupd know them, clients send the first.

A secret stands in a file, so that no command line, environment or log has it.
"""

from penstock import limits
from penstock.errors import ConfigError


def read_secrets(path: str, name: str = "http-secret-file") -> tuple[bytes, ...]:
    """The secrets in a file, one a line; with several, each is accepted, so that they can be
    changed one client after the other. `name` is the option that
    names the file. Raises ConfigError, which never shows a secret."""
    if not path:
        return ()
    try:
        with open(path, "rb") as file:
            data = file.read(limits.HTTP_SECRET_FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(name, path, f"cannot be read: {reason}") from error
    if len(data) > limits.HTTP_SECRET_FILE_BYTES_MAX:
        rule = f"{limits.HTTP_SECRET_FILE_BYTES_MAX} bytes at most"
        raise ConfigError(name, path, rule)
    secrets = tuple(line.strip() for line in data.splitlines() if line.strip())
    least = limits.HTTP_SECRET_BYTES_MIN
    if not secrets or min(map(len, secrets)) < least:
        rule = f"must hold a secret of {least} characters at least, one on each line"
        raise ConfigError(name, path, rule)
    for secret in secrets:
        if not all(0x21 <= byte <= 0x7E for byte in secret):
            rule = "secrets are of visible ASCII characters, without spaces"
            raise ConfigError(name, path, rule)
    return secrets


def first_secret(path: str, name: str) -> str:
    """The secret that a client sends; empty without a file. Raises ConfigError."""
    secrets = read_secrets(path, name)
    return secrets[0].decode("ascii") if secrets else ""


def bearer(secret: str) -> str:
    """The value of the header Authorization; empty without a secret."""
    return f"Bearer {secret}" if secret else ""
