# The functions over bytes: hashes, ids, batches, headers, columns, traces (see _codec.pyi).

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_AsStringAndSize, PyBytes_FromStringAndSize, PyBytes_Size,
)
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

import sys

from penstock.kernel.codec.sections import encode_sections
from penstock.kernel.types import BatchCheck, BatchHeader, Columns, Headers, Values

include "buffers.pxi"
include "hashes.pxi"
include "hexid.pxi"
include "batch.pxi"
include "headers.pxi"
include "columns.pxi"
include "traceruns.pxi"
