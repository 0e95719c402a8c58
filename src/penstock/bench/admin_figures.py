"""nsqadmin measured, in a real browser: `penstock figures admin`.

A lookupd, an nsqd with many topics, channels and consumers, an nsqadmin, and Chromium through
Playwright. What is asked for:

- how long a page takes from the click until its first rows and totals are there. The browser's own
  clock counts, and its cache is empty;
- how long a fact (a publish, a pause, both told to nsqd, not to nsqadmin) takes to the screen;
- what being asked costs the nsqd, idle with nsqadmin less idle without;
- nsqadmin's memory and CPU while topics come and go, everything moves and browsers go from page to
  page; then with five browsers and five times as many topics.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.bench.daemon import Contender, Daemon, penstock
from penstock.bench.dialect import HOST, DaemonFailed
from penstock.bench.v2 import V2
from penstock.command.extras import lacks_extra

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

READY_S_MAX = 60.0
_MEMORY_FREE_BYTES = 4 << 30
WAIT_MS = 60_000
MESSAGE = b"x" * 200
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update"]  # fmt: skip

# True, and when in the page's own time, once rows and totals are drawn.
_TOPICS_DRAWN = """topics => {
  const rows = document.querySelectorAll('#content .ag-center-cols-container .ag-row').length;
  const total = document.querySelector('#content .heading .soft');
  return rows && total && total.textContent === topics && performance.now(); }"""
_OVERVIEW_DRAWN = """topics => {
  const tiles = [...document.querySelectorAll('#content .tile')];
  return tiles.some(one => one.innerText.startsWith('Topics') && one.innerText.includes(topics))
    && performance.now(); }"""
_ROW_SAYS = """([topic, text]) => {
  const row = [...document.querySelectorAll('#content .ag-row')]
    .find(one => one.querySelector('[col-id="name"]')?.textContent === topic);
  return row?.querySelector('[col-id="messages"]')?.textContent === text; }"""
_IS_PAUSED = """wanted => [...document.querySelectorAll('#content .heading .badge')]
  .some(one => one.textContent === 'paused' && one.offsetParent !== null) === wanted"""


class Plan(NamedTuple):
    """How much of it."""

    topics: int
    channels: int  # of each tenth topic
    consumers: int
    idle_s: float  # how long CPU is counted
    loads: int  # of a page
    facts: int
    churn_s: float
    browsers: int
    many_topics: int


FULL = Plan(1000, 2, 50, 30.0, 5, 10, 120.0, 5, 5000)
QUICK = Plan(30, 1, 2, 0.5, 1, 1, 0.5, 2, 60)


class Found(NamedTuple):
    """As `figures.Figure`, which is made of it."""

    name: str
    value: float
    unit: str
    target: str


class Web(Daemon):
    """A daemon that is ready when it answers /ping."""

    def greet(self) -> None:
        call(self.ports.http, "GET", "/ping")


def in_memory() -> str | None:
    """Where files are only in memory, if it has room. A new topic is seven syncs, and none of the
    figures is about the disk."""
    place = "/dev/shm"
    is_roomy = os.path.isdir(place) and shutil.disk_usage(place).free > _MEMORY_FREE_BYTES
    return place if is_roomy else None


def call(port: int, method: str, path: str, body: bytes = b"") -> bytes:
    connection = http.client.HTTPConnection(HOST, port, timeout=READY_S_MAX)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        data = answer.read()
    except http.client.HTTPException as error:
        raise DaemonFailed(f"{path}: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise DaemonFailed(f"{method} {path} was answered {answer.status}")
    return data


class World:
    """The daemons of one measurement."""

    def __init__(self, stack: ExitStack, plan: Plan, topics: int) -> None:
        place = in_memory()
        directory = tempfile.TemporaryDirectory("-admin-figures", dir=place)
        self.path = Path(stack.enter_context(directory))
        self.plan = plan
        self._stack = stack
        lookupd = self._web("nsqlookupd", "--tcp-address={tcp}", "--http-address={http}")
        self.lookupd_http = lookupd.ports.http
        base = penstock("os")
        flags = (f"--lookupd-tcp-address={HOST}:{lookupd.ports.tcp}",
                 f"--broadcast-address={HOST}")  # fmt: skip
        contender = Contender(base.name, (*base.command, *flags), base.dialect, base.keeps_all)
        self.nsqd = stack.enter_context(Daemon(contender, self.path / "nsqd"))
        self.names = [f"topic_{number:05d}" for number in range(topics)]
        self._fill()

    def _web(self, program: str, *flags: str) -> Web:
        command = (sys.executable, "-m", f"penstock.{program}.main", *flags, "--log-level=warn")
        contender = Contender(program, command, V2, keeps_all=False)
        return self._stack.enter_context(Web(contender, self.path / program))

    def admin(self) -> Web:
        """Ready when it has seen every topic."""
        asked = f"-lookupd-http-address={HOST}:{self.lookupd_http}"
        admin = self._web("nsqadmin", "-http-address={http}", "-data-path={data}", asked)
        deadline_s = time.monotonic() + READY_S_MAX
        while len(json.loads(call(admin.ports.http, "GET", "/api/topics"))["topics"]) < len(
            self.names
        ):
            if time.monotonic() > deadline_s:
                raise DaemonFailed("nsqlookupd does not know every topic")
            time.sleep(0.1)
        return admin

    def _fill(self) -> None:
        self.publish(self.names)
        connection = http.client.HTTPConnection(HOST, self.nsqd.ports.http)
        for name in self.names[::10]:
            for number in range(self.plan.channels):
                path = f"/channel/create?topic={name}&channel=channel_{number}"
                connection.request("POST", path)
                connection.getresponse().read()
        connection.close()
        identify = json.dumps({"heartbeat_interval": -1, "client_id": "figures"}).encode()
        for number in range(self.plan.consumers):
            name = self.names[number * 10 % len(self.names)]
            sock = self._stack.enter_context(V2(self.nsqd.ports).publisher(0))
            head = b"IDENTIFY\n" + len(identify).to_bytes(4, "big") + identify
            sock.sendall(head + f"SUB {name} channel_0\n".encode())

    def publish(self, names: list[str]) -> None:
        connection = http.client.HTTPConnection(HOST, self.nsqd.ports.http)
        for name in names:
            connection.request("POST", f"/pub?topic={name}", MESSAGE)
            connection.getresponse().read()
        connection.close()


def core_share(daemon: Daemon, seconds: float) -> float:
    """Percent of a core, over so long."""
    before, began_s = daemon.cpu().ran_ns, time.monotonic()
    time.sleep(seconds)
    return (daemon.cpu().ran_ns - before) / 1e7 / (time.monotonic() - began_s)


@contextmanager
def chromium() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise DaemonFailed(lacks_extra("this figure", "dev", error)) from error
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not path:
        raise DaemonFailed("this figure needs Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def opened(browser: Browser) -> Page:
    """With nothing in its cache."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.set_default_timeout(WAIT_MS)
    return page


def wait_for(page: Page, expression: str, argument: Any) -> Any:
    """The first true value, looked for with every frame that is drawn."""
    return page.wait_for_function(expression, arg=argument, polling="raf").json_value()


# --- the figures ---


def measure(plan: Plan) -> Iterator[Found]:
    with ExitStack() as stack:
        world = World(stack, plan, plan.topics)
        alone = core_share(world.nsqd, plan.idle_s)
        admin = world.admin()
        time.sleep(min(3.0, plan.idle_s))  # its first look and its imports are no polling
        asked, own = core_share(world.nsqd, plan.idle_s), core_share(admin, plan.idle_s)
        name = f"nsqd asked by nsqadmin, {plan.topics:,} topics"
        yield Found(name, max(asked - alone, 0.001), "% of a core", "< 2")
        yield Found("nsqadmin itself meanwhile, nobody looking", own, "% of a core", "-")
        with chromium() as browser:
            yield from _pages(browser, admin, plan)
            yield from _facts(browser, world, admin)
            yield from _churn(browser, world, admin, 1)
    with ExitStack() as stack:
        world = World(stack, plan, plan.many_topics)
        admin = world.admin()
        with chromium() as browser:
            yield from _churn(browser, world, admin, plan.browsers)


def _pages(browser: Browser, admin: Web, plan: Plan) -> Iterator[Found]:
    total = f"{plan.topics:,}"
    for path, drawn in (("/topics", _TOPICS_DRAWN), ("/", _OVERVIEW_DRAWN)):
        times_ms = []
        for _ in range(plan.loads):
            page = opened(browser)
            page.goto(f"http://{HOST}:{admin.ports.http}{path}", wait_until="commit")
            times_ms.append(float(wait_for(page, drawn, total)))
            page.context.close()
        name = f"{path} with {plan.topics:,} topics, rows and totals drawn"
        yield Found(name, median(times_ms) / 1000, "s", "<= 1.0")


def _facts(browser: Browser, world: World, admin: Web) -> Iterator[Found]:
    topic, port = world.names[0], world.nsqd.ports.http
    page = opened(browser)
    page.goto(f"http://{HOST}:{admin.ports.http}/topics")
    wait_for(page, _ROW_SAYS, [topic, "1"])
    seconds = []
    for number in range(world.plan.facts):
        time.sleep(0.37 * number % 1)  # anywhere between two looks
        began_s = time.perf_counter()
        call(port, "POST", f"/pub?topic={topic}", MESSAGE)
        wait_for(page, _ROW_SAYS, [topic, str(number + 2)])
        seconds.append(time.perf_counter() - began_s)
    yield Found("a publish is on the screen, longest", max(seconds), "s", "<= 2")
    page.goto(f"http://{HOST}:{admin.ports.http}/topics/{topic}")
    seconds = []
    for number in range(world.plan.facts):
        is_pause = number % 2 == 0
        began_s = time.perf_counter()
        call(port, "POST", f"/topic/{'pause' if is_pause else 'unpause'}?topic={topic}")
        wait_for(page, _IS_PAUSED, is_pause)
        seconds.append(time.perf_counter() - began_s)
    yield Found("a pause is on the screen, longest", max(seconds), "s", "<= 2")
    page.context.close()


def _churn(browser: Browser, world: World, admin: Web, browsers: int) -> Iterator[Found]:
    """Everything moves: messages in every topic, topics that come and go, browsers on their way."""
    pages = [opened(browser) for _ in range(browsers)]
    topic = world.names[0]
    paths = ["/", "/topics", f"/topics/{topic}", f"/topics/{topic}/channel_0", "/nodes", "/counter"]
    end_s = time.monotonic() + world.plan.churn_s
    turn, cpu_ns, began_s = 0, admin.cpu().ran_ns, time.monotonic()
    while turn == 0 or time.monotonic() < end_s:
        for number, page in enumerate(pages):
            path = "/topics" if turn % 2 else paths[(turn + number) % len(paths)]
            page.goto(f"http://{HOST}:{admin.ports.http}{path}", wait_until="commit")
        world.publish(world.names[turn % 3 :: 3])
        brief = f"brief_{turn}"
        world.publish([brief])
        call(world.nsqd.ports.http, "POST", f"/topic/delete?topic={brief}")
        turn += 1
    share = (admin.cpu().ran_ns - cpu_ns) / 1e7 / (time.monotonic() - began_s)
    for page in pages:
        page.context.close()
    who = f"{browsers} browser{'s' if browsers > 1 else ''}, {len(world.names):,} topics that move"
    yield Found(f"nsqadmin's memory, {who}", admin.memory().rss_kb / 1000, "MB", "<= 200")
    yield Found(f"nsqadmin's CPU, {who}", share, "% of a core", "-")
