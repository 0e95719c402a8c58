"""Where `penstock pipeline run` reads: its own settings, a context, or the environment."""

from collections.abc import Sequence

import pytest

from penstock.tools import contexts, pipeline
from penstock.tools.contexts import Context
from penstock.tools.main import main

AUDIT = ("audit", "--topic", "orders", "--trace", "/t")


@pytest.fixture(autouse=True)
def runs(no_contexts: None, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """What pipelines are started with."""
    with contexts.changed() as found:
        found.put("one", Context(nsqd_http_address=("one:1",), tls_root_ca_file="/dev/null"))
        found.put("two", Context(nsqd_http_address=("two:1", "two:2")))
        found.put("https", Context(nsqd_http_address=("https://h:1",)))
    started: list[Sequence[str]] = []

    def run(name: str, words: Sequence[str]) -> int:
        started.append((name, *words))
        return 0

    monkeypatch.setattr(pipeline, "run_by_name", run)
    return started


def test_a_context_says_where(runs: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["pipeline", "run", *AUDIT]) == 0
    with contexts.changed() as found:
        found.select("https")
    assert main(["pipeline", "run", *AUDIT]) == 0
    assert main(["pipeline", "run", *AUDIT, "--url", "http://u:1"]) == 0
    monkeypatch.setenv("PENSTOCK_NSQD_HTTP_ADDRESS", "env:1")
    assert main(["pipeline", "run", *AUDIT]) == 0
    assert main(["pipeline", "run", *AUDIT, "--context", "https"]) == 0
    assert [words[1:2] if words[1].startswith("--url=") else () for words in runs] == [
        (), ("--url=https://h:1",), (), ("--url=http://env:1",), ("--url=https://h:1",),
    ]  # fmt: skip
    assert runs[-1][2:] == AUDIT[1:]  # nothing of --context is left


def test_what_is_wrong_has_the_pipelines_exit_code(
    runs: list[Sequence[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, said in (("two", "give --url: two:1, two:2"), ("gone", "there is no context 'gone'"),
                       ("one", "cannot be used")):  # fmt: skip
        assert main(["pipeline", "run", *AUDIT, f"--context={name}"]) == 3  # 1: it found something
        err = capsys.readouterr().err
        assert err.startswith("penstock pipeline audit: ")
        assert said in err
    assert main(["pipeline", "run", *AUDIT, "--context"]) == 2
    assert runs == []


def test_what_is_wrong_otherwise_is_the_pipelines_to_say(runs: list[Sequence[str]]) -> None:
    main(["pipeline", "run", "audit", "--fly"])
    main(["pipeline", "run", "audit", "--help"])
    assert runs == [("audit", "--fly"), ("audit", "--help")]
