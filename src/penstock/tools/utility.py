"""The common parts of the NSQ utilities: flags, start, and end.

The flags are Go's, as with the daemons. Exit codes are the utilities' own: 0 after --help,
--version, SIGINT and SIGTERM and at a wanted end, 1 for everything that is wrong, the command
line included.

`--consumer-opt` and `--producer-opt` take options by the names that NSQ's own client library uses.
Each is `name,value`, or a bare name for `true`. Durations are Go's, a bare number is milliseconds.
A name that means nothing here, but does in that library, is accepted; any other is an error.
"""

import asyncio
import contextlib
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import fields
from typing import Any

from penstock import __version__, limits
from penstock.client import Consumer, ConsumerOptions, Handler, ProducerOptions
from penstock.command import logs
from penstock.command.flags import LOG_LEVELS, Flag, HelpWanted, Kind, UsageError, resolve, usage
from penstock.command.program import version_line
from penstock.command.run import run
from penstock.durations import parse_duration
from penstock.errors import ConfigError, PenstockError
from penstock.net.fetch import Fetcher
from penstock.net.tls import TlsFiles
from penstock.tools.output import WrongUse
from penstock.wire.names import is_valid_name

# Their names, and ours. A field of ours says how its value is read.
_KNOWN = {
    **{name: name for name in (
        "client_id", "hostname", "user_agent", "snappy", "deflate", "deflate_level", "auth_secret",
        "topology_region", "topology_zone", "max_in_flight", "max_attempts", "sample_rate",
    )},
    "heartbeat_interval": "heartbeat_s", "dial_timeout": "connect_timeout_s",
    "lookupd_poll_interval": "lookup_interval_s", "lookupd_poll_jitter": "lookup_jitter",
    "lookupd_poll_timeout": "lookup_timeout_s", "msg_timeout": "message_timeout_s",
    "output_buffer_size": "output_buffer_bytes",
    "output_buffer_timeout": "output_buffer_timeout_s", "default_requeue_delay": "requeue_delay_s",
    "max_requeue_delay": "requeue_delay_max_s", "backoff_multiplier": "backoff_s",
    "max_backoff_duration": "backoff_max_s", "low_rdy_idle_timeout": "low_rdy_idle_s",
    "low_rdy_timeout": "low_rdy_hold_s",
}  # fmt: skip
_TLS = ("tls_v1", "tls_root_ca_file", "tls_cert", "tls_key", "tls_insecure_skip_verify")
_WITHOUT_MEANING = (  # TLS 1.2 is the floor
    "read_timeout", "write_timeout", "local_addr", "rdy_redistribute_interval", "backoff_strategy",
    "tls_min_version", "lookupd_authorization",
)  # fmt: skip
_KINDS: dict[str, Any] = {one.name: type(one.default) for one in fields(ConsumerOptions)}
_OF_PRODUCERS = {one.name for one in fields(ProducerOptions)}
_RULES = {int: "must be a whole number", float: "must be a number"}


def consumer_changes(given: Sequence[str], flag: str = "consumer-opt") -> dict[str, Any]:
    """Keywords for a Consumer. Raises ConfigError."""
    changes: dict[str, Any] = {}
    tls: dict[str, str] = {}
    for text in given:
        name, comma, value = text.partition(",")
        name = name.strip().replace("-", "_")
        value = value if comma else "true"
        if name in _TLS:
            tls[name] = value
        elif name in _KNOWN:
            try:
                changes[_KNOWN[name]] = _read(_KNOWN[name], value)
            except ValueError as error:
                shown = name if name == "auth_secret" else text
                raise ConfigError(flag, shown, str(error)) from error
        elif name not in _WITHOUT_MEANING:
            names = ", ".join(sorted((*_KNOWN, *_TLS, *_WITHOUT_MEANING)))
            raise ConfigError(flag, name, f"is no option; there are {names}")
    return changes | ({"tls": _context(tls, flag)} if tls else {})


def producer_changes(given: Sequence[str], flag: str = "producer-opt") -> dict[str, Any]:
    """Keywords for a Producer; options that only a consumer has are accepted and left out."""
    changes = consumer_changes(given, flag)
    return {name: changes[name] for name in changes if name in _OF_PRODUCERS}


def _read(field: str, text: str) -> Any:
    """Raises ValueError."""
    kind = _KINDS[field]
    if field.endswith("_s"):
        is_ms = text.lstrip("-").isdecimal()
        return int(text) / 1000 if is_ms else parse_duration(text) / limits.SECOND
    if kind is bool:
        return _boolean(text)
    try:
        return kind(text)
    except ValueError:
        raise ValueError(_RULES[kind]) from None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "1", "t", "false", "0", "f"):
        raise ValueError("must be true or false")
    return text.lower() in ("true", "1", "t")


def _context(tls: dict[str, str], flag: str) -> ssl.SSLContext | None:
    """None when the options disable TLS."""
    root, cert, key = (tls.get(name, "") for name in ("tls_root_ca_file", "tls_cert", "tls_key"))
    try:
        if not _boolean(tls.get("tls_v1", "false")):
            return None
        skips = _boolean(tls.get("tls_insecure_skip_verify", "false"))
        return TlsFiles(root, cert, key, skips).context()
    except (OSError, ValueError) as error:
        shown = ", ".join(f"{name},{value}" for name, value in sorted(tls.items()))
        raise ConfigError(flag, shown, f"cannot be used: {error}") from error


EXIT_FAILED = 1

VERSION = Flag("version", Kind.BOOL, False, "print version string")
LOG_LEVEL = Flag("log-level", Kind.STRING, "info", "set log verbosity", choices=LOG_LEVELS)
TOPIC = Flag("topic", Kind.STRING, "", "NSQ topic")
TOPICS = Flag("topic", Kind.STRINGS, (), "NSQ topic (may be repeated)")
IN_FLIGHT = Flag("max-in-flight", Kind.INT, 200, "max number of messages to allow in flight",
                 bounds=(1, None))  # fmt: skip
NSQD_TCP = Flag("nsqd-tcp-address", Kind.STRINGS, (), "nsqd TCP address (may be repeated)")
LOOKUPD_HTTP = Flag(
    "lookupd-http-address", Kind.STRINGS, (), "nsqlookupd HTTP address (may be repeated)"
)
CONSUMER_OPT = Flag("consumer-opt", Kind.REPEATED, (), "option of the consumer as name,value; a "
                    "bare name is true (may be repeated)")  # fmt: skip
PRODUCER_OPT = Flag("producer-opt", Kind.REPEATED, (), "option of the producer as name,value; a "
                    "bare name is true (may be repeated)")  # fmt: skip
CONNECT_TIMEOUT = Flag("http-client-connect-timeout", Kind.DURATION, 2 * limits.SECOND,
                       "timeout for HTTP connect", bounds=(1, None))  # fmt: skip
REQUEST_TIMEOUT = Flag("http-client-request-timeout", Kind.DURATION, 5 * limits.SECOND,
                       "timeout for HTTP request", bounds=(1, None))  # fmt: skip

COMMON = (VERSION, LOG_LEVEL)
SOURCE = (NSQD_TCP, LOOKUPD_HTTP, CONSUMER_OPT, CONNECT_TIMEOUT)  # where a consumer is

Values = dict[str, Any]


class Stop(asyncio.Event):
    """A requested end: by a signal, or because of a failure, the first of which is raised."""

    failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.set()

    def ask(self, number: int) -> None:
        """By a signal; the next one does not wait for what is under way."""
        if self.is_set():
            os._exit(128 + number)
        self.set()


Main = Callable[[Values, Stop], Coroutine[Any, Any, None]]
Live = Callable[[Stop], Coroutine[Any, Any, int | None]]  # the exit code, if it is not 0


def user_agent(program: str) -> str:
    return f"{program}/{__version__} penstock/{__version__}"


def entry(
    program: str, flags: Sequence[Flag], check: Callable[[Values], None], main: Main
) -> Callable[..., int]:
    """The `main` of a console script. `check` raises WrongUse; `main` gets the values of the flags
    by attribute name, and an event that a signal sets."""

    def start(argv: Sequence[str] | None = None) -> int:
        try:  # they have never read the environment
            values = resolve(flags, sys.argv[1:] if argv is None else argv, {})
            if values["version"]:
                print(version_line(program))
                return 0
            check(values)
            prefix = values.get("log_prefix", f"[{program}] ")
            with logs.shown(values.get("log_level", "info"), prefix, "text"):
                return run(lambda: until_signal(lambda stop: main(values, stop)))
        except HelpWanted:
            print(usage(program, flags), end="")
            return 0
        except BrokenPipeError:
            raise  # nobody reads the output any more
        except UsageError as error:
            print(f"{error}\n{usage(program, flags)}", end="", file=sys.stderr)
        except (PenstockError, OSError) as error:
            print(f"{program}: {error}", file=sys.stderr)
        return EXIT_FAILED

    return start


async def until_signal(live: Live, *others: int) -> int:
    """`live` gets an event that SIGINT, SIGTERM and these set; a second one of those alone ends
    the process."""
    stop, loop = Stop(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.ask, number)
    for other in others:
        loop.add_signal_handler(other, stop.set)
    code = await live(stop)
    if stop.failure is not None:
        raise stop.failure
    return code or 0


async def pause(stop: asyncio.Event, seconds: float) -> bool:
    """Wait so long, or until the stop. True: go on."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return True
    return False


@contextlib.asynccontextmanager
async def fetching(values: Values, **more: Any) -> AsyncIterator[Fetcher]:
    fetcher = Fetcher(
        values["http_client_connect_timeout_ns"], values["http_client_request_timeout_ns"], **more
    )
    try:
        yield fetcher
    finally:
        await fetcher.close()


async def consume_until(
    stop: asyncio.Event, work: Sequence[tuple[Consumer, Handler]], concurrency: int = 1
) -> None:
    """Run each handler on its consumer until the stop; messages in hand are settled first."""
    async with contextlib.AsyncExitStack() as stack:
        for consumer, _ in work:
            await stack.enter_async_context(consumer)
        async with asyncio.TaskGroup() as group:
            for consumer, handler in work:
                group.create_task(consumer.run(handler, concurrency=concurrency))
            await stop.wait()
            for consumer, _ in work:
                consumer.stop()


def need_names(kind: str, *names: str) -> None:
    if not names:
        raise WrongUse(f"--{kind} required")
    for name in names:
        if not is_valid_name(name):
            raise WrongUse(f"--{kind} {name!r}: a valid {kind} name is required")


def need_source(values: Values, tcp: str = "nsqd_tcp_address") -> None:
    """Messages come from named nsqds, or from those that nsqlookupds list."""
    given, lookupds = values[tcp], values["lookupd_http_address"]
    name = tcp.replace("_", "-")
    if not given and not lookupds:
        raise WrongUse(f"--{name} or --lookupd-http-address required")
    if given and lookupds:
        raise WrongUse(f"use --{name} or --lookupd-http-address not both")


def check_consumers(program: str, values: Values, **own: Any) -> None:
    """For a utility that consumes; `own` are options of its consumers."""
    need_names("channel", values["channel"])
    need_source(values)
    values["changes"] = {
        **own, "user_agent": user_agent(program), "max_in_flight": values["max_in_flight"],
        **consumer_changes(values["consumer_opt"]),
    }  # fmt: skip


def check_producers(program: str, values: Values) -> None:
    """For a utility that publishes."""
    values["producer_changes"] = {
        "user_agent": user_agent(program), **producer_changes(values["producer_opt"]),
    }  # fmt: skip


def consumer(topic: str, values: Values) -> Consumer:
    return Consumer(topic, values["channel"], values["nsqd_tcp_address"],
                    lookupds=values["lookupd_http_address"], **values["changes"])  # fmt: skip
