"""Files of secrets: what is taken, what is refused, and that no error shows one."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.net.secretfile import authorization, first_secret, read_secrets


def test_files_of_secrets(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"  0123456789abcdef  \n\nanother-secret-of-ours\r\n")
    assert read_secrets(str(path)) == (b"0123456789abcdef", b"another-secret-of-ours")
    assert read_secrets("") == ()
    for content in (b"", b"\n", b"too short", b"0123456789abcdef\nshort", b"0123456789 abcdef",
                    b"\xff" * 20, b"x" * 70_000):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(ConfigError) as raised:
            read_secrets(str(path))
        assert "0123456789" not in str(raised.value)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_secrets(str(tmp_path / "none"))


def test_a_client_sends_the_first(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"the-new-secret-of-ours\nthe-old-secret-of-ours\n")
    secret = first_secret(str(path), "http_secret_file")
    assert authorization(secret) == {"Authorization": "Bearer the-new-secret-of-ours"}
    assert authorization(first_secret("", "http_secret_file")) == {}
    with pytest.raises(ConfigError, match="http_secret_file"):
        first_secret(str(tmp_path / "none"), "http_secret_file")
