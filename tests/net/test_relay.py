"""A request that another daemon is to answer."""

import asyncio
import json
from typing import Any

from net.scripted import Daemons
from penstock.errors import FetchFailed
from penstock.net.exchange import Request, Response
from penstock.net.http_client import Fetched
from penstock.net.relay import pass_on

REQUEST = Request("POST", "/pub", b"topic=t", b"body", "r", "1.1", True, False, b"")
UNREACHED = FetchFailed("u", "refused", sent=False)


def passed_on(daemons: Daemons, *addresses: str) -> Response:
    nsqds: Any = daemons
    work = pass_on(nsqds, REQUEST, "/pub?topic=t", addresses, "x", outcome="stored")
    return asyncio.run(work)


def test_the_first_that_can_be_reached_answers() -> None:
    daemons = Daemons(UNREACHED, Fetched(200, b"OK", {"x-penstock-repeated": "true"}))
    answer = passed_on(daemons, "a:1", "b:2", "c:3")
    assert (answer.status, answer.body) == (200, b"OK")
    assert ("X-Penstock-Repeated", "true") in answer.headers
    asked = [(f"POST http://{one}/pub?topic=t", b"body", "x") for one in ("a:1", "b:2")]
    assert daemons.asked == asked


def test_a_request_that_may_have_arrived_goes_to_no_other_node() -> None:
    daemons = Daemons(FetchFailed("u", "timed out"))
    answer = passed_on(daemons, "a:1", "b:2")
    assert (answer.status, json.loads(answer.body)["stored"]) == (503, "unknown")
    assert len(daemons.asked) == 1


def test_a_request_that_no_node_received_is_refused() -> None:
    answer = passed_on(Daemons(UNREACHED, UNREACHED), "a:1", "b:2")
    document = json.loads(answer.body)
    assert answer.status == 503
    assert "a:1: refused; b:2: refused" in document["message"]
    assert "stored" not in document
    assert "none is alive" in json.loads(passed_on(Daemons()).body)["message"]
