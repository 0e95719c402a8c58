"""A small private file, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace(place: Path, data: bytes) -> None:
    """Readers see the old one or the new one. Its mode is 0600."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except BaseException:
        os.unlink(temporary)
        raise
