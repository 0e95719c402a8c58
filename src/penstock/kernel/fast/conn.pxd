"""One V2 client connection: bytes in, commands out; frames in, bytes out.

States of the input side, and what moves between them:

    MAGIC --4 bytes--> COMMAND --LINE event--> halted --resume--> COMMAND
                       COMMAND --malformed, unknown topic, refused--> halted
                       halted --read_body--> BODY --complete--> halted --resume--> COMMAND
    any --close_after_flush--> DRAINING (bytes are dropped) --EOF or time--> gone

While publishes are unanswered (`owed` is not empty) a command for Python is *held*: it stays in
the input buffer and is read again when the last OK is out, so that replies keep the order of
commands.

A connection is what every one has (peer.pxd), what it is owed (owing.pxd), its publishes
(publisher.pxd, extended.pxd), and here: its input, cut into commands."""

from penstock.kernel.fast.extended cimport Extended
from penstock.kernel.fast.types cimport u8

cdef class Conn(Extended):
    cdef public bint locked

    cdef int parse(self, const u8* data, size_t size) except -1
    cdef int receive(self, const u8* data, size_t size) except -1
    cdef int reparse(self) except -1
    cdef Py_ssize_t parse_command(self, const u8* data, size_t size) except -2
    cdef Py_ssize_t parse_body(self, const u8* data, size_t size) except -2
    cdef Py_ssize_t parse_rdy(self, const u8* data, size_t size, size_t line) except -2
    cdef Py_ssize_t parse_fin(self, const u8* data, size_t size, size_t line) except -2
    cdef Py_ssize_t line_event(self, const u8* data, size_t line, size_t consumed) except -2
