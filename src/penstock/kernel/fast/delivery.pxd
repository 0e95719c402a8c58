"""Delivery: from batches, wherever they are, to message frames on a consumer's socket.

Frames are those of frames.pxd, with what extframe.pxd tells of between id and body for clients
that asked for it. They are built by copy into one shared scratch buffer and sent at once; what a
socket does not take is copied to the connection, which gets nothing more until that is gone. So no
batch is pinned by a slow consumer, and a connection holds at most one scratch buffer."""

from penstock.kernel.fast.buffer cimport buf_t
from penstock.kernel.fast.conn cimport Conn
from penstock.kernel.fast.hub cimport Hub
from penstock.kernel.fast.memory cimport view_t
from penstock.kernel.fast.window cimport Window
from penstock.kernel.fast.types cimport i64, u16, u32

cdef int pump_all(Hub hub) except -1
