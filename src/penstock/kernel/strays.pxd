from penstock.kernel._codec cimport buf_t, i64, u16, u32, u64, u8

# Which ids the offsets of a window's ring have.
#
# One run for each piece of a batch delivered in order: (first id, first offset, count). Ids and
# offsets both rise along a log, so the runs are sorted by both; a FIN finds its offset by
# arithmetic in the run that the last one fell into, or by binary search. Runs are dropped from the
# front as `low` passes them.

cdef struct run_t:
    u64 first_id
    i64 first_offset
    u32 count

cdef class Runs:
    cdef run_t* runs
    cdef u32 head, count, capacity, hint

    cdef int add(self, u64 first_id, i64 first_offset, u32 count) except -1
    cdef void trim(self, i64 low) noexcept
    cdef void clear(self) noexcept
    cdef i64 offset_of(self, u64 id) noexcept
    cdef run_t* hinted(self) noexcept
    cdef u64 id_of(self, i64 offset) noexcept


# Ranges ahead of a cursor that it steps over, sorted and apart from each other.
#
# They are added at any place, mostly at the end, and taken from the front: both cost no more with
# many of them, because delayed messages behind a backlog are a range each.

cdef struct range_t:
    i64 start
    i64 end

cdef class Skips:
    cdef range_t* ranges
    cdef u32 first, count, capacity  # what lies before `first` is taken
    cdef readonly i64 start  # of the first range, or a number that no offset reaches
    cdef readonly i64 total  # offsets

    cdef u32 at(self, i64 offset) noexcept
    cdef bint has(self, i64 offset) noexcept
    cdef i64 below(self, i64 end) noexcept
    cdef int add(self, i64 start, i64 end) except -1
    cdef int insert(self, u32 at, i64 start, i64 end) except -1
    cdef int make_room(self) except -1
    cdef i64 take_first(self) noexcept
    cdef void clear(self) noexcept
    cdef int write_all(self, buf_t* out, i64 least) except -1
    cdef int validate(self) except -1


# Delayed messages that are counted and are not among the strays.
#
# A stray costs memory, so a channel has a bounded number of them before its cursor comes by. The
# delayed messages beyond that bound stay in the log. They are found by passes over it, and a pass
# counts those that are due after its own time. So whether one is in the count follows from its
# offset and due time alone, and nothing is kept for it: `met` takes out the one at the cursor, and
# a later pass, which finds some of them due and parks others, leaves the count right at every step.

cdef class Beyond:
    cdef i64 start, end, at  # passes went over [start, end), the last one up to `at`
    cdef i64 count
    cdef i64 pass_ns, before_ns  # the time of the last pass, and of the one before
    cdef i64 due_ns  # when the first one that the last pass counted is due

    cdef void clear(self, i64 offset, i64 wall_ns) noexcept
    cdef void begin(self, i64 offset, i64 wall_ns) noexcept
    cdef bint counts(self, i64 offset, i64 due_ns) noexcept
    cdef void add(self, i64 offset, i64 due_ns) noexcept
    cdef void expect(self, i64 due_ns) noexcept
    cdef void met(self, i64 offset, i64 due_ns) noexcept
    cdef void passed(self, i64 offset) noexcept
    cdef bint overlaps(self, i64 start, i64 end) noexcept
    cdef int validate(self, i64 next) except -1


# Entries of the channel journal (docs/formats.md), 32 bytes each.

cdef enum:
    ENTRY_CURSOR = 1
    ENTRY_FINISHED = 2
    ENTRY_STRAY = 3
    ENTRY_GONE = 4
    ENTRY_RESET = 5

cdef int add_entry(buf_t* out, int kind, int state, int attempts, i64 a, i64 b,
                   u64 id) except -1


# Messages that left the window's common path, in a table by id.
#
#     state      in the table with        and also in
#     WAITING    attempts so far          `waiting`, a queue of ids, first in first out
#     DELAYED    due time, wall clock     `delays`, a heap of (due time, id)
#     IN_FLIGHT  owner, deadline, mono    -
#     EXHAUSTED  attempts so far          `exhausted`, a queue of ids, until it is taken
#     BEHIND     attempts so far          the row of its key (keyorder.pxd)
#
# Queue and heap hold ids and are checked against the table when something is taken out of them, so
# leaving a state costs nothing there. The table is open addressing; a removed stray keeps its id as
# a tombstone until the table is made anew. Every change but that between waiting, behind and
# exhausted, which the journal does not tell apart, is noted as a journal entry in `notes`.
#
# Where there is an order, each slot of the table has a link beside it, at the same place.

cdef enum:
    WAITING = 1
    DELAYED = 2
    IN_FLIGHT = 3
    EXHAUSTED = 5
    BEHIND = 6

cdef enum:  # Cause
    ENDED_TIMED_OUT = 1
    ENDED_REQUEUED = 2
    ENDED_DISCONNECTED = 3

cdef struct stray_t:
    u64 id  # 0: a slot never used
    i64 offset
    i64 deadline_ns  # in flight: mono; delayed: wall
    i64 delivered_ns
    i64 timestamp_ns  # of the message, when it is known
    u32 owner
    u32 turn  # of its latest place in a queue; older places are outlived
    u16 attempts
    u8 state  # 0: removed
    u8 cause  # of the end of its last attempt; 0: unknown

cdef struct link_t:
    u64 key  # hash; 0: it has none, or it is not known
    u64 before, after  # ids of its neighbours in the row of the key
    bint holds  # no other message of the key is sent
    bint unknown  # its key stands in the log, and was not looked up

cdef struct turn_t:
    u64 id
    u64 turn

cdef struct delay_t:
    i64 due_ns
    u64 id

cdef class Strays:
    cdef stray_t* table
    cdef link_t* links  # NULL: there is no order
    cdef bint linked
    cdef u32 capacity, count, used
    cdef i64 waiting_count, delayed_count, flying_count, exhausted_count, behind_count
    cdef i64 deadline_ns  # lower bound over those in flight, 0: none
    cdef buf_t waiting  # turn_t
    cdef buf_t exhausted  # turn_t
    cdef u32 turns
    cdef delay_t* delays
    cdef u32 delay_count, delay_capacity
    cdef buf_t notes

    cdef stray_t* find(self, u64 id) noexcept
    cdef stray_t* put(self, u64 id, i64 offset, int attempts, int state) except NULL
    cdef int remove(self, stray_t* stray) except -1
    cdef int grow(self) except -1
    cdef void set_state(self, stray_t* stray, int state) noexcept
    cdef int note(self, stray_t* stray) except -1
    cdef int link_all(self, bint linked) except -1
    cdef link_t* link(self, stray_t* stray) noexcept
    cdef int queue(self, buf_t* waiting, stray_t* stray) except -1
    cdef stray_t* first_of(self, buf_t* waiting, int state) noexcept
    cdef int wait(self, stray_t* stray) except -1
    cdef int sleep(self, stray_t* stray, i64 due_ns) except -1
    cdef int fly(self, stray_t* stray, u32 owner, i64 mono_ns, i64 deadline_ns) except -1
    cdef void expect(self, i64 deadline_ns) noexcept
    cdef int exhaust(self, stray_t* stray) except -1
    cdef stray_t* take_exhausted(self) noexcept
    cdef void pop_delay(self) noexcept
    cdef stray_t* top_delay(self) noexcept
    cdef i64 first_due(self) noexcept
    cdef stray_t* take_due(self, i64 wall_ns) noexcept
    cdef void clear(self) noexcept
    cdef int write_all(self, buf_t* out) except -1
    cdef i64 lowest_offset(self, i64 below) noexcept
