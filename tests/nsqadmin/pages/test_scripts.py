"""Text of others stays text: names, headers, bodies and addresses that would be scripts."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from playwright.sync_api import Page, expect

from e2e.daemon import Daemon
from e2e.lookupd import Lookupd
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.pages import layout
from penstock.nsqadmin.store import Store

from ..conftest import Installation
from ..running import Admin

MARK = "window.pwned = 1"
TAG = f"<img src=x onerror='{MARK}'>"
PROPS = f'x" innerHTML="<img src=x onerror={MARK}>" :onclick="{MARK}" y="'
ESCAPED = "'\"></script><script>window.pwned = 1</script>${window.pwned = 1}{{window.pwned = 1}}"
EVIL = (TAG, PROPS, ESCAPED)
TOPIC = "hostile_texts"


@pytest.fixture(scope="module", autouse=True)
def texts(installation: Installation) -> Iterator[None]:
    """Messages, headers, keys and a client that are scripts."""
    bodies = [body.encode() for one in EVIL for body in (one, json.dumps({one: one}))]
    with installation.topic(TOPIC, "c", bodies=bodies) as nsqd, nsqd.client() as client:
        client.identify(client_id=TAG, hostname=PROPS, user_agent=ESCAPED)
        client.sub(TOPIC, "c")
        client.rdy(2)
        client.messages(2)
        yield


def is_clean(page: Page) -> None:
    assert page.evaluate("window.pwned") is None
    assert page.locator("img[onerror]").count() == 0


def test_no_page_gives_text_as_a_list_of_properties() -> None:
    """`element.props(text)` reads scripts out of a text: what is not fixed is set by its key."""
    pages = list(Path(layout.__file__).parent.glob("*.py"))
    assert len(pages) > 10
    for path in pages:
        source = path.read_text()
        assert not re.search(
            r"\.(props|classes|style)\(\s*f?r?['\"][^'\"]*['\"]\s*(%|\+)", source
        ), path
        assert not re.search(r"\.props\(\s*f['\"]", source), path
        for script in re.findall(r"run_javascript\((.*)", source):  # fixed, but for JSON in it
            assert re.match(r'_[A-Z_]+[,)]|f"', script), (path, script)
            for part in re.findall(r"\{([^{}]*)\}", script):
                assert re.fullmatch(r"json\.dumps\(\w+\)|_[A-Z_]+", part), (path, script)
        for inside in re.findall(r"ui\.html\(([^\n]*)", source):
            assert "{" not in inside or "{escape(words)}" in inside, path


@pytest.mark.parametrize("evil", EVIL)
def test_addresses_are_no_scripts(page: Page, installation: Installation, evil: str) -> None:
    base = f"http://127.0.0.1:{installation.admin.http_port}"
    name = quote(evil.replace("/", ""), safe="")  # a slash would lead to another page
    for path in (
        f"/topics/{name}",
        f"/topics/{name}/{name}",
        f"/nodes/{name}",
        f"/messages/{name}?{urlencode({'node': evil, 'at': evil, 'contains': evil})}",
        f"/messages/{TOPIC}?{urlencode({'node': evil, 'at': evil, 'contains': evil})}",
        f"/connections?{urlencode({'topic': evil, 'channel': evil, 'node': evil, 'q': evil})}",
        f"/trace?{urlencode({'id': evil, 'topic': evil})}",
    ):
        answer = page.request.get(base + path)
        if answer.status == 404:  # no topic can have this name
            page.goto("about:blank")  # the scripts of the page before must not run on in this one
            page.set_content(answer.text())
        else:
            page.goto(base + path)
            expect(page.locator("#content")).not_to_be_empty()
        expect(page.locator("h1")).to_be_visible()
        is_clean(page)


def test_texts_of_clients_are_escaped(page: Page, installation: Installation) -> None:
    base = f"http://127.0.0.1:{installation.admin.http_port}"
    page.goto(f"{base}/topics/{TOPIC}/c")
    expect(page.get_by_text(f"{PROPS} (127.0.0.1").first).to_be_visible()
    expect(page.get_by_text(ESCAPED).first).to_be_visible()
    expect(page.get_by_text("held by x").first).to_be_visible()
    is_clean(page)
    page.goto(f"{base}/messages/{TOPIC}?at=oldest")
    for text in EVIL:
        page.get_by_role("gridcell", name=text, exact=True).click()
        expect(page.locator("pre.body")).to_have_text(text)
        is_clean(page)
    page.goto(f"{base}/sql")
    name = '"' + TAG.replace('"', '""') + '"'
    page.get_by_label("Statement").fill(f"SELECT decode(body) AS {name} FROM {TOPIC}")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("gridcell", name=TAG, exact=True)).to_be_visible()
    expect(page.get_by_role("columnheader", name=TAG)).to_be_visible()
    page.get_by_label("Statement").fill(f"SELECT {name}")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("Binder Error")).to_be_visible()
    is_clean(page)
    page.goto(f"{base}/audit")
    expect(page.get_by_text(TAG).first).to_be_visible()
    is_clean(page)


def test_a_name_in_the_log_and_of_a_node_is_no_script(page: Page, tmp_path: Path) -> None:
    store = Store(tmp_path / "admin")
    for text in EVIL:
        store.begin(text, text, text, [(text, text)], text, text)
    store.put_user("<b>x</b>", "00:00", Role.VIEW)
    store.close()
    with ExitStack() as stack:
        lookupd = stack.enter_context(Lookupd(tmp_path / "lookupd"))  # others remember no such node
        flags = f"-lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}"
        stack.enter_context(Daemon(tmp_path / "nsqd", flags, f"-broadcast-address={TAG}"))
        asked = f"-lookupd-http-address=127.0.0.1:{lookupd.http_port}"
        admin = stack.enter_context(Admin(tmp_path / "admin", asked, "-login=off"))
        base = f"http://127.0.0.1:{admin.http_port}"
        page.goto(f"{base}/nodes")
        link = page.get_by_role("link", name="<img")
        expect(link).to_be_visible()
        link.click()
        expect(page.locator("h1")).to_contain_text("<img")
        for path in ("/", "/audit", "/users"):
            page.goto(base + path)
            expect(page.get_by_text("<").first).to_be_visible()
            is_clean(page)
        page.goto("about:blank")
