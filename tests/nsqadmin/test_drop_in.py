"""Our nsqadmin in front of daemons that are the official ones in everything they say: each sentence
that scripts, dashboards and proxies rely on."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from e2e.lookupd import eventually
from penstock.nsqadmin.api import node_rows
from penstock.nsqadmin.upstream import NsqdAddress

from .elsewhere import Elsewhere
from .official import Calls, Lookupd, Nsqd, channel, client
from .running import Admin

LATENCY = {"count": 4, "percentiles": [{"quantile": 0.99, "value": 3_000_000},
                                       {"quantile": 0.5, "value": 1_000_000}]}  # fmt: skip
TOPIC_KEYS = ["node", "hostname", "topic_name", "depth", "memory_depth", "backend_depth",
              "message_count", "delivery_msg_count", "nodes", "channels", "paused",
              "e2e_processing_latency"]  # fmt: skip
CHANNEL_KEYS = ["node", "hostname", "topic_name", "channel_name", "depth", "memory_depth",
                "backend_depth", "in_flight_count", "deferred_count", "requeue_count",
                "timeout_count", "message_count", "delivery_msg_count", "client_count", "nodes",
                "clients", "paused", "e2e_processing_latency"]  # fmt: skip
CLIENT_KEYS = {"node", "remote_address", "version", "client_id", "hostname", "user_agent",
               "connect_ts", "connected", "in_flight_count", "ready_count", "finish_count",
               "requeue_count", "message_count", "sample_rate", "deflate", "snappy", "authed",
               "auth_identity", "auth_identity_url", "tls", "tls_cipher_suite", "tls_version",
               "tls_negotiated_protocol", "tls_negotiated_protocol_is_mutual"}  # fmt: skip
UNKNOWN = 'got response 404 Not Found "{\\"message\\":\\"TOPIC_NOT_FOUND\\"}"'
BROKEN = 'got response 500 Internal Server Error "{\\"message\\":\\"INTERNAL_ERROR\\"}"'


class Site(NamedTuple):
    calls: Calls
    nsqds: list[Nsqd]
    lookupds: list[Lookupd]
    admin: Admin

    def posts_of(self, method: str, path: str, document: Any = None) -> list[tuple[str, str]]:
        """What an action makes of it, each node's address as its name."""
        self.calls.made.clear()
        assert self.admin.json(method, path, document) == {"message": ""}
        found = []
        for who, at in self.calls.posts():
            for nsqd in self.nsqds:
                at = at.replace(nsqd.address.replace(":", "%3A"), nsqd.name)
            found.append((who, at))
        return found

    def error(self, method: str, path: str, document: Any = None) -> tuple[int, str]:
        status, body, _ = self.admin.request(method, path, document)
        return status, json.loads(body)["message"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    calls = Calls()
    with ExitStack() as stack:
        nsqds = [stack.enter_context(Nsqd(f"nsqd{one}", calls)) for one in range(2)]
        lookupds = [stack.enter_context(Lookupd(f"lookupd{one}", calls, nsqds)) for one in range(2)]
        flags = [f"-lookupd-http-address={one.address}" for one in lookupds]
        path = tmp_path_factory.mktemp("drop_in") / "admin"
        yield Site(calls, nsqds, lookupds, stack.enter_context(Admin(path, *flags)))


@pytest.fixture
def site(running: Site) -> Site:
    """`orders` on both, `lonely` on the first, `idle` known to lookupds only."""
    for daemon in (*running.nsqds, *running.lookupds):
        daemon.fails, daemon.is_enveloped = 0, False
    for nsqd in running.nsqds:
        nsqd.version = "1.3.0"
        nsqd.topics.clear()
        billing = channel(
            depth=5, backend_depth=2, in_flight_count=1, deferred_count=3, message_count=10,
            requeue_count=4, timeout_count=6, clients=[client()], e2e_processing_latency=LATENCY,
        )  # fmt: skip
        nsqd.put("orders", {"billing": billing, "mail": channel()}, depth=7, backend_depth=1,
                 message_count=11)  # fmt: skip
    running.nsqds[0].put("lonely")
    for lookupd in running.lookupds:
        lookupd.made = {"idle": {"waiting"}}
        lookupd.tombstones.clear()
    return running


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/topics/", "/topics"),
        ("/Topics", "/topics"),
        ("/topics/orders/", "/topics/orders"),
        ("/topics/Orders/Billing/", "/topics/Orders/Billing"),
        ("/NODES/127.0.0.1:4151", "/nodes/127.0.0.1%3A4151"),
        ("/PING", "/ping"),
        ("/API/topics/?inactive=true", "/api/topics?inactive=true"),
        ("/Config/log_level", "/config/log_level"),
        ("//topics/", None),
        ("//evil.example/", None),
        ("/topics/a//", None),
    ],
)
def test_nearly_right_paths_lead_to_the_right_ones(
    site: Site, path: str, target: str | None
) -> None:
    status, _, headers = site.admin.request("GET", path)
    if target is None:
        assert not headers.get("location", "/").startswith("//")
        assert status in (307, 404)
    else:
        assert (status, headers["location"]) == (301, target)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        *[(path, "GET, OPTIONS") for path in
          ("/ping", "/topics", "/topics/orders", "/topics/orders/billing", "/nodes", "/nodes/n",
           "/counter", "/lookup", "/api/nodes", "/api/counter", "/api/graphite", "/static/x.css")],
        ("/api/topics", "GET, OPTIONS, POST"),
        ("/api/topics/orders", "DELETE, GET, OPTIONS, POST"),
        ("/api/topics/orders/billing", "DELETE, GET, OPTIONS, POST"),
        ("/api/nodes/n", "DELETE, GET, OPTIONS"),
        ("/config/log_level", "GET, OPTIONS, PUT"),
    ],
)  # fmt: skip
def test_methods_of_a_path(site: Site, path: str, allowed: str) -> None:
    status, body, headers = site.admin.request("OPTIONS", path)
    assert (status, body, headers["allow"]) == (200, b"", allowed)
    for method in {"HEAD", "PATCH", "PUT", "POST"} - set(allowed.split(", ")):
        status, body, headers = site.admin.request(method, path)
        assert (status, headers["allow"]) == (405, allowed), method
        if method != "HEAD":
            assert json.loads(body) == {"message": "METHOD_NOT_ALLOWED"}


@pytest.mark.parametrize("path", ["/static/main.js", "/fonts/x.woff"])
def test_files_of_the_official_pages_are_not_there(site: Site, path: str) -> None:
    status, body, headers = site.admin.request("GET", path)
    assert (status, body) == (404, b"NOT_FOUND")
    assert headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    "path", ["/topics/a%20b", "/topics/a%2Fb", "/topics/%3Cscript%3E/%22x", "/nodes/%5B::1%5D:4151",
             "/topics/%ff", "/topics/orders%23ephemeral/c%23ephemeral"],
)  # fmt: skip
def test_deep_links_may_hold_any_character(site: Site, path: str) -> None:
    status, body, _ = site.admin.request("GET", path)
    assert status == 404
    assert b'<script>"x' not in body


@pytest.mark.parametrize("path", ["/api/topics", "/api/nodes/none", "/config/log_level"])
def test_answers_say_which_form_they_have(site: Site, path: str) -> None:
    _, _, headers = site.admin.request("GET", path)
    assert headers["x-nsq-content-type"] == "nsq; version=1.0"
    assert headers["content-type"] == "application/json; charset=utf-8"
    assert "x-nsq-content-type" not in site.admin.request("GET", "/ping")[2]


def test_a_topic_has_the_official_fields(site: Site) -> None:
    shown = site.admin.json("GET", "/api/topics/orders")
    assert list(shown) == [*TOPIC_KEYS, "message"]
    assert (shown["depth"], shown["memory_depth"], shown["backend_depth"]) == (14, 12, 2)
    assert [list(one) for one in shown["nodes"]] == [TOPIC_KEYS] * 2
    assert [one["nodes"] for one in shown["nodes"]] == [None, None]
    assert [one["hostname"] for one in shown["nodes"]] == ["nsqd0", "nsqd1"]
    assert [one["channel_name"] for one in shown["channels"]] == ["billing", "mail"]
    assert list(shown["channels"][0]) == CHANNEL_KEYS
    assert shown["channels"][0]["clients"] is None


def test_a_channel_has_the_official_fields(site: Site) -> None:
    site.nsqds[0].topics["orders"]["paused"] = True
    shown = site.admin.json("GET", "/api/topics/orders/billing")
    assert list(shown) == [*CHANNEL_KEYS, "global_msg_count", "message"]
    assert [[one["hostname"] for one in node["clients"]] for node in shown["nodes"]] == [
        ["worker-1.example"], ["worker-1.example"],
    ]  # fmt: skip
    numbers = ("depth", "in_flight_count", "deferred_count", "requeue_count", "timeout_count",
               "message_count", "client_count")  # fmt: skip
    assert [shown[key] for key in numbers] == [10, 2, 6, 8, 12, 20, 2]
    assert [one["node"] for one in shown["nodes"]] == [one.address for one in site.nsqds]
    assert [set(one) for one in shown["clients"]] == [CLIENT_KEYS] * 2
    latency = shown["e2e_processing_latency"]
    assert list(latency) == ["count", "percentiles", "topic", "channel", "host"]
    assert latency["percentiles"][0] == {
        "quantile": 0.99, "min": 3_000_000, "max": 3_000_000, "average": 3_000_000, "count": 8,
    }  # fmt: skip
    assert latency["percentiles"][1]["quantile"] == 0.5
    assert site.admin.json("GET", "/api/topics/orders")["paused"] is True


def test_deliveries_by_zone_and_region_are_shown(site: Site) -> None:
    near = {"zone_local_msg_count": 3, "region_local_msg_count": 2, "global_msg_count": 1}
    site.nsqds[0].topics["orders"]["channels"]["billing"] |= near
    shown = site.admin.json("GET", "/api/topics/orders/billing")
    assert {key: shown[key] for key in near} == near
    assert shown["delivery_msg_count"] == 6
    other = site.admin.json("GET", "/api/topics/orders/mail")
    assert near.keys() & other.keys() == {"global_msg_count"}
    assert other["global_msg_count"] == 0


def test_the_remote_address_that_an_nsqlookupd_of_https_names() -> None:
    one = NsqdAddress("h", "a", 1, 2, "1", remote_addresses=("https://l:4161/10.0.0.1:5",))
    assert node_rows([one])[0]["remote_address"] == "10.0.0.1:5"


def test_nodes_and_one_of_them(site: Site) -> None:
    first = site.nsqds[0]
    site.lookupds[1].tombstones.add(("lonely", first.address))
    row, _ = site.admin.json("GET", "/api/nodes")["nodes"]
    assert row == {
        "remote_addresses": [f"{one.address}/127.0.0.1:{first.port + 1}" for one in site.lookupds],
        "remote_address": f"127.0.0.1:{first.port + 1}",
        "hostname": "nsqd0", "broadcast_address": "127.0.0.1", "tcp_port": first.port - 1,
        "http_port": first.port, "version": "1.3.0",
        "topics": [{"topic": "lonely", "tombstoned": True},
                   {"topic": "orders", "tombstoned": False}],
        "out_of_date": False,
    }  # fmt: skip
    shown = site.admin.json("GET", f"/api/nodes/{first.address}")
    assert list(shown) == ["node", "topics", "total_messages", "total_clients", "message"]
    assert (shown["node"], shown["total_messages"], shown["total_clients"]) == (
        first.address,
        11,
        1,
    )
    assert [one["topic_name"] for one in shown["topics"]] == ["lonely", "orders"]
    assert set(shown["topics"][1]["channels"][0]["clients"][0]) == CLIENT_KEYS


def test_the_counter_and_inactive_topics(site: Site) -> None:
    at = site.nsqds[1].address
    assert site.admin.json("GET", "/api/counter")["stats"][f"orders:billing:{at}"] == {
        "node": at, "topic_name": "orders", "channel_name": "billing", "message_count": 10,
    }  # fmt: skip
    assert site.admin.json("GET", "/api/topics") == {
        "topics": ["idle", "lonely", "orders"], "message": "",
    }  # fmt: skip
    assert site.admin.json("GET", "/api/topics?inactive=true") == {
        "topics": {"idle": ["waiting"]}, "message": "",
    }  # fmt: skip
    site.lookupds[0].made |= {f"unused{number}": set() for number in range(103)}
    eventually(lambda: b"and 4 more" in site.admin.request("GET", "/lookup")[1])


@pytest.mark.parametrize("verb", ["pause", "unpause", "empty"])
def test_an_action_reaches_every_node_with_the_topic(site: Site, verb: str) -> None:
    posts = site.posts_of("POST", "/api/topics/orders", {"action": verb})
    assert sorted(posts) == [(one, f"/topic/{verb}?topic=orders") for one in ("nsqd0", "nsqd1")]
    posts = site.posts_of("POST", "/api/topics/orders/mail", {"action": verb})
    path = f"/channel/{verb}?topic=orders&channel=mail"
    assert sorted(posts) == [(one, path) for one in ("nsqd0", "nsqd1")]
    assert site.posts_of("POST", "/api/topics/lonely", {"action": verb}) == [
        ("nsqd0", f"/topic/{verb}?topic=lonely")
    ]


def test_creating_goes_to_lookupds_and_for_a_channel_to_nsqds(site: Site) -> None:
    made = {"topic": "fresh"}
    assert sorted(site.posts_of("POST", "/api/topics", made)) == [
        (one, "/topic/create?topic=fresh") for one in ("lookupd0", "lookupd1")
    ]
    posts = site.posts_of("POST", "/api/topics", {"topic": "orders", "channel": "new"})
    path = "/channel/create?topic=orders&channel=new"
    assert sorted(posts[:2]) == [
        (one, "/topic/create?topic=orders") for one in ("lookupd0", "lookupd1")
    ]
    assert sorted(posts[2:4]) == [("lookupd0", path), ("lookupd1", path)]
    assert sorted(posts[4:]) == [("nsqd0", path), ("nsqd1", path)]


def test_a_deletion_goes_to_nsqlookupds_first(site: Site) -> None:
    """So that consumers who ask meanwhile are not sent there."""
    for path, at in (
        ("/api/topics/orders/mail", "/channel/delete?topic=orders&channel=mail"),
        ("/api/topics/orders", "/topic/delete?topic=orders"),
    ):
        posts = site.posts_of("DELETE", path)
        assert sorted(posts[:2]) == [("lookupd0", at), ("lookupd1", at)]
        assert sorted(posts[2:]) == [("nsqd0", at), ("nsqd1", at)]
    posts = site.posts_of("DELETE", "/api/topics/idle")
    assert sorted(posts) == [(one, "/topic/delete?topic=idle") for one in ("lookupd0", "lookupd1")]


def test_a_tombstone_comes_before_the_deletion(site: Site) -> None:
    node = site.nsqds[1]
    posts = site.posts_of("DELETE", f"/api/nodes/{node.address}", {"topic": "orders"})
    reply = "/topic/tombstone?topic=orders&node=nsqd1"
    assert sorted(posts[:2]) == [("lookupd0", reply), ("lookupd1", reply)]
    assert posts[2:] == [("nsqd1", "/topic/delete?topic=orders")]
    assert list(site.nsqds[0].topics) == ["orders", "lonely"]


def test_unknown_topics_are_not_found(site: Site) -> None:
    for method, path, document in (
        ("GET", "/api/topics/none", None),
        ("GET", "/api/topics/none/c", None),
        ("POST", "/api/topics/none", {"action": "pause"}),
        ("DELETE", "/api/topics/none", None),
    ):
        assert site.error(method, path, document) == (404, "TOPIC_NOT_FOUND"), (method, path)
    site.lookupds[1].fails = 500
    unknown = f"UPSTREAM_ERROR: failed to query any nsqlookupd: {UNKNOWN}\n{BROKEN}"
    assert site.error("GET", "/api/topics/none") == (502, unknown)  # the other one may know it
    site.lookupds[1].fails = 0
    nobody = "UPSTREAM_ERROR: failed to query any nsqd: there is none"
    assert site.error("GET", "/api/topics/idle") == (502, nobody)
    assert site.error("POST", "/api/topics/idle", {"action": "pause"}) == (502, nobody)
    assert site.error("GET", "/api/topics/orders/none") == (404, "CHANNEL_NOT_FOUND")


def test_partial_failures_are_a_warning(site: Site) -> None:
    site.nsqds[1].fails = 500
    warning = f"WARNING: {BROKEN}"
    for path in ("/api/topics/orders", "/api/topics/orders/billing", "/api/counter"):
        assert site.admin.json("GET", path)["message"] == warning, path
    site.lookupds[1].fails = 500
    for path in ("/api/topics", "/api/nodes", f"/api/nodes/{site.nsqds[0].address}",
                 "/api/topics?inactive=true", "/api/counter"):  # fmt: skip
        assert site.admin.json("GET", path)["message"] == warning, path
    words = "it failed, and its log says why (500 INTERNAL_ERROR)"
    each = f"1 of 2: {site.nsqds[1].address}: {words}"
    text = site.admin.json("POST", "/api/topics/orders", {"action": "pause"})["message"]
    assert text == f"{warning}; paused on {each}"
    assert site.nsqds[0].topics["orders"]["paused"] is True
    lookupds = f"tombstoned on 1 of 2 nsqlookupds: {site.lookupds[1].address}: {words}"
    text = site.admin.json("DELETE", "/api/topics/orders")["message"]
    # Once the watch has seen that the node is silent, a warning of what it brings back follows.
    assert text.startswith(f"{warning}; {lookupds}; deleted on {each}")
    assert site.admin.request("GET", "/definitions.json")[0] == 502  # half of them look like all


def test_a_total_failure_is_an_error(site: Site) -> None:
    for nsqd in site.nsqds:
        nsqd.fails = 500
    both = f"{BROKEN}\n{BROKEN}"
    nsqds = f"UPSTREAM_ERROR: failed to query any nsqd: {both}"
    assert site.error("GET", "/api/topics/orders") == (502, nsqds)
    assert site.error("GET", "/api/counter") == (502, nsqds)
    assert site.error("POST", "/api/topics/orders", {"action": "pause"}) == (502, nsqds)
    for lookupd in site.lookupds:
        lookupd.fails = 500
    lookupds = f"UPSTREAM_ERROR: failed to query any nsqlookupd: {both}"
    for method, path, document in (
        ("GET", "/api/topics", None),
        ("GET", "/api/nodes", None),
        ("POST", "/api/topics", {"topic": "fresh"}),
        ("DELETE", "/api/topics/orders", None),
    ):
        assert site.error(method, path, document) == (502, lookupds), (method, path)


def test_invalid_json_is_named(site: Site) -> None:
    for path in ("/api/topics", "/api/topics/orders", "/api/topics/orders/mail"):
        status, message = site.error("POST", path, b"{")
        assert status == 400
        assert "line 1 column 2" in message


@pytest.mark.parametrize("version", ["1.2.1", "\u00b2"])
def test_an_old_node_is_out_of_date(site: Site, version: str) -> None:
    site.nsqds[1].version = version
    rows = site.admin.json("GET", "/api/nodes")["nodes"]
    given = [(one["version"], one["out_of_date"]) for one in rows]
    assert given == [("1.3.0", False), (version, True)]


@pytest.mark.parametrize("version", ["0.3.8", "1.0.0", "1.2.1"])
def test_older_releases_are_understood(site: Site, version: str) -> None:
    """Clients that always come along, counts that are not there, answers in an envelope."""
    for nsqd in site.nsqds:
        nsqd.version = version
    for daemon in (*site.nsqds, *site.lookupds):
        daemon.is_enveloped = version.startswith("0.")
    shown = site.admin.json("GET", "/api/topics/orders/billing")
    assert (shown["client_count"], len(shown["clients"]), shown["depth"]) == (2, 2, 10)
    nodes = site.admin.json("GET", "/api/nodes")["nodes"]
    assert [one["version"] for one in nodes] == [version] * 2
    act = {"action": "pause"}
    assert site.admin.json("POST", "/api/topics/orders", act) == {"message": ""}
    old = site.admin.json("GET", "/api/topics?inactive=true")
    assert old["topics"] == {"idle": ["waiting"]}


def test_a_foreign_server_is_no_daemon(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands at an address by mistake: the others count, and the log is quiet."""
    other = site.lookupds[1]
    monkeypatch.setattr(other, "answer", lambda *_: (200, "<html>welcome</html>"))
    text = site.admin.json("GET", "/api/topics")["message"]
    assert text == f"WARNING: {other.address}/topics does not answer as NSQ does"
    site.nsqds[1].topics["orders"]["e2e_processing_latency"] = [5]
    for path, key in (("/api/topics/orders", "depth"), ("/api/counter", "stats")):
        shown = site.admin.json("GET", path)
        assert shown[key], path
        assert f"{site.nsqds[1].address} does not answer as NSQ does" in shown["message"]


def test_a_lone_surrogate_in_a_name_breaks_nothing(site: Site) -> None:
    """JSON can hold one; no answer can."""
    held = site.nsqds[0].topics["orders"]["channels"]["billing"]
    held["clients"] = [client(hostname="a\ud83d", user_agent="\udfff\u20ac\U0001f600")]
    shown = site.admin.json("GET", "/api/topics/orders/billing")
    found = [(one["hostname"], one["user_agent"]) for one in shown["clients"]]
    assert ("a?", "?\u20ac\U0001f600") in found


def test_below_a_base_path(site: Site, tmp_path_factory: pytest.TempPathFactory) -> None:
    path, graphite = tmp_path_factory.mktemp("base") / "admin", Elsewhere()
    graphite.answer = picture = b"\x89PNG not really"
    flags = (
        f"-nsqd-http-address={site.nsqds[0].address}", "-base-path=/a/b",
        f"-graphite-url={graphite.url}", "-proxy-graphite",
    )  # fmt: skip
    with graphite, Admin(path, *flags) as admin:
        for at, target in (("/a/b/", "/a/b"), ("/a/b/topics/", "/a/b/topics"),
                           ("/a/b/Ping", "/a/b/ping")):  # fmt: skip
            status, _, headers = admin.request("GET", at)
            assert (status, headers["location"]) == (301, target)
        for at in ("/a/b", "/a/b/topics", "/a/b/topics/orders/billing", "/a/b/lookup"):
            assert admin.request("GET", at)[0] == 200
        for at in ("/", "/a", "/topics", "/ping", "/static/x", "/api/topics", "/a/bb/ping"):
            assert admin.request("GET", at)[0] == 404, at
        assert admin.request("OPTIONS", "/a/b/api/topics")[2]["allow"] == "GET, OPTIONS, POST"
        # Told of nsqds only: what they have is all there is.
        assert admin.json("GET", "/a/b/api/topics")["topics"] == ["lonely", "orders"]
        assert admin.json("GET", "/a/b/api/topics?inactive=true")["topics"] == {}
        (row,) = admin.json("GET", "/a/b/api/nodes")["nodes"]
        assert (row["remote_addresses"], row["remote_address"]) == ([], "")
        # Pictures of graphite come through our address, and are no pages of ours.
        query = "target=a.b&target=sumSeries(c.*)&width=500&from=-2h"
        status, body, headers = admin.request("GET", f"/a/b/render?{query}")
        assert (status, body, headers["content-type"]) == (200, picture, "image/png")
        assert graphite.next()[:2] == ("GET", f"/render?{query}")
        assert headers["x-content-type-options"] == "nosniff"
        assert admin.request("GET", "/render?target=x")[0] == 404
        assert admin.request("POST", "/a/b/render?target=x")[0] in (404, 405)
