"""`penstock completion bash|zsh`: a script with which the shell asks `penstock` itself.

The words come from the parsers and the daemons (`completing`), so they are never out of date. The
script is argcomplete's.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from argcomplete.shell_integration import shellcode

from penstock.tools.verbs import DONE, VerbParser, run_verb

_ZSH = {
    # of the whole line argcomplete sees what is before a pipe too; these are the command's words
    '"$BUFFER"': '"${(j: :)words[1,CURRENT]}"',
    '"$CURSOR"': '"${#${(j: :)words[1,CURRENT]}}"',
    '"${nospace[@]}"\n': '"${nospace[@]}" || _files\n',  # as bash does by `-o default`
}


def parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="penstock completion",
        description="Print a completion script. bash: put it in "
        "~/.local/share/bash-completion/completions/penstock; zsh: in a directory of $fpath, as "
        "_penstock.",
        examples=["penstock completion bash"],
    )
    parser.add_argument("shell", choices=("bash", "zsh"))
    return parser


def completion_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    print(script(arguments.shell))
    return DONE


def script(shell: str) -> str:
    text = shellcode(["penstock"], shell=shell).strip()
    for theirs, ours in _ZSH.items() if shell == "zsh" else ():
        text = text.replace(theirs, ours)
    return text
