"""Every help ends with examples, and every example is a command that the verb takes."""

from __future__ import annotations

import re

import pytest

from cases import each
from penstock.tools.main import DAEMONS, VERBS, main
from tools.parsers import Found, all_verbs, examples_of, parse

FOUND = list(all_verbs())
SCREEN_LINES = 40
# They print no facts: they start something, or print a file; a pipeline has a -json of its own.
WITHOUT_JSON = {
    ("demo",),
    ("up",),
    ("completion",),
    ("pipeline", "run"),
    ("pipeline", "example"),
}


def test_no_verb_is_forgotten() -> None:
    assert {found.words[0] for found in FOUND} | set(DAEMONS) == set(VERBS)


@each("found", FOUND)
def test_the_help_says_what_it_does_and_ends_with_examples(
    found: Found, capsys: pytest.CaptureFixture[str]
) -> None:
    assert found.command.help or found.words[0] == "completion"
    examples = examples_of(found.command.epilog)
    assert 1 <= len(examples) <= 5
    assert all(one.startswith(" ".join(("penstock", *found.words))) for one in examples)
    for example in examples if not found.is_group else ():
        parse(example)
    assert main([*found.words, "--help"]) == 0
    out = capsys.readouterr().out
    assert examples_of(out) == examples
    assert len(out.splitlines()) <= SCREEN_LINES
    _, _, verbs = out.partition("Commands:\n")
    assert "...\n" not in verbs.replace("NAME=VALUE ...\n", "")  # nothing was cut
    assert not re.search("<(str|int|float)>", out)


@pytest.mark.parametrize("verb", DAEMONS)
def test_the_help_of_a_daemon_does_too(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    examples = examples_of(capsys.readouterr().out)
    assert examples
    for example in examples:
        assert parse(example) == {}


@each("found", [found for found in FOUND if not found.is_group])
def test_what_prints_facts_prints_them_as_json_too(found: Found) -> None:
    assert ("--json" in found.options) == (found.words not in WITHOUT_JSON)


@each("found", FOUND)
def test_what_takes_addresses_takes_a_context(found: Found) -> None:
    addresses = {"--nsqd-http-address", "--nsqd-tcp-address", "--lookupd-http-address", "--url"}
    if found.options & addresses and found.words != ("context", "save"):
        assert "--context" in found.options


def test_a_wrong_example_is_found() -> None:
    with pytest.raises(ValueError, match="--fly"):
        parse("penstock topic list --fly")
    with pytest.raises(ValueError, match="no such verb"):
        parse("penstock fly")
    with pytest.raises(ValueError, match="fly"):
        parse("penstock nsqd --fly")
