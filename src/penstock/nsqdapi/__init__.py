"""nsqd's HTTP API as a caller sees it. `calls` has no I/O: what to send, and what an answer means.
`blocking` sends over a socket of its own, for tools and Spark's workers; `aio` sends through
`net.fetch`, for programs with an event loop. Both are thin: how often something is tried, and in
which words a failure is shown, is their callers' business.
"""
