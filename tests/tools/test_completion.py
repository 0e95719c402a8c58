"""Completion as the shells run it: their scripts, and `penstock` beside them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cases import each
from e2e.daemon import Daemon
from e2e.lookupd import Lookupd, eventually, nsqd
from penstock.tools import completion, contexts
from penstock.tools.contexts import Context
from penstock.tools.main import DAEMONS, VERBS, main
from tools.parsers import Found, all_verbs, examples_of, parse

Offers = Callable[[str], list[str]]
needs_zsh = pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh"):
        command = [sys.executable, "-m", "penstock.tools.main", "completion", shell]
        (path / shell).write_bytes(subprocess.check_output(command))
    return path


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    path = tmp_path_factory.mktemp("names")
    with Lookupd(path / "lookupd") as lookupd, nsqd(path / "data", lookupd.address) as running:
        for topic in ("orders", "pay"):
            running.post(f"/topic/create?topic={topic}")
        for channel in ("billing", "tmp%23ephemeral"):
            running.post(f"/channel/create?topic=orders&channel={channel}")
        eventually(lambda: lookupd.knows("orders", running) and lookupd.knows("pay", running))
        running.flags.append(f"127.0.0.1:{lookupd.http_port}")  # for the tests, it runs already
        yield running


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(completion.VARIABLE, "90")  # the machine may be busy


@pytest.fixture
def here(daemon: Daemon) -> str:
    address = f"127.0.0.1:{daemon.http_port}"
    with contexts.changed() as found:
        found.put("prod", Context(nsqd_http_address=(address,)))
        found.put("looked-up", Context(lookupd_http_address=(daemon.flags[-1],)))
        found.put("away", Context(nsqd_http_address=("127.0.0.1:1",)))
        found.select("prod")
    return address


def run_shell(program: list[str], commands: str) -> list[str]:
    """`penstock` is that of this environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*program, "-c", commands], capture_output=True, text=True, check=True,
        env={**os.environ, "PATH": path},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def in_bash(scripts: Path) -> Offers:
    def offers(line: str) -> list[str]:
        """What bash offers at the end of this line."""
        words = re.findall("[:=]|[^ :=]+|(?<= )$", line)
        return run_shell(["bash", "--norc"], f"""
            source '{scripts / "bash"}'; COMP_LINE='{line}'; COMP_POINT={len(line)}
            COMP_WORDS=({" ".join(f"'{word}'" for word in words)}); COMP_CWORD={len(words) - 1}
            _penstock_completion penstock; printf '%s\n' "${{COMPREPLY[@]}}" """)  # fmt: skip

    return offers


@pytest.fixture
def in_zsh(scripts: Path) -> Offers:
    def offers(line: str) -> list[str]:
        """What zsh gets, before it picks what fits."""
        quoted = " ".join(f"'{word}'" for word in line.split(" "))
        found = run_shell(["zsh", "-f"], f"""
            compdef() {{ : }}; compset() {{ : }}; _files() {{ print FILES }}
            _describe() {{ print -rl -- "${{(@P)2}}" }}
            source '{scripts / "zsh"}'; words=({quoted}); CURRENT={len(line.split(" "))}
            _penstock_completion""")  # fmt: skip
        return [re.split(r"(?<!\\):", one)[0].replace("\\", "") for one in found]  # no help

    return offers


def test_verbs_and_names_in_bash(in_bash: Offers, here: str) -> None:
    assert in_bash("penstock ") == list(VERBS)
    assert in_bash("penstock channel pause orders tm") == ["tmp#ephemeral"]
    # bash cuts words at = and :, and replaces the last of them
    assert in_bash("penstock stats --context=pr") == ["prod"]
    host, port = here.split(":")
    assert in_bash(f"penstock node show {host}:{port[:2]}") == [port]
    assert in_bash(f"penstock topic pause --nsqd-http-address {here} pa") == ["pay"]


@needs_zsh
def test_names_in_zsh(in_zsh: Offers, here: str) -> None:
    assert in_zsh("penstock ") == list(VERBS)
    assert in_zsh("penstock stats --context=pr") == ["prod"]
    assert in_zsh(f"penstock node show {here[:-1]}") == [here]
    assert "--yes" in in_zsh("penstock channel delete --")
    assert in_zsh("penstock fly ") == ["FILES"]


# --- what belongs where, without a shell ---


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Offers:
    def offers(words: str) -> list[str]:
        monkeypatch.setenv("_PENSTOCK_COMPLETE", "complete_fish")
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"penstock {words}")
        with pytest.raises(SystemExit) as left:
            main([])
        assert left.value.code == 0
        lines = capsys.readouterr().out.splitlines()
        return sorted(filter(None, (line.partition("\t")[0] for line in lines)))

    return offers


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("cha", ["channel"]),
        ("topic un", ["unpause"]),
        ("context select pr", ["prod"]),
        ("channel delete --y", ["--yes"]),
        ("pub ", ["orders", "pay"]),
        ("channel delete --yes orders ", ["billing", "tmp#ephemeral"]),
        ("channel report --context away orders ", []),
        ("channel report --sort ", ["delayed", "depth", "in", "in-flight", "name", "oldest",
                                    "out"]),
        ("stats orders b", ["billing"]),
        ("stats --context looked-up ", ["orders", "pay"]),
        ("trace --topic o", ["orders"]),
        ("tail --nsqd-tcp-address 127.0.0.1:1 ", []),
        ("admin put-user ann --role v", ["view"]),
        ("pub orders ", []),
        ("nsqd ", []),
        ("nsqd --log-level w", ["warn"]),
        ("topic show t --partition ", []),
    ],
)  # fmt: skip
def test_completions(words: str, offered: list[str], complete: Offers, here: str) -> None:
    assert complete(words) == offered


def test_nothing_is_printed_when_the_file_is_damaged(complete: Offers, here: str) -> None:
    contexts.path().write_text("][")
    assert complete("stats --context ") == []
    assert complete("pub ") == []


def test_names_that_a_shell_would_run_are_left_out(
    complete: Offers, here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["fine", "$(reboot)", "`reboot`", "a b", "a;b", "~", "*"]
    monkeypatch.setattr(completion, "_together", lambda *_: names)
    assert complete("pub ") == ["fine"]


# --- every help ends with examples, and every example is a command that the verb takes ---


FOUND = list(all_verbs())
SCREEN_LINES = 40
# They print no facts: they start something, or print a file; a pipeline has a -json of its own.
WITHOUT_JSON = {("demo",), ("up",), ("completion",), ("pipeline", "run"), ("pipeline", "example")}


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


@each("found", [found for found in FOUND if not found.is_group])
def test_verbs_that_print_facts_have_json(found: Found) -> None:
    assert ("--json" in found.options) == (found.words not in WITHOUT_JSON)


@each("found", FOUND)
def test_verbs_with_addresses_take_a_context(found: Found) -> None:
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
