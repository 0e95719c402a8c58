"""Where `penstock pipeline run` reads: its own settings, a context, or the environment."""

import pytest

from penstock.pipelines import runner
from penstock.pipelines.runner import Pipeline
from penstock.pipelines.settings import Settings
from penstock.tools import contexts
from penstock.tools.contexts import Context
from penstock.tools.main import main

from .utilities import Run

AUDIT = ("audit", "--topic", "orders", "--trace", "/t")
DEFAULT = "http://127.0.0.1:4151"


@pytest.fixture(autouse=True)
def urls(no_contexts: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the runs that are started."""
    with contexts.changed() as found:
        found.put("one", Context(nsqd_http_address=("one:1",), tls_root_ca_file="/dev/null"))
        found.put("two", Context(nsqd_http_address=("two:1", "two:2")))
        found.put("https", Context(nsqd_http_address=("https://h:1",)))
    started: list[str] = []

    class Started:
        def __init__(self, pipeline: Pipeline, name: str, found: Settings) -> None:
            started.append(found.values.get("lookupd") or found.text("url"))

        def exit_code(self) -> int:
            return 0

    monkeypatch.setattr(runner, "Run", Started)
    return started


def test_a_context_says_where(urls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["pipeline", "run", *AUDIT]) == 0
    with contexts.changed() as found:
        found.select("https")
    assert main(["pipeline", "run", *AUDIT]) == 0
    assert main(["pipeline", "run", *AUDIT, "--url", "http://u:1"]) == 0
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADDRESS", "env:1")
    assert main(["pipeline", "run", *AUDIT]) == 0
    assert main(["pipeline", "run", *AUDIT, "--context", "https"]) == 0
    assert urls == [DEFAULT, "https://h:1", "http://u:1", "http://env:1", "https://h:1"]
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADDRESS", "one:1,two:1")
    assert main(["pipeline", "run", "trace", "--table", "/t", "--lookupd", "http://l:1"]) == 0
    assert urls[-1] == ("http://l:1",)


def test_a_wrong_context_has_the_exit_code_of_the_pipeline(urls: list[str], penstock: Run) -> None:
    for name, rule in (("two", "give --url: two:1, two:2"), ("gone", "there is no context 'gone'"),
                       ("one", "cannot be used")):  # fmt: skip
        code, _, err = penstock("pipeline", "run", *AUDIT, f"--context={name}")
        assert (code, rule in err) == (3, True)  # 1: it found something
        assert err.startswith("penstock pipeline audit: ")
    assert penstock("pipeline", "run", *AUDIT, "--context")[0] == 2
    assert urls == []


def test_other_wrong_use_is_reported_by_the_pipeline(urls: list[str], penstock: Run) -> None:
    code, _, err = penstock("pipeline", "run", "audit", "--fly")
    assert (code, "flag provided but not defined: -fly" in err) == (2, True)
    code, out, _ = penstock("pipeline", "run", "audit", "--help")
    assert (code, "usage" in out.lower(), urls) == (0, True, [])
