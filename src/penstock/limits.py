"""The limits that users meet and packages share, each with its unit in its name and its reason.

A constant that tunes one module alone stands in that module.
What an operator can change is a flag whose default is read from here (`nsqd/options.py`).
"""

KIB = 1024
MIB = 1024 * KIB
MS = 1_000_000  # nanoseconds
SECOND = 1_000 * MS

# --- names and the V2 protocol (NSQ's own numbers: clients rely on them) ---
NAME_BYTES_MAX = 64  # topic and channel names, the #ephemeral suffix included
FILTER_RULES_MAX = 32  # of an `ext_filter`: each is looked at for each message
IDENTIFY_TEXT_CHARS_MAX = 4 * KIB  # of one; it is kept as long as the connection
AUTH_SECRET_BYTES_MAX = 64 * KIB  # kept too; a token has a few kilobytes
LINE_BYTES_MAX = 16 * KIB  # a command line; nsqd's read buffer
MESSAGE_BYTES_MAX = 1 * MIB  # --max-msg-size
BODY_BYTES_MAX = 5 * MIB  # --max-body-size: one MPUB, IDENTIFY or AUTH
BODY_BYTES_CEILING = 1024 * MIB  # of both flags: a batch's lengths are 32 bits, and others share it
RDY_COUNT_MAX = 2500  # --max-rdy-count
MESSAGE_TIMEOUT_NS = 60 * SECOND  # --msg-timeout
MESSAGE_TIMEOUT_MAX_NS = 900 * SECOND  # --max-msg-timeout
REQUEUE_DELAY_MAX_NS = 3600 * SECOND  # --max-req-timeout
HEARTBEAT_NS = 30 * SECOND  # default heartbeat interval; nsqd's client timeout / 2
HEARTBEAT_MAX_NS = 60 * SECOND  # --max-heartbeat-interval
OUTPUT_BUFFER_BYTES = 16 * KIB  # default output buffer
OUTPUT_BUFFER_BYTES_MAX = 64 * KIB  # --max-output-buffer-size
OUTPUT_BUFFER_TIMEOUT_NS = 250 * MS  # --output-buffer-timeout
SNAPPY_CHUNK_BYTES_MAX = 64 * KIB  # uncompressed, of one chunk: the framing format's own bound
INFLATE_BYTES = 64 * KIB  # compressed bytes given to zlib at a time: it copies what it did not use
NODE_ID_MAX = 1023  # ten bits of a message id

# --- ids ---
ID_POOL_COUNT = 4096  # ids in stock: one tick's, as many as NSQ's channel of ids holds
ID_BORROW_TICKS_MAX = 60_000  # how far ids may run ahead of the clock (about 63 s) before a warning
ID_RESERVE_TICKS = 60_000  # reserved ahead (about 63 s): a restart skips no more
CLOCK_BEHIND_NS = 60 * SECOND  # a log's timestamps this far ahead of the clock say nothing of ages
CLOCK_LEAP_NS = 365 * 24 * 3600 * SECOND  # a clock so far ahead of all that is stored may be wrong
CLOCK_STEP_NS = 24 * 3600 * SECOND  # a clock that went so far ahead while nsqd runs was set
CLOCK_DIFFERS_NS = 5 * SECOND  # between the nodes of a cluster: no link takes so long
CLOCK_LEAP_GRACE_NS = 24 * 3600 * SECOND  # then no age counts for a day: time to see the warning
AGE_MARKS = 16  # in a topic's maximum age, while its timestamps are ahead: what it may be late by
TOPICS_RETRIED_MAX = 16  # that could not be made or removed, each second: each takes some fsyncs
AGE_MARKS_STORE_NS = 60 * SECOND  # they are written down no more often: each is an fsync

# --- TLS and compression ---
TLS_HANDSHAKE_NS = 5 * SECOND  # a client that says nothing holds a socket no longer than this
LINK_BYTES = 256 * KIB  # one read, and one piece for the kernel: as its own reads

# --- log ---
SEGMENT_BYTES_MAX = 64 * MIB  # a segment rolls: small enough to delete and ship, few enough to list
SEGMENT_AGE_MAX_NS = 3600 * SECOND  # a segment rolls by age, so that retention by age can bite
PREALLOCATE_BYTES_MIN = 32 * KIB  # with index, mark and journals an idle topic stays below 64 KiB
PREALLOCATE_BYTES_MAX = 256 * KIB  # ahead of a busy one; zeros go out in small writes
PREALLOCATE_FOR_BYTES_MAX = 32 * KIB  # a larger write brings its own pages: zeros would cost twice
PREALLOCATE_WRITE_BYTES = 64 * KIB  # larger ones give ext4 huge folios that slow each later write
INDEX_EVERY_BYTES = 64 * KIB  # one sparse index entry per so much log
INDEX_CACHE_SEGMENTS = 4  # indexes of sealed segments kept in memory per partition, 32 KiB each
DESCRIPTORS_MAX = 1 << 20  # where the system names no limit
DESCRIPTORS_KEPT_SHARE = 4  # a quarter of them for files of the log and journals that stay open
DESCRIPTORS_RESERVED_SHARE = 8  # an eighth that no connection gets: the log must open its files
READ_POSITIONS_MAX = 64  # readers of a partition whose position in the file is remembered
SPARE_SEGMENTS_MAX = 2  # recycled files kept per partition: overwriting beats first touch
TAIL_MEMORY_BYTES_MAX = 4 * MIB  # newest batches of a busy partition kept for consumers at the tail
SHARED_MEMORY_BYTES_MAX = 64 * MIB  # of all partitions; beyond it one keeps its newest batch alone
RECENT_MEMORY_BYTES_MAX = 512 * KIB  # of a partition, though all was read: it stays in the cache
PARTITIONS_MAX = 255  # of a topic, numbered from 0: a publish may look at all for one that takes it
ROUTE_APPEND_BYTES_MIN = 16 * KIB  # after smaller appends the next goes to another partition
ROUTE_STAY_BYTES = 2 * MIB  # of larger appends go to one partition: its buffers and pages stay warm
ROUTE_STAY_NS = 10 * MS  # or what comes in so long: who reads one partition hardly notices it
HEADERS_BYTES_MAX = 65_535  # of a message: what the two bytes of their length can say
BATCH_BYTES_MAX = 4 * MIB  # an open batch stops taking publishes beyond this until it is sealed
APPEND_GATHER_NS = MS  # a small append waits at most so long for publishers that were just answered
APPEND_GATHER_COUNT_MIN = 8  # messages: after a smaller append the next one does not wait
APPEND_GATHER_BYTES_MAX = 64 * KIB  # nor after a larger one, whose bytes cost more than the append
APPEND_GATHER_SKIPS_MAX = 256  # appends written at once, after waiting did not help
APPEND_BATCHES_MAX = 250  # of numbering producers in a write: at four buffers each, one system call
APPEND_BYTES_MAX = BODY_BYTES_CEILING + 2 * BATCH_BYTES_MAX  # the largest body behind a full batch
SEALED_BATCHES_MAX = 1  # of a partition, written and not yet safe: while one syncs, one gathers
SEARCH_WINDOW_BYTES = 32 * KIB  # read for the next headers of a log: passes over large batches
SEARCH_SLICE_BYTES = 1 * MIB  # of one slice of a search for delayed messages: a millisecond
SEARCH_SLICE_HEADERS = 1000  # looked at in one slice: some milliseconds when all have delays
SEARCH_PAUSE_NS = 5 * MS  # between two slices: a search takes less than half of a core
SEARCH_AGAIN_NS = 10 * SECOND  # delayed messages beyond PARKED_MAX are not looked at more often
READ_BLOCK_BYTES = 256 * KIB  # one load of a reader behind the tail
MARK_EVERY_NS = 2 * SECOND  # how often the synced end is repeated in the mark file
DISK_FREE_BYTES_MIN = 256 * MIB  # --min-disk-free: publishes are refused below this
REPLICA_FILE_BYTES_MAX = 64 * KIB  # far above any real one: some 150 bytes and a reason
LOST_FILE_BYTES_MAX = 16 * MIB  # far above any real one: some 150 bytes a corrupt range
CUT_KEPT_BYTES_MAX = 256 * MIB  # of a partition, removed by cuts: each takes an append or so
REPAIR_COPY_BYTES = 1 * MIB  # of a segment that is copied aside, at a time
LEDGER_BYTES_MAX = 4 * MIB  # a node's ledger is replaced by a snapshot beyond this, or twice that
LEDGER_BYTES_READ_MAX = 1024 * MIB  # far above any real one: 30,000 replicas have some 15 MiB
LEDGER_RECORD_BYTES_MAX = 64 * KIB  # kept of one partition's record: far above any real one
JOURNAL_BYTES_READ_MAX = 1024 * MIB  # far above any real journal: it begins again beyond 1 MiB
PING_REASONS_MAX = 5  # troubles that /ping names: it stays a line that people read
DISK_CHECK_EVERY_NS = 1 * SECOND  # how often free disk is looked at
SYNC_THREADS = 4  # partitions whose fdatasync runs side by side
SYNC_AT_ONCE_NS = 1 * MS  # while syncs typically take less, an awaited one runs in the loop
SYNC_BUCKETS_NS = tuple(n * 100_000 for n in (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000))
SYNC_EVERY_COUNT = 2500  # --sync-every, durability `os`: messages between fsyncs
SYNC_PAUSE_NS = 50 * MS  # of a topic, between fsyncs by count: thousands a second cost 30 % CPU
SYNC_TIMEOUT_NS = 2 * SECOND  # --sync-timeout, durability `os`: time between fsyncs
RETAIN_AGE_NS = 24 * 3600 * SECOND  # --retain-age: how long consumed data is kept
RETAIN_BYTES = 1024 * MIB  # --retain-bytes: how much consumed data is kept per partition
JOURNAL_BYTES_MAX = 1 * MIB  # a channel journal starts a new generation beyond this
SYNCS_UNAWAITED_MAX = 16  # jobs out before a journal's sync waits: each holds a descriptor
JOURNAL_SYNC_EVERY_NS = 2 * SECOND  # a power loss redelivers at most what was finished since

# --- kernel (its C code has most of them as constants; tests/kernel/test_limits.py compares) ---
RECEIVE_BYTES = 256 * KIB  # one recv: 64 KiB costs MPUB 30 %, 1 MiB gains nothing
STUCK_INPUT_BYTES_MAX = 256 * KIB  # read ahead of a command that is still being decided
INPUT_BYTES_MAX = 256 * MIB  # of unfinished commands, over all connections; twice a body at least
INPUT_SMALL_BYTES = 64 * KIB  # of one that does not count: most connections hold a few bytes
UNSENT_BYTES_MAX = 1 * MIB  # a publisher that does not read its OKs is not read from
DRAIN_BYTES_MAX = 16 * MIB  # of a refused client, read and dropped before the close
CHUNK_BYTES = 256 * KIB  # deliveries built before they are sent: 64 KiB costs consuming 30 %
OWED_MAX = 64  # runs of unanswered publishes; a connection that mixes topics waits beyond this
RING_SPAN_MAX = 65_536  # offsets; one message held for hours must not keep the rest from moving on
PARKED_MAX = 1 << 20  # delayed messages of a channel at hand, some 200 bytes each; more just count
TAG_BYTES_MAX = 100  # of a consumer's `desired_tag`, as in Youzan's NSQ
TAG_ASIDE_MAX = 16_384  # messages put aside for consumers with another tag, some 200 bytes each
ASIDE_MAX = 65_536  # messages behind others of their key, 150 bytes each; then the cursor waits
HYSTERESIS_RDY_MIN = 64  # from here a refill of less than a quarter of RDY is put off
WHOLE_ROOM_MIN = 256  # messages; so much room of a consumer is not split among all its partitions
KEPT_BATCH_BYTES = 128  # what a batch kept in memory costs beside its bytes
REFILL_NS = 2 * MS  # a small refill waits so long for a better one; gains come from far shorter

# --- dead letters ---
DEAD_LETTERS_AT_ONCE = 500  # read, and published in one batch, there and back
DEAD_LETTER_BYTES_AT_ONCE = 4 * MIB  # or so many bytes: they are in memory meanwhile
REDRIVE_LOOKED_AT = 5_000  # dead letters of other channels that one step passes over
LISTED_MESSAGES = 100  # of a channel, in one /channel/messages without a limit
LISTED_MESSAGES_MAX = 1_000  # and with one: more is no reading for people
IN_FLIGHT_LOOKED_AT = 10_000  # to find those of them that time out first: some milliseconds
OLDEST_WALK = 1000  # messages that are not due, passed in one look for the oldest: a few ms
OLDEST_LOOK_NS = 5 * SECOND  # between looks into the log for a channel's oldest message
WAITING_BYTES_MAX = 200 * MIB  # publishes that wait for room in a partition: Youzan's bound, too
ALLOWANCE_ALL = 1 << 62  # bytes that a window may send: as good as no bound
RATE_BURST = 4  # seconds of a channel's rate that may be sent at once: Youzan's burst, too
RATE_KILOBYTES_MAX = 1 << 30  # of /channel/ratelimit: a terabyte a second
RATE_REFILL_NS = 20 * MS  # an allowance is not filled up more often: it has the window looked at
SETTLED_TOGETHER = 10_000  # delayed messages, by an operator, between two turns: some milliseconds
DELAY_HOURS_MAX = 100 * 366 * 24  # of /channel/requeuedelayed: beyond any delay
ATTEMPTS_MAX = 65_535  # attempts have two bytes on the wire

# --- end-to-end latency ---
LATENCY_WINDOW_NS = 600 * SECOND  # --e2e-processing-latency-window-time

# --- trace ---
TRACE_CHUNK_RECORDS = 4096  # in one message of `_trace`: 200 KB, below its default bound
TRACE_CHUNK_EVENTS = 16_384  # that these stand for: 800 KB once each has a record of its own
TRACE_GATHER_NS = 5 * MS  # events are gathered so long: a write a turn costs more than they do
TRACE_HELD_MAX = 256  # chunks that wait for the disk; beyond it events are dropped
TRACE_RETAIN_AGE_NS = 48 * 3600 * SECOND  # of `_trace`; the lake is for longer
TRACE_RETAIN_BYTES = 4096 * MIB  # of `_trace`: 80 million records, or more events

# --- runs of pipelines, in topic `_pipelines` ---
RUNS_RETAIN_AGE_NS = 7 * 24 * 3600 * SECOND  # a week of runs to look back on
RUNS_RETAIN_BYTES = 256 * MIB  # some 200,000 reports, six days of a run that is always busy
RUN_REPORT_S = 2.0  # between two reports of a run that moves
RUN_ALIVE_S = 10.0  # between two of one that does not: silence is how its end is noticed
RUN_ASK_S = 3.0  # a report waits no longer for an answer of nsqd
RUN_END_S = 10.0  # the end of a run waits no longer for its last messages, whatever nsqd does
RUN_LOGS_MAX = 100  # partitions whose offsets a report names: those furthest behind
RUN_TEXT_CHARS = 2_000  # of one text in a report, as a reason or an option
RUN_NAME_CHARS = 255  # of a name: a host has no longer one
RUN_OPTIONS_MAX = 100  # options in a report
RUN_PART_CHARS = 100_000  # of a page in one message: below a max-msg-size of 1 MiB in any encoding
RUN_PAGE_CHARS = 2_000_000  # of a run's page; an audit of 200 channels has some 1.5 million

# --- timers and the loop ---
JOURNAL_GATHER_NS = 5 * MS  # how long a record for other nodes gathers what channels finish
TICK_NS = 5 * MS  # resolution of message timeouts and delays
CLOSE_DRAIN_NS = 2 * SECOND  # bytes of a refused client are read and dropped so long
AGE_LOOKS_MAX = 200  # topics whose log is searched for what is too old, a second: some 40 ms
IDLE_SWEEP_NS = 30 * SECOND  # idle topics and channels are looked for so often
EPHEMERAL_DEPTH_MAX = 10_000  # --mem-queue-size: an ephemeral channel holds no more than this

# --- HTTP ---
HTTP_HEADER_BYTES_MAX = 64 * KIB  # request line and headers
HTTP_SECRET_BYTES_MIN = 16  # shorter ones can be guessed
HTTP_SECRET_FILE_BYTES_MAX = 64 * KIB  # a larger file is not one of secrets
HTTP_IDLE_NS = 120 * SECOND  # keep-alive connections without a request are closed
HTTP_HEAD_NS = 10 * SECOND  # for a request's head to come, as NSQ gives it
HTTP_BODY_NS = 60 * SECOND  # and for its body, and one second more for each
HTTP_RATE_BYTES_MIN = 16 * KIB  # of it; as many a second are to be taken of an answer
HTTP_FRAMING_EACH = 16  # bytes of chunks' heads for a byte of body: more is no honest client
HTTP_BODIES_BYTES_MAX = 256 * MIB  # of unanswered requests, over all connections
HTTP_BODY_SMALL_BYTES = 64 * KIB  # the last quarter of that is for bodies of no more than this
HTTP_PIPELINE_MAX = 128  # requests of one connection without an answer; then reading stops
HTTP_PIPELINE_BYTES_MAX = 1 * MIB  # and so many bytes of their bodies, or one body that is larger
HTTP_HEADS_MAX = 512  # heads of requests remembered, to read those of keep-alive clients but once
HTTP_HEAD_BYTES_MAX = 1 * KIB  # a longer one is not remembered
HTTP_DISCARD_BYTES_MAX = 256 * KIB  # an unwanted request body up to this is read and dropped
STATS_SLICE_NS = 4 * MS  # /stats is built in slices of this; deliveries go on between them
LOG_FETCH_BYTES = 1 * MIB  # /log/fetch when bytes_max is not given
LOG_FETCH_BYTES_MAX = 4 * MIB  # more at once gains nothing
BULK_JOBS_MAX = 256  # fetches that are checked or sent at a time; more wait in line
BULK_SLICE_BYTES = 256 * KIB  # read for a link that files can't be sent to directly
BULK_STALL_NS = 60 * SECOND  # a reader that takes nothing for so long is hung up on
BULK_NICE = 10  # of the readers' thread: a tenth of a core where publishers want the same one
LOG_TOPICS_MAX = 1_000  # named in one /log/positions; a pattern has no bound
ENDED_TOPICS_MAX = 10_000  # deleted topics whose end is remembered: some 2 MB of memory
ENDED_FILE_BYTES_MAX = 4 * 1024 * 1024  # of their file; it is written anew when it is full
PROFILE_SECONDS_MAX = 300  # /debug/pprof/profile
PROFILE_EVERY_NS = 5 * MS  # between two looks at the stack

# --- outgoing HTTP ---
FETCH_CONNECT_NS = 2 * SECOND  # --http-client-connect-timeout
FETCH_REQUEST_NS = 5 * SECOND  # --http-client-request-timeout
FETCH_BYTES_MAX = 64 * MIB  # an answer that is read: the stats of a node with 10,000 topics
FETCH_REDIRECTS_MAX = 10
FETCH_IDLE_NS = 15 * SECOND  # a connection that is kept for the next request
FETCH_NEXT_ADDRESS_NS = 250 * MS  # until a host's next address is tried too
LOOKUP_TOPICS_MAX = 256  # new topics whose channels are asked for at a time; others wait their turn
LOOKUP_CHANNELS_MAX = 1000  # taken from one lookupd for a new topic: a garbled answer fills no disk

# --- long connections that are mostly silent ---
KEEPALIVE_IDLE_S = 10  # a host that is gone is noticed after idle + probes * every: 25 s
KEEPALIVE_EVERY_S = 5
KEEPALIVE_PROBES = 3

# --- authentication ---
AUTH_TTL_S_MAX = 365 * 24 * 3600  # a longer one means for ever, and no timer takes it
AUTH_PATTERNS_MAX = 10_000  # in one answer of an auth server: each is compiled
AUTH_PATTERN_BYTES_MAX = 1 * KIB  # of one of them
AUTH_PATTERN_MEMORY_BYTES_MAX = 1 * MIB  # of one compiled pattern and what RE2 keeps for it

# --- idempotent publishing ---
PRODUCERS_MAX = 10_000  # remembered per partition; some 100 bytes each, in memory and in the file
PRODUCER_FORGET_NS = 7 * 24 * 3600 * SECOND  # a retry that comes later than this is a new publish
PRODUCERS_LOG_BYTES = 64 * MIB  # of log between two snapshots: a start reads that in a second
PRODUCERS_LOG_COUNT = 1_000_000  # the same in messages
PRODUCERS_FILE_BYTES_MAX = 4 * MIB  # some three times the longest table

# --- staged blocks and their commits ---
STAGE_BYTES_MAX = 32 * MIB  # one stage: it is in memory once, while it is received
COMMIT_LEADER_NS = 20 * SECOND  # a commit waits so long for a partition's leader
STAGE_BATCH_BYTES_MAX = 16 * MIB  # one batch of several messages: it is written in one go
STAGE_SLICE_BYTES = 1 * MIB  # of a stage read, and put into the log, in one turn
STAGE_NAME_CHARS_MAX = 200  # also of an app: names end up in log lines
STAGES_MAX = 300_000  # at a time, of all apps; some 900 bytes of memory each
STAGES_APP_MAX = 100_000  # of one app: 400 GB in Spark's blocks, or 1,000 topics times 100 tasks
STAGES_NAMELESS_MAX = 10_000  # of all writers without an app together: they look alike
STAGE_ATTEMPTS_MAX = 16  # of a version, known so that stragglers are refused: more never overlap
STAGE_IDLE_NS = 3600 * SECOND  # apps that staged nothing for so long give way when room is short
STAGES_LISTED_MAX = 1_000  # apps in one answer: more is nothing that a person reads
STAGE_HEAD_BYTES_MAX = 4 * KIB  # the first line of the file: two names and some numbers
STAGE_EXPIRE_NS = 24 * 3600 * SECOND  # a batch job may take hours between its stages and the commit
STAGE_JOBS_MAX = 2  # stages read or written at a time: the sync threads have publishes to serve
STAGE_SWEEP_NS = 10 * SECOND  # how often expired ones are looked for
STAGES_SWEPT_MAX = 1_000  # removed at a time
COMMIT_STAGES_MAX = STAGES_APP_MAX  # of one commit
COMMIT_PART_STAGES_MAX = 10_000  # in one request: some 30 ms of the loop
COMMIT_GATHERED_MAX = STAGES_MAX  # in lists of which only some parts have come
COMMIT_BODY_BYTES_MAX = 8 * MIB  # the JSON that names so many
COMMITS_WAITING_MAX = 1_000  # they go one after another
COMMIT_FILE_BYTES_MAX = 64 * MIB  # twice the longest record: each stage of another topic
APPS_MAX = 10_000  # whose last version is remembered; a small file each, read at the start
APPS_FORGOTTEN_MAX = 100  # at a time, in the loop's thread
APP_FORGET_NS = 30 * 24 * 3600 * SECOND  # when there are so many, those unused for so long go
APP_ONCE_FORGET_NS = 24 * 3600 * SECOND  # or for so long, when they have committed but once

# --- nsqd's connections to nsqlookupd ---
LOOKUP_CONNECT_NS = 2 * SECOND  # until connected
LOOKUP_START_NS = 500 * MS  # how long a start waits for them before it accepts clients
LOOKUP_ANSWER_NS = 3 * SECOND  # silence for so long while answers are owed: the network is gone
LOOKUP_PING_NS = 15 * SECOND  # NSQ's own interval
LOOKUP_RETRY_NS_MIN = 100 * MS  # first pause before connecting again; doubled each time
LOOKUP_RETRY_NS_MAX = 3 * SECOND  # a restarted lookupd should know us within a few seconds
LOOKUP_ANSWER_BYTES_MAX = 64 * KIB  # nsqlookupd's longest answer has some 200 bytes

# --- nsqlookupd ---
LOOKUP_BODY_BYTES_MAX = 1 * MIB  # the JSON of an IDENTIFY; nsqd's has some 200 bytes
LOOKUP_DRAIN_BYTES_MAX = 64 * KIB  # of a refused client, read and dropped before the close
LOOKUP_MAGIC_NS = 60 * SECOND  # who connects and says nothing is hung up on
LOOKUP_NAMES_MAX = 1_000_000  # topics and channels: one mad client must not take all memory
LOOKUP_INACTIVE_NS = 300 * SECOND  # --inactive-producer-timeout: 20 missed pings
LOOKUP_TOMBSTONE_NS = 45 * SECOND  # --tombstone-lifetime
LOOKUP_HOLD_NS = 3 * SECOND  # a lookup waits for the next leader, from the loss of the last one on
LOOKUP_AWAY_NS = 10 * SECOND  # without etcd, until /ping says so: its own elections take a few
LOOKUP_RELAY_NS = 10 * SECOND  # a change that an nsqd is asked for; it tries for ATTEMPT_NS
LOOKUP_SLICE_DOCUMENTS = 2_000  # of the metadata, taken in at a time: some 40 ms

# --- the client library ---
CLIENT_FRAME_BYTES_MAX = BODY_BYTES_CEILING + 64  # the largest message that any nsqd may send
CLIENT_GREETING_BYTES_MAX = 1 * MIB  # one answer before the first message: some JSON
CLIENT_PENDING_COUNT_MAX = 100_000  # unanswered publishes before `publish_nowait` refuses
CLIENT_PENDING_BYTES_MAX = 64 * MIB  # the same, in bytes
CLIENT_TURNS_APART = 64  # messages taken without waiting before others get the loop
CLIENT_HANG_UP_S = 0.5  # a connection that we close may take so long, TLS's farewell included
CLIENT_MARGIN_S = 2.0  # a heartbeat may be so late before its connection counts as dead

# --- Spark: reading the log, staging blocks ---
SPARK_FETCH_BYTES = LOG_FETCH_BYTES_MAX  # one request: some 20,000 messages of 200 bytes
SPARK_ROWS_MAX = 50_000  # of one RecordBatch: fewer than 10,000 cost throughput, more gain nothing
SPARK_ARROW_ROWS = 2_000  # to a writer at once, where there are maps or arrays
SPARK_TASK_ROWS = 2_000  # of small topics in one task: a task itself costs as much as some 100
SPARK_NAMES_MAX = 100  # topics named in one request: 7 KB of its first line
SPARK_REQUEST_MS = 30_000  # silence of nsqd for so long fails a request
SPARK_RETRIES = 3  # fetchOffset.numRetries: Kafka's own
SPARK_RETRY_MS = 200  # fetchOffset.retryIntervalMs: nsqd restarts within a second or so
SPARK_LEADER_MS = 10_000  # silence of another node of a cluster: there may be a new leader
SPARK_LEADER_WAIT_S = 30.0  # for a leader, and until it has what an older one has served
SPARK_LEADER_PAUSE_S = 0.2
SPARK_STAGE_RETRIES = 5  # numRetries of the sink: some 6 s, for an nsqd that is restarted
SPARK_COMMIT_MS = 300_000  # the same while it commits: it answers when all is on the disk
SPARK_STAGE_BYTES = 4 * MIB  # stageBytes: one request, far below STAGE_BYTES_MAX
SPARK_BATCH_BYTES = 1 * MIB  # of one batch in it: a consumer's load, and a reader's, is of batches
SPARK_BATCH_ROWS = 65_536  # of small messages
SPARK_REJECTED_ROWS_MAX = 10_000  # rejectedRowsMax, of a batch: more have one cause to be found
SPARK_REJECTED_BYTES_MAX = 64 * MIB  # the same: the driver holds them until its commit
SPARK_HELD_BYTES = 64 * MIB  # rows of many topics that a task holds before it stages them all
PIPELINE_BATCH_BYTES = 1024 * MIB  # of log in a batch: large bodies make no batch that takes hours
PIPELINE_RETRIES = 8  # of a request: together some 20 s, which a restart of nsqd does not take
PIPELINE_CRASHES_MAX = 5  # of Spark's processes without a batch in between; more are no accident
LAKE_COMPACT_FILES = 32  # small files of a partition: more cost readers more than the copy costs us
LAKE_MEDIUM_BYTES = 16 * MIB  # small files are merged up to this size, and these are merged
LAKE_LARGE_BYTES = 128 * MIB  # up to this one: a good piece of work for one task of a reader
LAKE_TOPICS_APART_MAX = 100  # of a new table; more share files: each of a batch costs 2 ms of CPU
LAKE_LOG_VERSIONS_MAX = 20_000  # of a table, that are kept: a commit lists them, in half a second
LAKE_CHECKPOINT_COMMITS = 10  # a commit replays no more than this: its time stays flat
AUDIT_MEMORY = "50%"  # of the machine's for DuckDB, beside Spark's JVM; the rest goes to disk
AUDIT_ASKED_MAX = 1000  # messages of a finding that nsqd is asked about: four requests each
REPLAY_TASK_MESSAGES = 10_000  # at least, of a chunk: less is staged sooner than a task has begun
LIVES_EVERY_S = 60  # between updates of the lifecycles at least
LIVES_RESTS = 9  # times as long as an update took none is made: a tenth of the time at most
LIVES_RETAIN_S = 24 * 3600  # replaced files stay this long, for readers that still use them
LIVES_VACUUM_S = 3600  # between removals of these
LAKE_NOTE_BUFFER_BYTES = 64 * KIB  # of a note beside a table, on its way to a store
LAKE_COMMIT_TRIES = 20  # of a transaction that others were faster than: each time one of them won
LAKE_COMMIT_PAUSE_NS = 100 * MS  # before the next one, halved at random so that they part
LAKE_READ_ROWS = 50_000  # of a table in an object store, handed to Spark at a time; few calls
LAKE_READ_BYTES = 16 * MIB  # the same in bytes, for large bodies: every task holds some of these
LAKE_READ_TASKS = 10_000  # of one read, a file each; beyond that a task reads several

# --- accepting ---
ACCEPT_BACKLOG = 1024  # connections the system keeps until we accept them
ACCEPTS_PER_TURN = 64  # a storm of connections must not starve those that are there
ACCEPT_PAUSE_NS = 100 * MS  # out of descriptors: wait this long before the next accept
ACCEPT_REPORT_S = 10.0  # that connections are refused is logged no more often
SHUTDOWN_NS = 10 * SECOND  # how long a stop waits for pending publishes and unsent bytes
SHUTDOWN_HAND_OVER_NS = 20 * SECOND  # how long a stop waits for other nodes to lead,
SHUTDOWN_STUCK_NS = 5 * SECOND  # and while no partition is handed over
SHUTDOWN_WAVES = 100  # partitions that are handed over one by one; of more, some at a time
SHUTDOWN_LINGER_NS = 500 * MS  # how long a stop waits for clients to read what was sent and hang up
DRAIN_POLL_NS = 50 * MS  # how often a drain looks whether anything is left
DRAIN_REPORT_NS = 10 * SECOND  # how often it says so in the log
SHUTDOWN_POLL_NS = 5 * MS  # how often a stop looks whether it may go on
GIL_SWITCH_NS = 500_000  # CPython's 5 ms would be the delay of a finished fsync

# --- nsqadmin ---
ADMIN_NOTIFICATIONS_MAX = 1000  # actions that wait for the notification endpoint
ADMIN_SESSION_TOUCH_S = 30  # a session's use is written down no more often: not with every request
ADMIN_LOCK_MS = 500  # what another program does in the file may take so long: all pages wait for it
ADMIN_RIGHTS_S = 2.0  # a page ends so long after its caller's session or role, at most
ADMIN_PASSWORD_MIN = 8  # characters: NIST's floor for a password that people choose
ADMIN_LOGIN_TRIES = 5  # wrong passwords from one address, before it has to wait
ADMIN_LOGIN_TRIES_OF_NAME = 50  # wrong passwords of one name, from everywhere
ADMIN_REFUSAL_S = 60.0  # the same refusal is in the audit log no more often: a script may go on
ADMIN_LOGIN_WAIT_S = 60  # how long then
ADMIN_LOGINS_AT_ONCE = 2  # passwords that are hashed at once: each takes 32 MiB
ADMIN_OIDC_S = 600  # from leaving for an OIDC provider to coming back: people look for their phones
ADMIN_OIDC_LEEWAY_S = 60  # by which the provider's clock may differ
ADMIN_OIDC_KNOWN_S = 3600  # what a provider says of itself, and its keys, hold so long
ADMIN_OIDC_KEYS_S = 30  # a key that is not known has the keys asked for no more often
ADMIN_OIDC_NAME_MAX = 256  # characters of a user's name: an email address has 254
ADMIN_OIDC_GROUPS_MAX = 1000  # of a user
ADMIN_BODY_BYTES_MAX = 64 * KIB  # a request to /api: a topic's and a channel's name
ADMIN_MAPPED_BYTES = 128 * KIB  # from this size on, freed memory goes back to the system at once
ADMIN_HEAPS = 2  # of the C library: threads of nsqadmin hold little
ADMIN_GZIP = 5  # of 9: answers are 2 % larger than with the most, and take a third of its time
ADMIN_PAGES_WAITING = 12  # for their browser's socket: 0.5 MB each, and it comes within a second
ADMIN_RECONNECT_S = 10.0  # a browser that lost its socket finds its page for so long
ADMIN_SWEEP_S = 3.0  # after a page was left, for those that follow: collecting takes 20 ms
ADMIN_POLL_SHARE = 50  # an nsqd is asked no more often than a fiftieth of its time allows
ADMIN_POLL_ANSWERS = 5  # the quickest of so many is what an answer costs
ADMIN_POLL_S_MAX = 15.0  # but at least so often, or charts have holes
ADMIN_DISCOVERY_S = 5.0  # nsqlookupds are asked for nodes and topics no more often
ADMIN_READY_S = 2.0  # a page that was opened right after the start waits so long for the first look
ADMIN_PAGE_S = 30.0  # a page is given up that has not been drawn, nor sent ahead, by then
ADMIN_LOOK_S = 0.5  # a look waits so long for nsqds and nsqlookupds: others have answered by then
ADMIN_STALE_S = 2.0  # without an answer: from then on an nsqd's figures are shown with their age
ADMIN_STALE_EVERY_S = 5.0  # that age is shown again so often
ADMIN_NODES_KEPT_S = 60.0  # what a node holds is written down so often, in case it falls silent
ADMIN_HURRY_S = 0.05  # after an action the next look waits so long, for actions that follow
ADMIN_RECENT_S = 300.0  # of every series in memory, look by look: what "5 min" shows
ADMIN_RECENT_SAMPLES = 200_000  # of all series, that differ from the one before: 64 bytes each
ADMIN_WINDOW_S = 60.0  # what does not move, or only grows, for so long needs attention
ADMIN_GROWING_MIN = 1000  # messages: a smaller backlog that grows is how queues work
ADMIN_TIMEOUT_SHARE = 0.1  # of what is finished: more that times out is a fault
ADMIN_SYNC_SLOW_S = 0.1  # a sync: ten times what a slow disk needs
ADMIN_DISK_FREE_SHARE = 0.1  # of a disk: less is nearly full
ADMIN_OLD_S = 300.0  # an unfinished message: most work is done in minutes, so somebody should look
ADMIN_TREND_S = 10.0  # of samples that say whether a depth grows: fewer are chance
ADMIN_KEEPS_UP_S = 3.0  # of messages that wait are no backlog: they come in batches
ADMIN_STEADY_SHARE = 0.05  # of a rate: a depth that changes by less stays
ADMIN_CURVES = 100  # small curves in the table of topics: of the deepest, each costs a read
ADMIN_FOUND_MAX = 12  # places that quick open offers: what is seen without scrolling
ADMIN_FOUND_CHARS = 200  # of what is sought: a topic, a slash and a channel have 129
ADMIN_AUDIT_SAVED = 10_000  # entries of the audit log in one download
ADMIN_LISTED = 200  # messages inside a channel, of one node: what people work through by hand
ADMIN_BODIES_AT_ONCE = 8  # bodies of dead letters read at the same time: each is a request to nsqd
ADMIN_IDS_NOTED = 20  # of them in one entry of the audit log
ADMIN_MESSAGES_SHOWN = 100  # of a topic on one page: more is an export
ADMIN_FOLLOWED_SHOWN = 500  # of a topic that is followed: older ones make room
ADMIN_FOLLOWED_AT_ONCE = 200  # of a node in one look; of a quicker topic the newest
ADMIN_FOLLOW_S = 15 * 60.0  # then following ends, for nobody may be looking
ADMIN_CRITERIA_CHARS = 2000  # of what messages are filtered by
ADMIN_JSON_LINES = 5000  # of a document that are coloured and folded; a longer one is plain text
ADMIN_DIGITS_MAX = 100  # a longer text is compared as a text, not as a number
ADMIN_BACKWARD_MESSAGES = 2000  # of the log that a search backwards takes in one step
ADMIN_EXPORT_MESSAGES = 100_000  # in one download: more is the business of a pipeline
ADMIN_EXPORT_BYTES = 256 * MIB  # of bodies in it
ADMIN_SEARCHED_MAX = 100_000  # messages that one search looks at before it says how far it got
ADMIN_FETCH_BYTES = 1 * MIB  # of the log in one request
ADMIN_PREVIEW_BYTES = 200  # of a body in a table
ADMIN_BODY_SHOWN_BYTES = 256 * KIB  # of one message: a browser stays quick
ADMIN_HEX_SHOWN_BYTES = 16 * KIB  # of it as hex, which is four times as long
ADMIN_TRACE_BYTES = 256 * MIB  # of a node's trace events that one search reads
ADMIN_TRACE_EVENTS = 5000  # of one search in the trace table: more is no timeline to read
ADMIN_TRACED_SHOWN = 50  # messages that were traced last, to choose from
TRACE_CONTEXTS_SHOWN = 50  # messages of one search whose header `traceparent` is read for it
ADMIN_TRACE_DRAWN = 300  # events of one message that are drawn; a list has them all
ADMIN_RUNS_MAX = 500  # runs of pipelines that are remembered
ADMIN_RUN_POINTS = 240  # of a run's chart: more than 100 bytes each, of 500 runs
ADMIN_RUNS_READ = 20_000  # messages of `_pipelines` read after a start: eleven hours of a busy run
ADMIN_RUNS_EVERY_S = 15.0  # between two looks at them while no page shows runs
ADMIN_RUN_SILENT_S = 60.0  # a run that says nothing for so long has gone: six signs of life
ADMIN_RUN_FAILED_S = 24 * 3600.0  # a run that failed needs attention for so long
ADMIN_RUN_WINDOW_S = 180.0  # a lag that only grows for so long needs attention
ADMIN_SQL_MESSAGES = 200_000  # of a topic that a statement of the console sees: the newest
ADMIN_SQL_ROWS = 1000  # of a result that are shown
ADMIN_SQL_VALUE_CHARS = 10_000  # of one value of it
ADMIN_SQL_ANSWER_BYTES = 2 * MIB  # of it as a whole: nsqadmin and a browser hold it
ADMIN_SQL_STATEMENT_CHARS = 100_000  # a longer statement was not written by a person
ADMIN_SQL_S = 30.0  # a statement that takes longer is stopped
ADMIN_SQL_DUCKDB_BYTES = 512 * MIB  # what DuckDB may use before it says so
ADMIN_SQL_MEMORY_BYTES = 4 * 1024 * MIB  # address space of its process, libraries included

# --- the diagnostic bundle ---
BUNDLE_ANSWER_BYTES_MAX = 32 * MIB  # of one answer: the stats of 10,000 topics with their clients
BUNDLE_BYTES_MAX = 256 * MIB  # of all files, unpacked: twenty such nodes; a zip of it can be mailed
BUNDLE_ZIP_BYTES_MAX = 256 * MIB  # of a zip that is read: packed is never much more than unpacked
BUNDLE_FILES_MAX = 5_000  # of a bundle: three hundred daemons with fifteen files each
BUNDLE_DAEMONS_MAX = 200  # that are asked: the rest is written down as left out
BUNDLE_AT_ONCE = 16  # daemons that are asked at the same time
BUNDLE_ASK_S = 10.0  # for one answer: a daemon that needs longer is a finding
BUNDLE_DAEMON_S = 60.0  # for all answers of a daemon, the time between samples aside
BUNDLE_SECONDS = 5  # between the two samples, unless set otherwise
BUNDLE_SECONDS_MAX = 60  # nobody waits longer at three in the morning
BUNDLE_CONFIG_AT_ONCE = 4  # values of a daemon's config: many small requests
BUNDLE_CLOCK_S = 1.0  # by which clocks may differ: due times and ages are off by as much
BUNDLE_MEMORY_FREE_SHARE = 0.05  # of the memory of a machine or container: less is dangerous
BUNDLE_WATERMARK_SHARE = 2  # free space below so many times min-disk-free is close to refusing
BUNDLE_LISTED = 20  # topics, nodes or findings that one line of a report names

# --- placement of replicas, and their moves ---
PLACEMENT_TOLERANCE = 0.1  # of the mean, by which nodes may differ: copying is not free
PLACEMENT_STEPS_MAX = 200  # for balance, of one plan: two seconds for 10,000 partitions
COPIES_IN_MAX = 2  # replicas that a node receives at a time: more only slow one another
COPIES_OUT_MAX = 4  # and that its leaders send at a time, beside what publishers and consumers need
CONTROLLER_TICK_NS = SECOND // 2  # between two looks of it at all partitions
CONTROLLER_SETTLE_NS = 7 * SECOND  # a lease of 5 s and 2 s: until then absence may be an outage
ELECT_AFTER_NS = 2 * SECOND  # that members have to elect one of themselves, and it to take over
NODE_STEADY_NS = 30 * SECOND  # that a node is there before it is given anything back
NODE_REPLACE_NS = 15 * 60 * SECOND  # a node that is missing so long does not come back by itself
NODES_MISSING_SHARE = 5  # more than one in so many missing is an outage of something else
PLAN_EVERY_NS = 60 * SECOND  # loads move slower than that
CHANNEL_CONFIRM_NS = 5 * SECOND  # that SUB waits for the leaders: clients wait about as long
CHANNELS_CONFIRMED_MIN = 100  # known to be, before those that are gone are forgotten
ATTEMPT_NS = 5 * SECOND  # that a client waits for a topic that is made, grows or goes
ATTEMPT_AGAIN_NS = 250 * MS  # until its transaction is drawn again: the view has moved meanwhile
REHASH_LEFT_MAX = 1_000  # messages of a channel that a rehash waits for
REHASH_DRAIN_NS = 3 * SECOND  # that publishes to a topic wait for its last messages
REPLICAS_DEFAULT = 3  # of a topic that a client makes, where there are so many nodes
CHANNEL_REQUEST_NS = 250 * MS  # until leaders that have not confirmed are asked again: some are new

# Links between nodes.
CLUSTER_MEMORIES_BYTES_MAX = 64 * MIB  # of a request to restore: 1 KB a partition and node
REPLICA_AWAKE_ROUNDS = 30  # of housekeeping, one a second, after something came to a replica
REPLICA_SETTLE_NS = 20 * MS  # of such work at a time, of which a replica takes some 0.1 ms
REPLICA_REST_ROUNDS = 60  # in which those that rest are all looked at once
REPLICA_MAPPED_BYTES = 8 * MIB  # from this size on, memory goes back to the system at once
REPLICA_KEPT_BYTES = 16 * MIB  # free memory that a node of a cluster keeps for the next moment
REPLICA_GROWN_BYTES = 1 * MIB  # by which its heap grows
REPLICA_CHUNK_BYTES = 1 * MIB  # of a payload that goes in one frame: others wait that long for it
REPLICA_FRAME_BYTES_MAX = MIB + KIB  # of one: a chunk and its fields, or 10,000 epochs
REPLICA_PAYLOAD_BYTES_MAX = APPEND_BYTES_MAX  # an append, or a journal's snapshot, in chunks
REPLICA_UNFINISHED_MAX = 64  # payloads in chunks that come over a lane at a time: all get on
REPLICA_UNFINISHED_BYTES_MAX = APPEND_BYTES_MAX + 64 * MIB  # of those: the largest, and usual ones
FEED_APPEND_BYTES_MAX = 16 * MIB  # of one sent from memory; what is larger is read back in chunks
FEED_BLOCK_BYTES = 2 * MIB  # read from the log for a follower, which may sync before it asks on
ASIDE_KEPT_NS = 24 * 3600 * SECOND  # replicas that are not wanted any more: time to look at them
ASIDE_SLICE_NS = 10 * MS  # of the loop's time, in which such files are removed
REPAIR_PATIENCE = 5  # looks, a second apart, before another replica is asked for a corrupt range
REPAIR_PAUSE = 60  # looks after all have been asked: one may have been repaired, or come back
CATCH_UP_SLOTS = 4  # learners that a leader's node feeds at a time, for each node: one link is full
CATCH_UP_STALL_NS = 10 * SECOND  # without an acknowledgement; another learner takes the slot then
LEARNER_NEAR_BYTES = 1 * MIB  # that a learner lacks when commits begin to wait for it: some 10 ms
REPLICA_EPOCHS_MAX = 10_000  # of a log that are named: an election a minute for a week

PEER_CONNECT_NS = 2 * SECOND  # until a lane is open: a network or a process that hangs
PEER_KNOCK_NS = 500 * MS  # between two attempts to reach a node
PEER_SILENCE_NS = 5 * SECOND  # --cluster-silence: of a link, then it ends
PEER_STALL_NS = 1 * SECOND  # between two looks at the links: ten should have been in it
PEER_SLICE_NS = 20 * MS  # of input of one lane, before everything else has a turn
PEER_LIVE_BYTES_MAX = 64 * MIB  # that wait for a node: it is no use to wait longer
PEER_BULK_BYTES_MAX = 4 * MIB  # that wait on the bulk lane before the next piece

# What a leader does alone.
AUTHORITY_NS = 2 * SECOND  # for so long it acts on what it knows: a failover repeats no more
ISOLATED_DELIVERY_NS = 10 * SECOND  # then windows pause: a short trouble stops no consumer
ISOLATED_PUBLISH_NS = 60 * SECOND  # of the only member: an unclean election may give up as much

# The cluster's metadata.
TRANSACTION_KEYS_MAX = 60  # that one transaction changes: etcd takes 128 operations, and 1.5 MiB
TRANSACTION_COMPARES_MAX = 120  # etcd takes 128
LIST_PAGE_KEYS = 1_000  # of one page of a list: some 500 KB, where gRPC receives 4 MiB
DOCUMENT_BYTES_MAX = 64 * KIB  # of one document: a transaction of 60 must fit into an etcd request
DOCUMENT_TEXT_CHARS_MAX = 1_000  # of a text in one: addresses, versions, reasons
DOCUMENT_SETTINGS_MAX = 200  # of a topic, a channel or a member
NODE_LEASE_NS = 5 * SECOND  # `nodes/<id>`: what a machine's death costs before an election
ABSENCE_GRACE_NS = 2 * SECOND  # beyond it, after an outage: who lives has registered by then
KEYLESS_NS = 10 * SECOND  # a node without its key that keeps its links: busy so long, or cut off
ELECTION_STEP_NS = 100 * MS  # between members in their order: a transaction takes less
FIRST_ELECTION_STEP_NS = 1 * SECOND  # the same of a new partition: its replicas are made first
ELECTION_RETRY_NS = 1 * SECOND  # after an answer that never came
FULL_DISK_NS = 30 * SECOND  # after its disk was full or slow a node leads nothing that others can
CORRUPT_NAMED_MAX = 1_000  # replicas of a node with a corrupt log: with more, its disk is at fault
INTACT_FIRST_NS = 5 * SECOND  # in which an intact member asks for a leadership before a corrupt one
LEADERSHIP_TAKEN_NS = 2 * SECOND  # from an election to the first word of the leader
LEADERSHIP_EACH_NS = 5 * MS  # more, for each leadership of that node, as they begin one by one
REFUSAL_NS = 5 * SECOND  # for so long a refused connection counts as a witness
REFUSAL_PAUSE_NS = 60 * SECOND  # between two elections that rest on refusals, of one incarnation
REPORT_PAUSE_NS = 1 * SECOND  # between two reports of a replica that may have lost something
PREFERRED_LEADERS_NS = 1 * SECOND  # between two looks at leaderships that should move
SUCCESSOR_STEADY_NS = 10 * SECOND  # of its link, before a leadership moves to a preferred node
SUCCESSOR_LISTED_NS = 75 * SECOND  # in lookups, before it leads: NSQ's consumers look each minute
HAND_OVER_NS = 30 * SECOND  # between two attempts: each is a pause of its partition
HAND_OVERS_MAX = 20  # begun at a time by a node: three hundred move within half a minute
REPLICA_TIMEOUT_NS = 5 * SECOND  # --replica-timeout: commits wait no longer for a silent member
RESIGN_DOUBLINGS_MAX = 4  # of the time until a stuck leadership is given up: a minute
SLOW_LOOKS = 100  # the last ones, ten a second
SLOW_LOOKS_MIN = 50  # of them in which an append waited for one member alone: it is slow
REPLICA_RENEWED_NS = 600 * SECOND  # one that stopped is copied again: its disk may fail each time
REPLICA_GREETINGS = 200  # at a time: a node that is busy with its return answers no sooner
REPLICA_GREET_NS = 1 * SECOND  # until one that is silent is greeted again: it may be there by now
PEER_HEARTBEAT_NS = 500 * MS  # between nodes: authority of two seconds outlasts three lost ones
READMISSION_NS = 10 * SECOND  # of steady links before a node that was dropped counts again
READMISSION_DOUBLINGS_MAX = 6  # of that time: eleven minutes
READMISSION_FORGET_NS = 3600 * SECOND  # after the last drop the time begins at its shortest again
VIEW_SLICE_DOCUMENTS = 200  # taken in at a time: some 4 ms, in which no publish is answered
WATCH_PROGRESS_NS = 10 * SECOND  # between two questions how far a watch is: a restored coordinator
COORDINATOR_CALL_NS = 1500 * MS  # of one call: a lease of 5 s has time for two that fail
COORDINATOR_PAGE_NS = 5 * SECOND  # of one page of a list: up to 64 MB, from a busy member
COORDINATOR_MESSAGE_BYTES_MAX = 128 * MIB  # received: a page of the greatest documents
COORDINATOR_ENDPOINTS_MAX = 16  # of one etcd: it has 3, 5 or 7
PUBLISH_WAIT_NS = 30 * SECOND  # a publish waits no longer behind one that cannot be stored
FORWARD_WAIT_NS = 5 * SECOND  # a publish waits no longer for a leader of its partition
FORWARD_LACK_NS = 1 * SECOND  # where too few of its replicas live: a new leader may be on its way
VIEW_LOOK_NS = 10 * MS  # between two looks at metadata that has come, besides the ticks
COORDINATOR_START_NS = 3 * SECOND  # a start waits no longer for it, where the cluster is known
COORDINATOR_RETRY_NS = 1 * SECOND  # between two attempts to reach it
MEMBERS_MAX = 16  # of one partition: each commit waits for all of them
