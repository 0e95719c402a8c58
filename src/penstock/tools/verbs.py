"""What the verbs of `penstock` share: how one ends, and how it speaks to people and to programs.

Exit codes: 0 done, 1 it failed (one line on stderr says why), 2 the command line is wrong, 130
Ctrl-C within something that was not done. A verb that goes on until Ctrl-C ends with 0.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from penstock.errors import PenstockError

DONE, FAILED, USAGE = 0, 1, 2
INTERRUPTED = 130  # as shells say it: 128 and the number of SIGINT


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
    except (PenstockError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return FAILED


def print_json(document: Any, indent: int | None = 2) -> None:
    print(json.dumps(document, indent=indent, ensure_ascii=False), flush=True)
