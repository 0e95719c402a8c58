"""The topics of an engine: their tails and routes."""

from penstock.kernel.fast.poller cimport Poller

cdef class Routes(Poller):
    pass
