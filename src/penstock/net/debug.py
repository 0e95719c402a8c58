"""`/debug`: a look inside the running process, under the names of Go's profiler.

| path | here |
|---|---|
| `/debug/pprof/` | what there is |
| `/debug/pprof/cmdline` | the command line, its words separated by NUL |
| `/debug/pprof/profile?seconds=30` | where the loop's thread spends its time, by samples |
| `/debug/pprof/heap` | objects by type; by line of code under `python -X tracemalloc` |
| `/debug/pprof/goroutine` | asyncio tasks, and the stack of every thread |
| `/debug/pprof/threadcreate` | the threads |
| `/debug/pprof/block` | nothing: Python has no such profile |
| `/debug/setblockrate`, `/debug/freememory` | the first does nothing, the second collects garbage |

Everything is text for people. What takes long runs in a thread: the daemon serves on meanwhile. One
such report is made at a time.
"""

import asyncio
import gc
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from types import FrameType

from penstock import limits
from penstock.command.run import stacks_report, tasks_report
from penstock.net.api import (
    EMPTY,
    GET,
    GET_POST,
    NSQ_HEADER,
    POST,
    PUT,
    TEXT,
    Answer,
    HttpError,
    Parameters,
    Route,
    at_once,
    text_response,
)
from penstock.net.exchange import Request, Response
from penstock.net.fetch import without_password
from penstock.net.query import parse_query

_INDEX = """/debug/pprof/

cmdline       the command line, NUL-separated
profile       where the time goes; ?seconds=30
heap          objects by type
goroutine     asyncio tasks and the stacks of threads
threadcreate  threads
block         not in this runtime
"""
_STACK_DEPTH_MAX = 40
_ROWS_MAX = 60


def table() -> dict[str, Route]:
    debug = _Debug()
    return {
        "/debug/pprof": _text(lambda: _INDEX),
        "/debug/pprof/": _text(lambda: _INDEX),
        "/debug/pprof/cmdline": _text(lambda: without_password("\0".join(sys.orig_argv))),
        "/debug/pprof/goroutine": _text(lambda: tasks_report() + stacks_report()),
        "/debug/pprof/threadcreate": _text(threads_report),
        "/debug/pprof/block": _text(lambda: "Python has no profile of blocking.\n"),
        "/debug/pprof/profile": Route(GET, debug.profile),
        "/debug/pprof/heap": Route(GET, debug.heap),
        "/debug/pprof/symbol": _text(lambda: "num_symbols: 0\n", GET_POST),
        "/debug/setblockrate": Route(PUT, at_once(_set_block_rate)),
        "/debug/freememory": Route(POST, debug.free_memory),
    }


def _text(report: Callable[[], str], methods: tuple[str, ...] = GET) -> Route:
    return Route(methods, at_once(lambda _: text_response(report())))


def _set_block_rate(parameters: Parameters) -> Response:
    """Checked as nsqd checks it; there is nothing to set."""
    rate = parameters.get("rate", "")
    digits = rate[1:] if rate[:1] in ("+", "-") else rate
    if not (digits.isascii() and digits.isdigit()):
        return Response(400, f"invalid block rate : {rate!r}".encode(), TEXT, NSQ_HEADER)
    return EMPTY


class _Debug:
    def __init__(self) -> None:
        self._busy = False

    def profile(self, request: Request, answer: Answer) -> None:
        text = parse_query(request.query).get("seconds", "30")
        if not (text.isascii() and text.isdigit()) or not 1 <= len(text) <= 4:
            raise HttpError(400, "INVALID_SECONDS")
        seconds = min(max(int(text), 1), limits.PROFILE_SECONDS_MAX)
        loop_thread = threading.get_ident()
        self._in_thread(lambda: sampled(loop_thread, seconds), answer)

    def heap(self, request: Request, answer: Answer) -> None:
        self._in_thread(heap_report, answer)

    def free_memory(self, request: Request, answer: Answer) -> None:
        gc.collect()
        answer(EMPTY)

    def _in_thread(self, report: Callable[[], str], answer: Answer) -> None:
        if self._busy:
            raise HttpError(503, "PROFILING")
        self._busy = True
        loop = asyncio.get_running_loop()

        def end(response: Response) -> None:
            self._busy = False
            answer(response)

        def work() -> None:
            try:
                response = text_response(report())
            except Exception as error:
                response = Response(500, f"{error}\n".encode(), TEXT, NSQ_HEADER)
            if not loop.is_closed():
                loop.call_soon_threadsafe(end, response)

        threading.Thread(target=work, name="profile", daemon=True).start()


# --- reports ---


def sampled(thread: int, seconds: float) -> str:
    """Look at a thread's stack so many times a second. Compiled code shows as its caller."""
    inner: Counter[str] = Counter()
    stacks: Counter[str] = Counter()
    count = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(limits.PROFILE_EVERY_NS / limits.SECOND)
        frame = sys._current_frames().get(thread)
        if frame is None:
            break
        stack = _stack(frame)
        inner[stack[-1]] += 1
        stacks[";".join(stack)] += 1
        count += 1
    lines = [f"{count} samples in {seconds} s", "", "innermost:"]
    lines += [
        f"{n:6d} {100 * n / count:5.1f}% {function}" for function, n in inner.most_common(_ROWS_MAX)
    ]
    lines += ["", "stacks (as flame graphs take them):"]
    lines += [f"{stack} {n}" for stack, n in stacks.most_common()]
    return "\n".join(lines) + "\n"


def _stack(frame: FrameType | None) -> list[str]:
    """From the outermost call to the innermost."""
    stack: list[str] = []
    while frame is not None and len(stack) < _STACK_DEPTH_MAX:
        code = frame.f_code
        module = frame.f_globals.get("__name__", "?")
        stack.append(f"{module}.{code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return stack[::-1]


def heap_report() -> str:
    lines = [f"allocated blocks: {sys.getallocatedblocks()}"]
    lines += [f"generation {n}: {row}" for n, row in enumerate(gc.get_stats())]
    if tracemalloc.is_tracing():
        top = tracemalloc.take_snapshot().statistics("lineno")[:_ROWS_MAX]
        lines += ["", "by line of code:", *map(str, top)]
    kinds = Counter(map(type, gc.get_objects()))
    lines += ["", "objects by type (those that the collector knows and that came after the start):"]
    lines += [
        f"{count:9d} {kind.__module__}.{kind.__qualname__}"
        for kind, count in kinds.most_common(_ROWS_MAX)
    ]
    return "\n".join(lines) + "\n"


def threads_report() -> str:
    threads = threading.enumerate()
    lines = [f"{len(threads)} threads"]
    lines += [f"{thread.name} daemon={thread.daemon}" for thread in threads]
    return "\n".join(lines) + "\n"
