"""What follows an IDENTIFY that agreed on TLS or compression.

The answer to it, a JSON object, still goes out in the clear. Then, in this order:

1. TLS: the handshake, and `OK` over TLS. Only now does a connection of a daemon that requires TLS
   do anything but IDENTIFY.
2. snappy or deflate: the streams change, and `OK` comes compressed.

The client's connection stands still meanwhile: none of its commands is read before the last step
is done. An upgrade that fails is told in the clear, and is the end of the connection.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

from penstock.net.link import Link, Links
from penstock.nsqd.session import Session
from penstock.wire.frames import OK, FrameType, encode_frame
from penstock.wire.identify import compression

_OK_FRAME = encode_frame(FrameType.RESPONSE, OK)


class Upgrades:
    def __init__(self, links: Links) -> None:
        self._links = links
        self.context: ssl.SSLContext | None = None  # set when the daemon starts

    @property
    def soon(self) -> Callable[[], None]:
        return self._links.soon

    def start(self, session: Session, done: Callable[[str], None]) -> None:
        """`done` is called once, now or later, with why it failed, or with nothing. Not at all
        when the connection ends before."""
        if session.conn.ended:  # while its IDENTIFY was read
            return
        link = session.link = self._links.adopt(session.conn)

        def shaken(failure: str) -> None:
            if failure:
                link.open()
            else:
                session.conn.locked = False
                link.say(_OK_FRAME)
                self._compress(session, link)
            done(failure)

        if session.settings.tls and self.context is not None:
            link.secure(self.context, shaken)
        else:
            self._compress(session, link)
            done("")

    def _compress(self, session: Session, link: Link) -> None:
        streams = compression(session.settings)
        if streams is not None:
            link.compress(*streams)
            link.say(_OK_FRAME)
        link.open()
