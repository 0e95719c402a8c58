"""What can be set about one partition's log."""

from __future__ import annotations

from dataclasses import dataclass

from penstock import limits


@dataclass(frozen=True, slots=True)
class LogSettings:
    segment_bytes_max: int = limits.SEGMENT_BYTES_MAX
    segment_age_max_ns: int = limits.SEGMENT_AGE_MAX_NS
    index_every_bytes: int = limits.INDEX_EVERY_BYTES
    preallocate_bytes_min: int = limits.PREALLOCATE_BYTES_MIN
    preallocate_bytes_max: int = limits.PREALLOCATE_BYTES_MAX  # 0: never ahead of writing
    spare_segments_max: int = limits.SPARE_SEGMENTS_MAX
    cut_kept_bytes_max: int = limits.CUT_KEPT_BYTES_MAX
    mark_every_ns: int = limits.MARK_EVERY_NS
