"""What people and the broker see of a window (see survey.pxd)."""

from libc.string cimport memset

from penstock.kernel.fast.cursor cimport Cursor
from penstock.kernel.fast.keyorder cimport ORDER_NONE
from penstock.kernel.fast.strays cimport BEHIND, DELAYED, EXHAUSTED, IN_FLIGHT, WAITING, stray_t
from penstock.kernel.fast.types cimport i64, u32

from penstock.kernel.interface import StrayRecord

cdef enum:  # Locality
    UNKNOWN = 0
    GLOBAL = 1
    REGION = 2
    ZONE = 3

cdef i64 NEVER = <i64>0x7FFFFFFFFFFFFFFF


cdef class Survey(Cursor):
    # --- numbers ---

    @property
    def paused(self):
        return self._paused

    @paused.setter
    def paused(self, bint value):
        self._paused = value
        self.mark_pump()

    @property
    def allowance(self):
        return self.allowance_left

    @allowance.setter
    def allowance(self, i64 value):
        self.allowance_left = value
        self.mark_pump()

    cdef i64 deliverable_c(self) noexcept:
        """What the cursor may come to, delayed messages that are only counted included."""
        cdef i64 ahead = 0 if self._order != ORDER_NONE and self.stopped() else self.ahead_c()
        return ahead + self.strays.waiting_count

    cdef i64 ahead_c(self) noexcept:
        cdef i64 ahead = self.tail.handed_end - self.next
        if self.skips.total:  # they may reach beyond what is handed
            ahead -= self.skips.below(self.tail.handed_end)
        return ahead if ahead > 0 else 0

    @property
    def depth(self):
        cdef i64 strays = self.strays.waiting_count + self.strays.behind_count
        return self.ahead_c() + strays - self.beyond.count

    @property
    def order(self):
        return self._order

    @order.setter
    def order(self, int value):
        if value != self._order:
            self.begin_order(value)

    @property
    def behind(self):
        return self.strays.behind_count

    @property
    def in_flight(self):
        return self.ring_in_flight + self.strays.flying_count

    @property
    def delayed(self):
        return self.strays.delayed_count + self.beyond.count

    @property
    def unparked(self):
        return self.beyond.count

    @property
    def message_count(self):
        return self.tail.handed_end - self.count_base

    @property
    def consumers(self):
        return self.consumer_count

    @property
    def zone_local_count(self):
        return self.delivered[ZONE]

    @property
    def region_local_count(self):
        return self.delivered[REGION]

    @property
    def global_count(self):
        return self.delivered[GLOBAL] + self.delivered[UNKNOWN]

    def in_flight_of(self, u32 conn_serial):
        return self.in_flight_of_c(conn_serial)

    @property
    def journal_dirty(self):
        return bool(self.cursor_changed or self.reset_pending or self.fin_count
                    or self.strays.notes.length)

    @property
    def deadline_ns(self):
        cdef i64 ring = self.ring_deadline_ns if self.ring_in_flight else 0
        cdef i64 stray = self.strays.deadline_ns if self.strays.flying_count else 0
        if ring and stray:
            return min(ring, stray)
        return ring or stray

    @property
    def due_ns(self):
        return self.strays.first_due()

    @property
    def floor(self):
        return self.strays.lowest_offset(self.low)

    # --- messages ---

    def in_flight_records(self, Py_ssize_t count_max):
        cdef list found = []
        cdef i64 offset = self.low
        cdef u32 mask = self.ring_capacity - 1
        cdef u32 i
        cdef stray_t* stray
        while offset < self.next and len(found) < count_max:
            if self.owners[offset & mask]:
                found.append((offset, self.runs.id_of(offset), self.attempts_of(offset),
                              self.owners[offset & mask], self.deadlines[offset & mask]))
            offset += 1
        for i in range(self.strays.capacity):
            if len(found) >= count_max:
                break
            if self.strays.table[i].state == IN_FLIGHT:
                stray = &self.strays.table[i]
                found.append((stray.offset, stray.id, stray.attempts, stray.owner,
                              stray.deadline_ns))
        return found

    def stray_records(self, int state, Py_ssize_t count_max):
        """No more objects than are asked for, however many strays there are."""
        cdef list found = []
        cdef i64 bound = NEVER, key
        cdef u32 i
        cdef stray_t* stray
        if count_max <= 0:
            return []
        for i in range(self.strays.capacity):
            stray = &self.strays.table[i]
            if stray.state != state:
                continue
            key = stray.deadline_ns if state == DELAYED else stray.offset
            if key > bound:
                continue
            found.append((key, StrayRecord(stray.offset, stray.id, stray.attempts, state,
                                           key if state == DELAYED else 0)))
            if len(found) >= 2 * count_max:
                found.sort()
                del found[count_max:]
                bound = found[count_max - 1][0]
        found.sort()
        return [record for _, record in found[:count_max]]

    def unfinished_below(self, i64 offset):
        cdef i64 at = self.low, end = min(self.next, offset), count = 0
        cdef u32 mask = self.ring_capacity - 1
        cdef u32 i
        while at < end:
            count += self.owners[at & mask] != 0
            at += 1
        for i in range(self.strays.capacity):
            count += self.strays.table[i].state != 0 and self.strays.table[i].offset < offset
        return count

    # --- is it whole? ---

    def validate(self):
        cdef u32 mask = self.ring_capacity - 1
        cdef i64 offset = self.low, flying = 0, deadline
        cdef u32 i
        cdef i64 counts[8]
        memset(counts, 0, sizeof(counts))
        if not self.low <= self.next or self.next - self.low > self.ring_capacity:
            raise RuntimeError(f"window [{self.low}, {self.next}) does not fit its ring")
        while offset < self.next:
            flying += self.owners[offset & mask] != 0
            deadline = self.deadlines[offset & mask]
            if self.owners[offset & mask] and not 0 < self.ring_deadline_ns <= deadline:
                raise RuntimeError(f"offset {offset} is due before the ring's earliest deadline")
            offset += 1
        if self.low < self.next and self.owners[self.low & mask] == 0:
            raise RuntimeError(f"low {self.low} stands on a finished message")
        for i in range(self.strays.capacity):
            counts[self.strays.table[i].state & 7] += 1
            if self.strays.table[i].state and self.offset_in_ring(&self.strays.table[i]):
                offset = self.strays.table[i].offset
                raise RuntimeError(f"offset {offset} is a stray and in the ring")
        if (flying != self.ring_in_flight or counts[WAITING] != self.strays.waiting_count
                or counts[DELAYED] != self.strays.delayed_count
                or counts[IN_FLIGHT] != self.strays.flying_count
                or counts[EXHAUSTED] != self.strays.exhausted_count
                or counts[BEHIND] != self.strays.behind_count):
            raise RuntimeError("counts of in-flight, waiting or delayed messages do not add up")
        for conn in self.conns:  # in all its windows together
            flying = sum([window.in_flight_of(conn.serial) for window in conn.windows])
            if conn.in_flight != flying:
                raise RuntimeError(f"connection {conn.serial} counts {conn.in_flight} in flight, "
                                   f"it has {flying}")
        self.validate_order()
        self.skips.validate()
        self.beyond.validate(self.next)
        if max(self.parked_end, self.search_end) > self.tail.handed_end:
            raise RuntimeError("delayed messages are looked for beyond what is handed over")

    cdef bint offset_in_ring(self, stray_t* stray) noexcept:
        if stray.offset < self.low or stray.offset >= self.next:
            return False
        return self.owners[stray.offset & (self.ring_capacity - 1)] != 0
