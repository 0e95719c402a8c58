"""Every help ends with examples, and every example is a command that the verb takes."""

from __future__ import annotations

import argparse

import pytest

from cases import each
from penstock.tools.main import VERBS, main
from penstock.tools.verbs import VerbParser
from tools.parsers import Found, all_parsers, daemons, examples_of, parse

PARSERS = list(all_parsers())
# They print no facts: they start something, or print a file; a pipeline has a -json of its own.
WITHOUT_JSON = {
    ("demo",),
    ("up",),
    ("completion",),
    ("pipeline", "run"),
    ("pipeline", "example"),
}


def title(found: Found) -> str:
    return " ".join(found.words)


def with_optional_words() -> list[Found]:
    return [
        found for found in PARSERS
        if found.words not in WITHOUT_JSON and isinstance(found.parser, VerbParser)
        and {one.nargs for one in found.parser._get_positional_actions()} & {"?", "*"}
    ]  # fmt: skip


def test_these_have_optional_words() -> None:
    found = {title(one) for one in with_optional_words()}
    assert found >= {"check", "stats", "channel report", "topic config", "pub", "id", "trace"}


@each("found", with_optional_words())
def test_an_option_may_stand_between_any_words(found: Found) -> None:
    """Also in front of a word that may be left out, and of one that begins with a dash."""
    words = ["one"] * len(found.parser._get_positional_actions())
    if found.parser._get_positional_actions()[-1].nargs == "*":
        words += ["more", "--", "-x"]
    wanted = found.parser.parse_args(["--json", *words])
    assert wanted.json
    for place in range(1, len(words) + 1):
        if "--" not in words[:place]:
            line = [*words[:place], "--json", *words[place:]]
            assert found.parser.parse_args(line) == wanted, line
    with pytest.raises(SystemExit):
        found.parser.parse_args([*words[:1], "--nix", *words[1:]])


def test_no_verb_is_forgotten() -> None:
    assert {found.words[0] for found in PARSERS} | set(daemons()) == set(VERBS)


@each("found", PARSERS)
def test_the_help_ends_with_examples_of_this_verb(found: Found) -> None:
    examples = examples_of(found.parser.format_help())
    assert 1 <= len(examples) <= 5
    start = " ".join(("penstock", *found.words))
    for example in examples:
        assert example.startswith(start)
        parse(example)


@each("found", PARSERS)
def test_the_help_says_what_it_does(found: Found) -> None:
    assert found.parser.description


@pytest.mark.parametrize("verb", daemons())
def test_the_help_of_a_daemon_does_too(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    examples = examples_of(capsys.readouterr().out)
    assert examples
    for example in examples:
        assert parse(example) is None


@each("found", PARSERS)
def test_what_prints_facts_prints_them_as_json_too(found: Found) -> None:
    has_verbs = any(isinstance(one, argparse._SubParsersAction) for one in found.parser._actions)
    options = {option for action in found.parser._actions for option in action.option_strings}
    if not has_verbs:
        assert ("--json" in options) == (found.words not in WITHOUT_JSON)


@each("found", PARSERS)
def test_what_takes_addresses_takes_a_context(found: Found) -> None:
    options = {option for action in found.parser._actions for option in action.option_strings}
    addresses = {"--nsqd-http-address", "--nsqd-tcp-address", "--lookupd-http-address", "--url"}
    if options & addresses and found.words != ("context", "save"):
        assert "--context" in options


def test_a_wrong_example_is_found() -> None:
    with pytest.raises(ValueError, match="unrecognized arguments: --fly"):
        parse("penstock topic list --fly")
    with pytest.raises(ValueError, match="no such verb"):
        parse("penstock fly")
    with pytest.raises(ValueError, match="fly"):
        parse("penstock nsqd --fly")
