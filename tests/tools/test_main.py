import re
import shlex
import signal
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from cases import each
from penstock import __version__
from penstock.tools.main import DAEMONS, VERBS, main
from penstock.tools.utility import Stop

UTILITIES = ("nsq_stat", "nsq_tail", "nsq_to_file", "nsq_to_http", "nsq_to_nsq", "to_nsq")
ROOT = Path(__file__).resolve().parents[2]


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]])
def test_help_names_every_verb(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    out = capsys.readouterr().out
    for verb, (_, about) in VERBS.items():
        assert re.search(rf"^  {verb} +{re.escape(about)}$", out, re.MULTILINE)


def test_an_unknown_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fly"]) == 2
    assert "No such command 'fly'" in capsys.readouterr().err


def test_ctrl_c_within_any_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.tools.ids.read", interrupted)
    assert main(["id", "x"]) == 130


def test_ctrl_c_while_a_script_imports_its_program() -> None:
    code = "import signal; from penstock.command import scripts; "
    code += "scripts.import_module = lambda _: signal.raise_signal(2); scripts.nsqd()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_a_second_ctrl_c_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    stop = Stop()
    stop.ask(signal.SIGINT)
    assert (stop.is_set(), codes) == (True, [])
    stop.ask(signal.SIGINT)
    assert codes == [130]


def test_typer_and_rich_are_imported_when_they_are_wanted() -> None:
    code = "import sys; from penstock.tools.main import main; main({}); print([one for one in "
    code += "('typer', 'rich.console') if one in sys.modules])"
    for words, wanted in ((["--version"], "[]"), (["id", "x"], "['typer']")):
        answer = subprocess.run([sys.executable, "-c", code.format(words)], capture_output=True)
        assert answer.stdout.decode().splitlines()[-1] == wanted


def test_daemons_and_utilities_import_neither_typer_nor_rich() -> None:
    names = [f"penstock.{name}.main" for name in DAEMONS]
    names += [f"penstock.tools.{name}" for name in UTILITIES]
    code = f"import sys, {', '.join(names)}; print({{'typer', 'rich'}} & sys.modules.keys())"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert answer.stdout == b"set()\n"


# Arguments that each has here; others that do not go with them, and what it says of those.
WRONG: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "nsq_stat": ("", [
        ("--channel=c", "--topic '': a valid topic name is required"),
        ("--topic=t", "--channel '': a valid channel name is required"),
        ("--topic=t --channel=c", "--nsqd-http-address or --lookupd-http-address required"),
        ("--topic=t --channel=c --count=x", "--count 'x': must be a number, 0 or more"),
        ("--topic=t --channel=c --interval=0s", "interval: 0 is not valid: 1ns at least"),
        ("--http-client-request-timeout=-1s", "'-1s' is not valid: 1ns at least"),
    ]),
    "nsq_tail": ("", [
        ("", "--topic required"),
        ("--topic=t", "--nsqd-tcp-address or --lookupd-http-address required"),
        ("--topic=t --nsqd-tcp-address=127.0.0.1:1", "127.0.0.1:1"),  # nobody is there
        ("--topic=t --nsqd-tcp-address=a:1 --n=-1", "n: -1 is not valid: 0 at least"),
        ("--topic=t --nsqd-tcp-address=a:1 --consumer-opt=fly", "is no option"),
    ]),
    "nsq_to_file": ("--nsqd-tcp-address=a:1", [
        ("", "--topic required"),
        ("--topic=t --log-prefix=x --gzip --gzip-level=0", "gzip-level: 0 is not valid: 1 to 9"),
        ("--topic=t --gzip '--filename-format=<TOPIC>.log'", "must have <REV>"),
        ("--topic=t --sync-interval=0s", "sync-interval: 0 is not valid: 1ns at least"),
        ("'--topic-pattern=^a'", "--topic-pattern needs --lookupd-http-address"),
        ("--topic=t '--topic-pattern=('", "--topic-pattern"),
    ]),
    "nsq_to_http": ("--topic=t --nsqd-tcp-address=127.0.0.1:1", [
        ("--post=http://a", "nsq_to_http: 127.0.0.1:1: "),  # nobody is there
        ("", "give --post or --get"),
        ("--post=http://a --get=http://a/%s", "give --post or --get"),
        ("--get=http://a/", "must have exactly one %s"),
        ("--get=http://a/%s/%s", "must have exactly one %s"),
        ("--get=http://a/%s --content-type=x", "--content-type only goes with --post"),
        ("--post=a:80", "not an http or https URL"),
        ("--post=http:///a", "not an http or https URL"),
        ("--get=http://[a/%s", "a malformed URL"),
        ("--post=http://a --header=novalue", 'must be "Name: value"'),
        ("--post=http://a '--header=: v'", 'must be "Name: value"'),
        ("--post=http://a --sample=0", "must be above 0 and 1 at most"),
        ("--post=http://a --mode=every", "hostpool"),
        ("--post=http://a --n=0", "n: 0 is not valid: 1 at least"),
    ]),
    "nsq_to_nsq": ("--nsqd-tcp-address=a:1", [
        ("--destination-nsqd-tcp-address=a:1", "--topic required"),
        ("--topic=t", "--destination-nsqd-tcp-address required"),
        ("--topic=t --destination-nsqd-tcp-address=a:1 --require-json-value=x", "needs"),
    ]),
    "to_nsq": ("", [
        ("--nsqd-tcp-address=a:1", "a valid topic name is required"),
        ("--topic=t", "--nsqd-tcp-address required"),
        ("--topic=t --nsqd-tcp-address=127.0.0.1:1", "127.0.0.1:1"),
        ("--topic=t --nsqd-tcp-address=a:1 --delimiter=ab", "must be a single byte"),
    ]),
}  # fmt: skip


@each("utility", UTILITIES)
def test_wrong_use_of_a_utility(utility: str, capsys: pytest.CaptureFixture[str]) -> None:
    """There is one code for it."""
    main_of = import_module(f"penstock.tools.{utility}").main
    assert main_of(["--help"]) == 0
    usual, wrong = WRONG[utility]
    for arguments, output in [*wrong, ("--fly", "flag provided but not defined: -fly")]:
        assert main_of(shlex.split(f"{usual} {arguments}")) == 1
        assert output in capsys.readouterr().err, arguments
