# Order among the messages of one channel in one partition: of each key, or of all.
#
# A message **holds** its key from the moment it is sent until it is done: while it is in flight,
# waits to be sent again, is delayed by a REQ, or is exhausted and not settled. Meanwhile its key is
# busy, and other messages of it are put aside **behind** it, in the order of the log. When no
# message holds the key any more, the first of them does, and is the next to be sent.
#
# An order may begin while several messages of a key are in flight: all of them hold it. One that is
# to be sent again while others hold the key gives up its hold and goes behind, so the last of them
# that ends lets the first in the order of the log go.
#
# With Order.KEY the key is the one that the batch's trailer has, and messages without one have no
# order. With Order.STRICT all messages have one key, and the cursor waits where it would put one
# aside. So it does with Order.KEY when too many are aside.
#
# What a window has when it is restored, or told to keep an order, has keys that are **unknown**
# here: they stand in the log. They are read before anything else is sent: first those of messages
# that were sent, which hold them; then the others, in the order of the log, as far as the cursor
# has come. What is delayed and was never sent has no order until it is due.
#
# What is exhausted waits for its turn, too: it goes behind what stands before it, and the cursor
# does not wait for it there.
#
# The key of a message in flight for the first time stands in the ring; that of a stray in its link.

cdef enum:  # Order
    ORDER_NONE = 0
    ORDER_KEY = 1
    ORDER_STRICT = 2

cdef enum:
    ASIDE_MAX = 65536  # messages behind others of their key; beyond it the cursor waits

cdef enum:  # Source
    FORWARD_BLOCK = 0
    STRAY_BLOCK = 1

cdef u64 STRICT_KEY = 1  # the key of every message where the order is strict
cdef enum:  # in which order keys are looked up
    RANK_IN_FLIGHT = 0
    RANK_DELAYED = 1
    RANK_TO_SEND = 2


cdef bint stands_before(stray_t* one, stray_t* other) noexcept:
    return one.offset < other.offset or (one.offset == other.offset and one.id < other.id)


cdef bint view_stray(Ring window, stray_t* stray, view_t* out) except -1:
    """The batch that it stands in. False: that has to be read first."""
    if window.tail.view(stray.offset, out):
        return True
    if window.stray_block is not None and window.stray_block.view(stray.offset, out):
        return True
    if window.forward is not None and window.forward.view(stray.offset, out):
        return True
    if not window.stray_needed:
        window.stray_needed = True
        window.hub.events.append((NEED, window, STRAY_BLOCK, stray.offset))
    return False


cdef class Ordered(Ring):
    cdef int _order
    cdef public i64 aside_max
    cdef BusyKeys busy
    cdef list unknown  # a heap: which first, offset, id
    cdef i64 stopped_at  # where the cursor waits, and for which key
    cdef u64 stopped_key
    cdef Trailer key_trailer


    def __cinit__(self):
        self.aside_max = ASIDE_MAX
        self.busy, self.unknown = BusyKeys(), []
        self.stopped_at = -1

    cdef u64 key_of(self, view_t* view, Trailer trailer, u32 index) noexcept:
        """0: there is no order for this message."""
        cdef u32 size
        cdef const u8* key
        if self._order != ORDER_KEY:
            return STRICT_KEY if self._order == ORDER_STRICT else 0
        if trailer is None:
            return 0
        key = trailer.bytes_of(SECTION_KEY, index, &size)
        return hash_of_key(key, size) if key != NULL else 0

    # --- at the cursor ---

    cdef bint is_busy(self, u64 key) noexcept:
        return self.busy.find(key) != NULL

    cdef bint has_room_aside(self) noexcept:
        return self._order == ORDER_KEY and self.strays.behind_count < self.aside_max

    cdef bint stops(self, u64 key) noexcept:
        """Has the cursor to wait, at a message whose key is busy?"""
        if self.has_room_aside() or self.cursor_passes(key):
            return False
        self.stopped_at, self.stopped_key = self.next, key
        return True

    cdef bint stopped(self) noexcept:
        if self._order == ORDER_STRICT:
            return self.busy.count > 0 and not self.cursor_passes(STRICT_KEY)
        return (self.stopped_at == self.next and not self.has_room_aside()
                and self.is_busy(self.stopped_key) and not self.cursor_passes(self.stopped_key))

    cdef bint cursor_passes(self, u64 key) noexcept:
        """Does what the cursor is at stand before what holds its key, and is exhausted?"""
        cdef stray_t* stray = self.resting(self.busy.find(key))
        return stray != NULL and self.next < stray.offset

    cdef bint may_go_on(self) except -1:
        return not self.stopped() and (not self.unknown or self.knows_all())

    cdef bint runs_on(self, view_t* view, Trailer trailer, u32 index, bint sifts) noexcept:
        """Can this message be the first of a run?"""
        cdef u64 key
        if self._order == ORDER_NONE:
            return True
        key = self.key_of(view, trailer, index)
        return self._order == ORDER_KEY and not sifts and not (key and self.is_busy(key))

    # --- holders of a key, and messages behind it ---

    cdef int hold_ring(self, u32 slot, u64 key) except -1:
        self.ring_keys[slot] = key
        if key:
            self.busy.hold(key)
        return 0

    cdef int hold(self, stray_t* stray, u64 key) except -1:
        cdef link_t* link = self.strays.link(stray)
        link.key = key
        if key:
            link.holds = True
            self.busy.hold(key)
        return 0

    cdef int put_behind(self, stray_t* stray, u64 key) except -1:
        """Its key is busy. Mostly it is the last of the queue."""
        cdef busy_t* busy = self.busy.find(key)
        cdef link_t* link = self.strays.link(stray)
        cdef stray_t* other
        cdef u64 before = busy.last, after = 0
        while before:
            other = self.strays.find(before)
            if stands_before(other, stray):
                break
            after, before = before, self.strays.link(other).before
        link.key, link.before, link.after = key, before, after
        if before:
            self.strays.link(self.strays.find(before)).after = stray.id
        else:
            busy.first = stray.id
        if after:
            self.strays.link(self.strays.find(after)).before = stray.id
        else:
            busy.last = stray.id
        self.strays.set_state(stray, BEHIND)
        return self.pass_exhausted(key)

    cdef stray_t* resting(self, busy_t* busy) noexcept:
        """What holds it, if that is exhausted, and nothing else does."""
        cdef stray_t* stray
        cdef link_t* link
        if busy.exhausted == 0 or busy.holders > 1:
            return NULL
        stray = self.strays.find(busy.exhausted)
        if stray == NULL or stray.state != EXHAUSTED:
            return NULL
        link = self.strays.link(stray)
        return stray if link.holds and link.key == busy.key else NULL

    cdef int rest(self, stray_t* stray) except -1:
        """It is exhausted, and is not sent."""
        cdef link_t* link
        if self._order != ORDER_NONE:
            link = self.strays.link(stray)
            if link.holds:
                self.busy.find(link.key).exhausted = stray.id
        return 0

    cdef int pass_exhausted(self, u64 key) except -1:
        """What is exhausted holds up nothing that stands before it."""
        cdef busy_t* busy = self.busy.find(key)
        cdef stray_t* stray = self.resting(busy)
        if stray == NULL or busy.first == 0:
            return 0
        if stands_before(self.strays.find(busy.first), stray):
            return self.go_behind(stray, key)
        return 0

    cdef int go_behind(self, stray_t* stray, u64 key) except -1:
        """It held its key."""
        self.put_behind(stray, key)
        self.strays.link(stray).holds = False
        return self.one_holder_less(key)

    cdef int put_stray_aside(self, stray_t* stray) except -1:
        """One whose key is not known yet: in no queue."""
        self.await_known(stray, RANK_TO_SEND)
        self.strays.set_state(stray, BEHIND)
        return 0

    cdef bint must_wait_behind(self, stray_t* stray) except -1:
        """A stray is to be sent: does it go behind another? If not, it holds its key now."""
        cdef link_t* link
        if self._order == ORDER_NONE:
            return False
        link = self.strays.link(stray)
        if link.unknown:
            self.put_stray_aside(stray)
            return True
        if link.key == 0:
            return False
        if self.unknown and self.unknown[0][0] != RANK_TO_SEND:
            self.look_up_later(stray)
            return True
        if link.holds:
            return self.has_to_give_way(stray)
        if self.is_busy(link.key):
            self.put_behind(stray, link.key)
            return True
        self.hold(stray, link.key)
        return False

    cdef int look_up_later(self, stray_t* stray) except -1:
        """Keys of messages that hold theirs are not known yet; one may be the same, so it is sent
        after them."""
        cdef link_t* link = self.strays.link(stray)
        self.let_go(stray)
        link.key, link.unknown = 0, True
        return self.put_stray_aside(stray)

    cdef bint has_to_give_way(self, stray_t* stray) except -1:
        """It holds its key: do others, too, or did one of them go behind that stands before it?"""
        cdef link_t* link = self.strays.link(stray)
        cdef busy_t* busy = self.busy.find(link.key)
        if not (busy.is_crowded or 0 < self._attempts_max <= stray.attempts):
            return False
        if busy.holders == 1:
            if busy.is_crowded and stray.offset >= self.next:
                self.look_up_later(stray)  # the cursor has not come to all that stands before it
                return True
            if busy.first == 0 or stands_before(stray, self.strays.find(busy.first)):
                return False
        self.go_behind(stray, link.key)
        return True

    cdef int let_go_ring(self, u32 slot) except -1:
        if self.ring_keys[slot]:
            self.one_holder_less(self.ring_keys[slot])
        return 0

    cdef int let_go(self, stray_t* stray) except -1:
        """It is done, or delayed before it was sent: the next of its key comes."""
        cdef link_t* link = self.strays.link(stray)
        if link.key == 0:
            return 0
        if stray.state == BEHIND:
            self.leave_queue(stray)
        if link.holds:
            link.holds = False
            self.one_holder_less(link.key)
        return 0

    cdef int leave_queue(self, stray_t* stray) noexcept:
        cdef link_t* link = self.strays.link(stray)
        cdef busy_t* busy = self.busy.find(link.key)
        if link.before:
            self.strays.link(self.strays.find(link.before)).after = link.after
        else:
            busy.first = link.after
        if link.after:
            self.strays.link(self.strays.find(link.after)).before = link.before
        else:
            busy.last = link.before
        link.before = link.after = 0
        return 0

    cdef int one_holder_less(self, u64 key) except -1:
        cdef busy_t* busy = self.busy.find(key)
        cdef stray_t* stray
        busy.holders -= 1
        if busy.holders:
            return self.pass_exhausted(key)
        if busy.first == 0:
            self.busy.remove(busy)
            return self.mark_pump()  # the cursor may have stopped at this key
        busy.holders, busy.is_crowded = 1, False
        stray = self.strays.find(busy.first)
        self.leave_queue(stray)
        self.strays.link(stray).holds = True
        return self.wait_in_turn(stray)

    cdef int wait_in_turn(self, stray_t* stray) except -1:
        """Nothing stands before it. For the journal this is no change of what waits already."""
        if 0 < self._attempts_max <= stray.attempts:
            self.strays.exhaust(stray)
            self.rest(stray)
        else:
            self.strays.wait(stray)
        return self.mark_pump()  # where it is exhausted, its consumer has room for another

    cdef int delay(self, stray_t* stray) except -1:
        """What was not sent yet has no order until it is due."""
        if stray.attempts == 0 or stray.state == BEHIND:
            return self.let_go(stray)
        return self.await_known(stray, RANK_DELAYED)

    cdef int forget_keys(self) except -1:
        """All messages are forgotten."""
        self.busy.clear()
        self.unknown.clear()
        self.stopped_at = -1
        return 0

    # --- keys that are not known ---

    cdef int begin_order(self, int order) except -1:
        """Another order holds from now on."""
        cdef list found = []
        cdef stray_t* stray
        cdef u32 i
        cdef u64 id
        self.evict_all()
        self.forget_keys()
        free(self.ring_keys)
        self.ring_keys = NULL
        self._order = order
        self.strays.link_all(order != ORDER_NONE)
        if order != ORDER_NONE and self.ring_capacity:
            self.ring_keys = <u64*>calloc(self.ring_capacity, sizeof(u64))
            if self.ring_keys == NULL:
                raise MemoryError(f"no memory for {self.ring_capacity} keys in flight")
        for i in range(self.strays.capacity):
            if self.strays.table[i].state:
                found.append((self.strays.table[i].offset, self.strays.table[i].id))
        found.sort()
        for _, id in found:
            stray = self.strays.find(id)
            if order != ORDER_NONE:
                self.strays.link(stray).unknown = True
            if stray.state == WAITING or stray.state == BEHIND:
                if not self.must_wait_behind(stray):
                    self.wait_in_turn(stray)
            elif order != ORDER_NONE and stray.state == IN_FLIGHT:
                heappush(self.unknown, (RANK_IN_FLIGHT, stray.offset, stray.id))
            elif stray.state == EXHAUSTED:
                self.exhaust_unknown(stray)
            elif stray.attempts:
                self.await_known(stray, RANK_DELAYED)
        return self.mark_pump()

    cdef bint is_unknown(self, stray_t* stray) noexcept:
        return self._order != ORDER_NONE and self.strays.link(stray).unknown

    cdef int exhaust_unknown(self, stray_t* stray) except -1:
        """It has used its attempts before its key is known."""
        return self.await_known(stray, RANK_TO_SEND)

    cdef int await_known(self, stray_t* stray, int rank) except -1:
        """It is not in flight. What holds its key comes first: nothing is to be sent beside it."""
        if self._order != ORDER_NONE and self.strays.link(stray).unknown:
            heappush(self.unknown, (rank, stray.offset, stray.id))
        return 0

    cdef bint knows_all(self) except -1:
        """Has everything below the cursor its key? False: a block has to be read first."""
        cdef stray_t* stray
        cdef i64 offset
        cdef u64 id
        cdef int rank
        while self.unknown:
            rank, offset, id = self.unknown[0]
            stray = self.strays.find(id)
            if stray != NULL and self.is_awaited(stray, rank, offset):
                if rank == RANK_TO_SEND and offset >= self.next:
                    return True
                if not self.learn(stray):
                    return False
            heappop(self.unknown)
        return True

    cdef bint is_awaited(self, stray_t* stray, int rank, i64 offset) noexcept:
        """What is not in flight or not delayed any more stands in the heap once more, after what
        is."""
        if rank == RANK_IN_FLIGHT and stray.state != IN_FLIGHT:
            return False
        if rank == RANK_DELAYED and stray.state != DELAYED:
            return False
        return stray.offset == offset and self.strays.link(stray).unknown

    cdef bint learn(self, stray_t* stray) except -1:
        """False: its batch has to be read first."""
        cdef view_t view
        cdef u64 key = STRICT_KEY
        if self._order == ORDER_KEY:
            if not view_stray(self, stray, &view):
                return False
            key = 0
            if view.trailer != NULL:
                if self.key_trailer is None:
                    self.key_trailer = Trailer()
                self.key_trailer.open(&view)
                key = self.key_of(&view, self.key_trailer, <u32>(stray.offset - view.base_offset))
        self.strays.link(stray).unknown = False
        self.queue_key(stray, key)
        if self.strays.link(stray).holds:
            self.busy.find(key).is_crowded = True
        return True

    cdef int queue_key(self, stray_t* stray, u64 key) except -1:
        cdef link_t* link = self.strays.link(stray)
        cdef bint is_busy = key != 0 and self.is_busy(key)
        if stray.state == IN_FLIGHT or (stray.state == EXHAUSTED and not is_busy):
            self.hold(stray, key)
            return self.rest(stray) if stray.state == EXHAUSTED else 0
        if stray.state == DELAYED:
            link.key = key
            if stray.attempts:
                self.hold(stray, key)
            return 0
        if is_busy:
            return self.put_behind(stray, key)
        self.hold(stray, key)
        return self.wait_in_turn(stray)

    # --- for tests ---

    cdef int validate_order(self) except -1:
        cdef dict holders = {}
        cdef i64 offset = self.low, aside = 0
        cdef u32 i, mask = self.ring_capacity - 1
        cdef stray_t* stray
        cdef link_t* link
        cdef set awaited = {id for _, _, id in self.unknown}
        if self._order == ORDER_NONE:
            if self.strays.behind_count or self.busy.count or self.ring_keys != NULL:
                raise RuntimeError("keys are kept where there is no order")
            return 0
        while offset < self.next:
            if self.owners[offset & mask] and self.ring_keys[offset & mask]:
                key = self.ring_keys[offset & mask]
                holders[key] = holders.get(key, 0) + 1
            offset += 1
        for i in range(self.strays.capacity):
            stray = &self.strays.table[i]
            if stray.state == 0:
                continue
            link = self.strays.link(stray)
            if link.holds:
                holders[link.key] = holders.get(link.key, 0) + 1
            if link.unknown and stray.state == BEHIND:
                aside += 1
                if stray.id not in awaited:
                    raise RuntimeError(f"the key of message {stray.id:016x} will never be known")
            if link.unknown and stray.state == WAITING:
                raise RuntimeError(f"message {stray.id:016x} waits, and its key is not known")
            if link.key and not link.holds and stray.state in (WAITING, IN_FLIGHT):
                raise RuntimeError(f"message {stray.id:016x} does not hold its key")
        for i in range(self.busy.capacity):
            if self.busy.table[i].holders:
                key = self.busy.table[i].key
                if holders.pop(key, 0) != self.busy.table[i].holders:
                    raise RuntimeError(f"the holders of key {key:016x} do not add up")
                aside += self.validate_queue(key, self.busy.table[i].first, self.busy.table[i].last)
        if holders:
            raise RuntimeError(f"keys are held and not busy: {sorted(holders)}")
        if aside != self.strays.behind_count:
            raise RuntimeError("a message is aside, and behind nothing")
        return 0

    cdef u32 validate_queue(self, u64 key, u64 first, u64 last) except? 0xFFFFFFFF:
        """Returns how many stand in it."""
        cdef u64 id = first, before = 0
        cdef u32 count = 0
        cdef stray_t* stray
        cdef stray_t* previous = NULL
        while id:
            stray = self.strays.find(id)
            if stray == NULL or stray.state != BEHIND or self.strays.link(stray).key != key:
                raise RuntimeError(f"message {id:016x} is in the queue of a key, and not behind it")
            if self.strays.link(stray).before != before:
                raise RuntimeError(f"message {id:016x} does not know what stands before it")
            if previous != NULL and not stands_before(previous, stray):
                raise RuntimeError(f"message {id:016x} is out of order behind its key")
            previous, before, id = stray, id, self.strays.link(stray).after
            count += 1
        if before != last:
            raise RuntimeError(f"the queue of key {key:016x} does not end with its last message")
        return count
