# The functions over bytes: hashes, ids, batches, headers, columns, traces (see _codec.pyi).

include "buffers.pxi"
include "hashes.pxi"
include "hexid.pxi"
include "batch.pxi"
include "headers.pxi"
include "columns.pxi"
include "traceruns.pxi"
