"""The segments of one log in order, with indexes in memory for a few of them."""

from bisect import bisect_right

from penstock import limits
from penstock.log.disk import Disk
from penstock.log.index import IndexEntry, SparseIndex, load_index
from penstock.log.scan import Batch, walk
from penstock.log.segment import Segment, SegmentInfo


class Segments:
    """Never empty. The last one is active, all others are sealed."""

    def __init__(
        self, disk: Disk, items: list[Segment], active_index: SparseIndex, every_bytes: int
    ) -> None:
        self._disk = disk
        self._items = items
        self._bases = [segment.base_offset for segment in items]
        self._indexes: dict[int, SparseIndex] = {}  # sealed ones, by base offset, oldest use first
        self._every_bytes = every_bytes
        self.active_index = active_index
        self.index_failures = 0  # writes of indexes that were not done
        self.index_trouble = ""  # why; empty: the latest was

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, segment: Segment) -> bool:
        number = self.holding(segment.base_offset)
        return self._items[number] is segment

    def __getitem__(self, number: int) -> Segment:
        return self._items[number]

    @property
    def active(self) -> Segment:
        return self._items[-1]

    @property
    def start_offset(self) -> int:
        return self._bases[0]

    def holding(self, offset: int) -> int:
        """The number of the segment whose range includes `offset`."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def limit(self, number: int) -> int | None:
        """The offset at which a sealed segment ends; None for the active one."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else None

    def infos(self, written_end: int) -> list[SegmentInfo]:
        ends = [*self._bases[1:], written_end]
        return [
            SegmentInfo(s.path, s.base_offset, end, s.data_bytes, s is not self.active)
            for s, end in zip(self._items, ends, strict=True)
        ]

    def append(self, segment: Segment, index: SparseIndex) -> None:
        """A roll: the active segment is sealed."""
        self._keep_index(self.active.base_offset, self.active_index)
        self._items.append(segment)
        self._bases.append(segment.base_offset)
        self.active_index = index

    def drop_first(self) -> None:
        segment = self._items.pop(0)
        del self._bases[0]
        self._indexes.pop(segment.base_offset, None)

    def end_with(self, number: int, index: SparseIndex) -> None:
        """A cut: this segment is active again, and later ones are gone."""
        for segment in self._items[number + 1 :]:
            self._indexes.pop(segment.base_offset, None)
        del self._items[number + 1 :]
        del self._bases[number + 1 :]
        self._indexes.pop(self.active.base_offset, None)
        self.active_index = index

    def begin_with(self, segment: Segment) -> None:
        """The log is empty, and begins with this one."""
        self._items[:] = [segment]
        self._bases[:] = [segment.base_offset]
        self.active_index = SparseIndex(segment.index_path)

    def close(self) -> None:
        for segment in self._items:
            segment.close()

    def unsynced(self) -> list[Segment]:
        """Sealed segments that are not known to be on disk, oldest first."""
        found: list[Segment] = []
        for segment in reversed(self._items[:-1]):
            if not segment.unsynced:
                break
            found.insert(0, segment)
        return found

    # --- indexes ---

    def index_of(self, number: int) -> SparseIndex:
        segment = self._items[number]
        if segment is self.active:
            return self.active_index
        index = self._indexes.pop(segment.base_offset, None)
        if index is None:
            index = load_index(
                self._disk, segment.index_path, segment.base_offset, segment.data_bytes
            )
            if self._is_short(index, segment):
                index = self._build(number, index)
        self._keep_index(segment.base_offset, index)
        return index

    def intact_entry(self, number: int, entry_number: int) -> Batch | None:
        """The batch of an index entry if the segment agrees with every field of it."""
        entry = self.index_of(number).entry(entry_number)
        batch = self._items[number].blocks().intact(entry.position)
        if batch is None or _entry_of(batch) != entry:
            return None
        return batch

    def rebuild(self, number: int) -> SparseIndex:
        segment = self._items[number]
        index = self.index_of(number)
        index.cut(0)
        index = self._build(number, index)
        if segment is self.active:
            self.active_index = index
        else:
            self._keep_index(segment.base_offset, index)
        return index

    def _is_short(self, index: SparseIndex, segment: Segment) -> bool:
        indexed = index.positions[-1] if len(index) else -self._every_bytes
        return segment.data_bytes - indexed > self._every_bytes

    def _build(self, number: int, index: SparseIndex) -> SparseIndex:
        """Add the entries that an index lacks, and save it if there were any."""
        segment = self._items[number]
        blocks = segment.blocks()
        position, expected = segment.start, segment.base_offset
        if len(index):
            last = index.entry(len(index) - 1)
            batch = blocks.intact(last.position)
            if batch is None or _entry_of(batch) != last:
                index.cut(0)
            else:
                position, expected = last.position, last.offset
        for batch in walk(blocks, position, expected, self.limit(number)):
            add_if_due(index, batch, self._every_bytes)
        self.save_index(index)
        return index

    def save_index(self, index: SparseIndex) -> None:
        """The file is a convenience: it can be made again, so a full disk is no reason to fail. It
        is reported all the same: starts and searches take longer without it."""
        try:
            index.save(self._disk)
        except OSError as error:
            self.index_failures += 1
            self.index_trouble = f"{index.path} cannot be written: {error.strerror or error}"
        else:
            self.index_trouble = ""

    def _keep_index(self, base_offset: int, index: SparseIndex) -> None:
        self._indexes[base_offset] = index
        if len(self._indexes) > limits.INDEX_CACHE_SEGMENTS:
            del self._indexes[next(iter(self._indexes))]


def add_if_due(index: SparseIndex, batch: Batch, every_bytes: int) -> None:
    """An entry for the first batch of a segment and then one about every so many bytes."""
    if len(index) == 0 or batch.position - index.positions[-1] >= every_bytes:
        index.add(*_entry_of(batch))


def _entry_of(batch: Batch) -> IndexEntry:
    header = batch.header
    return IndexEntry(header.base_offset, batch.position, header.timestamp_ns, header.base_id)
