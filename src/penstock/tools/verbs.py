"""What the verbs of `penstock` share: how one ends, and how it speaks to people and to programs.

Exit codes: 0 done, 1 it failed (one line on stderr says why), 2 the command line is wrong, 130
Ctrl-C within something that was not done. A verb that goes on until Ctrl-C ends with 0.

What destroys asks for the name of the thing; `--yes` stands for the answer, and is needed where
nobody is there to ask.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

DONE, FAILED, USAGE = 0, 1, 2
INTERRUPTED = 130  # as shells say it: 128 and the number of SIGINT


class WrongUse(PenstockError):
    """Arguments that do not go together, that are missing, or that cannot be right."""


if TYPE_CHECKING:
    _SubParsers = argparse._SubParsersAction["VerbParser"]
else:
    _SubParsers = argparse._SubParsersAction


class _Verbs(_SubParsers):
    """What the list of verbs says of one stands in its own help too."""

    def add_parser(self, name: str, **keywords: Any) -> VerbParser:
        about = str(keywords.get("help", ""))
        if about:
            keywords.setdefault("description", f"{about[0].upper()}{about[1:]}.")
        return super().add_parser(name, **keywords)


class VerbParser(argparse.ArgumentParser):
    """Of a verb, or of a verb below one. The help ends with its examples, which a test tries."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **keywords: Any) -> None:
        lines = [f"  {example}" for example in examples]
        if lines:
            keywords["epilog"] = "\n".join(["examples:", *lines])
        keywords["formatter_class"] = _HelpFormatter
        super().__init__(*arguments, **keywords)
        self.register("action", "parsers", _Verbs)
        self._is_mixing = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """argparse takes an optional word as left out where an option comes first, and refuses it
        behind that: here `orders --json billing` is the same as `orders billing --json`."""
        if self._is_mixing or not self._has_optional_words():
            return super().parse_known_args(args, namespace)
        self._is_mixing = True  # what follows comes here again, for the options and for the words
        try:
            return super().parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixing = False

    def _has_optional_words(self) -> bool:
        counts = [action.nargs for action in self._get_positional_actions()]
        has_rest = argparse.PARSER in counts or argparse.REMAINDER in counts
        return not has_rest and (argparse.OPTIONAL in counts or argparse.ZERO_OR_MORE in counts)


class _HelpFormatter(argparse.HelpFormatter):
    """Descriptions are filled as usual, examples stay lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("examples:"):
            return text
        return super()._fill_text(text, width, indent)


def run_verb(
    parser: argparse.ArgumentParser,
    argv: Sequence[str],
    act: Callable[[argparse.Namespace], int],
) -> int:
    try:
        arguments = parser.parse_args(list(argv))
    except SystemExit as leaving:  # argparse has said what is wrong, or printed the help
        return DONE if leaving.code in (None, 0) else USAGE
    try:
        return act(arguments)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has seen enough
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except WrongUse as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return USAGE
    except (PenstockError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return FAILED


def print_json(document: Any, indent: int | None = 2) -> None:
    print(json.dumps(document, indent=indent, ensure_ascii=False), flush=True)


def confirm(arguments: argparse.Namespace, question: str, name: str) -> bool:
    """What cannot be taken back: a person types the name of the thing, a program says --yes."""
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise PenstockError(f"{question}: give --yes (stdin is not a terminal)")
    print(f"{question}? Type {name} to do it: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() == name:
        return True
    print("nothing was done", file=sys.stderr)
    return False


def add_json(parser: argparse.ArgumentParser, about: str = "for programs") -> None:
    parser.add_argument("--json", action="store_true", help=about)


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do it without asking")
