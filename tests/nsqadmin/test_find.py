"""What quick open finds, and in which order."""

from penstock.nsqadmin.pages.bar import find
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot, TopicState
from penstock.nsqadmin.upstream import NsqdAddress

PAGES = [("/", "Overview"), ("/topics", "Topics"), ("/trace", "Trace")]


def installation() -> Snapshot:
    orders = TopicState("orders", channels={"billing": ChannelState("orders", "billing")})
    names = ("reorders", "old-orders", "disorder", "border.crossings")
    topics = {"orders": orders} | {name: TopicState(name) for name in names}
    node = NodeState("10.0.0.7:4151", NsqdAddress("till-7", "10.0.0.7", 4150, 4151, "1"))
    return Snapshot(nodes={node.address: node}, topics=topics)


def words(text: str) -> list[str]:
    return [one.words for one in find(text, installation(), PAGES)]


def test_the_nearer_comes_first() -> None:
    assert words("orders") == ["orders", "orders/billing", "old-orders", "reorders"]
    assert words("ORDER")[-3:] == ["disorder", "reorders", "border.crossings"]


def test_channels_nodes_and_pages_by_any_part() -> None:
    (found,) = find("s/bil", installation(), PAGES)
    assert (found.kind, found.path) == ("channel", ("topics", "orders", "billing"))
    assert words("orders bil") == ["orders/billing"]
    for part in ("4151", "till", "10.0"):
        (found,) = find(part, installation(), PAGES)
        assert (found.kind, found.path) == ("node", ("nodes", "10.0.0.7:4151"))
    assert find("overv", installation(), PAGES)[0].path == ("",)
    assert len(find("o", installation(), PAGES, count_max=3)) == 3


def test_a_message_id_leads_to_its_timeline() -> None:
    (found,) = find(" 0ABC000000000001 ", installation(), PAGES)
    assert (found.kind, found.path) == ("message", ("trace",))
    assert found.query == (("id", "0abc000000000001"),)
    assert find("trace:7", installation(), PAGES)[0].query == (("id", "trace:7"),)
    assert words("0abc00000000000g") == []
    w3c = "4bf92f3577b34da6a3ce929d0e0e4736"
    for text in (w3c, f"trace:{w3c.upper()}"):
        (found,) = find(text, installation(), PAGES)
        assert (found.words, found.path) == (f"Messages with trace id {w3c}", ("trace",))
    assert words(w3c[1:]) == words("trace:0") == []
