"""JSON files that carry their own checksum, so that a bit that rots in one is found.

The checksum is the last member of the object, `"crc32c":"` and eight hex digits, and covers the
object as it was without that member. A file without it is not one of ours, or no longer is: a name
or a number in it may be wrong, and nothing in the file would show it.
"""

import re

from penstock.kernel import crc32c

_SEAL = re.compile(rb',"crc32c":"([0-9a-f]{8})"\}\Z')


def seal(document: bytes) -> bytes:
    """`document` is a JSON object with at least one member."""
    if not document.endswith(b"}") or len(document) <= len(b"{}"):
        raise ValueError("only an object with a member can be sealed")
    return document[:-1] + b',"crc32c":"%08x"}' % crc32c(document)


def unseal(data: bytes) -> bytes:
    """The document of a sealed file. Raises ValueError with the reason."""
    found = _SEAL.search(data)
    if found is None:
        raise ValueError("it does not end with its checksum")
    document = data[: found.start()] + b"}"
    if crc32c(document) != int(found[1], 16):
        raise ValueError("its checksum does not match")
    return document
