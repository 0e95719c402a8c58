"""`penstock completion bash|zsh`: a script that completes verbs, their verbs and their options.

The words come from the parsers themselves, so they are never out of date. Verbs and options stand
in the script; for a value it runs `penstock completion names WORD ...`, which knows what belongs
there and asks the daemons (`completing`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from penstock.tools.completing import complete
from penstock.tools.verbs import DONE, VerbParser, run_verb


class Words(NamedTuple):
    """What may follow one verb: `below` for its own verbs, by name."""

    options: tuple[str, ...]
    below: dict[str, Words]


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
    if argv[:1] == ["names"]:
        print("\n".join(complete(argv[1:])))
        return DONE
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    words = all_words()
    print(bash(words) if arguments.shell == "bash" else zsh(words))
    return DONE


def all_words() -> dict[str, Words]:
    """Every verb of `penstock`. Daemons have flags, the others an argparse parser."""
    from penstock.tools.main import VERBS

    found: dict[str, Words] = {}
    for verb, entry in VERBS.items():
        module = import_module(entry.module)
        if hasattr(module, "parser"):
            found[verb] = _words(module.parser())
        elif hasattr(module, "FLAGS"):
            found[verb] = Words(tuple(f"--{flag.name}" for flag in module.FLAGS), {})
        else:
            found[verb] = Words((), {})
    return found


def _words(parser: argparse.ArgumentParser) -> Words:
    options: list[str] = []
    below: dict[str, Words] = {}
    for action in parser._actions:
        options += [option for option in action.option_strings if option.startswith("--")]
        if isinstance(action, argparse._SubParsersAction):
            below |= {name: _words(child) for name, child in action.choices.items()}
        elif not action.option_strings and action.choices:
            below |= {str(choice): Words((), {}) for choice in action.choices}
    return Words(tuple(options), below)


def _cases(words: dict[str, Words]) -> list[str]:
    """Lines of a shell `case` over "verb" and "verb/verb below"."""
    lines = []
    for verb, own in words.items():
        for name, child in own.below.items():
            lines.append(f"    {verb}/{name}) words='{' '.join(child.options)}' ;;")
        options = " ".join((*own.below, *own.options))
        lines.append(f"    {verb}/*) words='{options}' ;;")
    return lines


_BASH = """# bash completion of penstock
_penstock() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words='' names=''
  local verb=${{COMP_WORDS[1]}} below=${{COMP_WORDS[2]}}
  case "$current" in =|:) current='' ;; esac
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{verbs}' -- "$current")); return
  fi
  [ "$COMP_CWORD" -eq 2 ] && below=''
  case "$verb/$below" in
{cases}
  esac
  case "$current" in
    -*) ;;
    *) case "$verb/$below" in
         {static}) ;;
         *) names=$(penstock completion names "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null) ;;
       esac ;;
  esac
  COMPREPLY=($(compgen -W "${{names:-$words}}" -- "$current"))
}}
complete -o default -F _penstock penstock"""

_ZSH = """#compdef penstock
# zsh completion of penstock
_penstock() {{
  local current=${{words[CURRENT]}} verb=${{words[2]}} below=${{words[3]}} found='' names=''
  if (( CURRENT == 2 )); then
    compadd -- {verbs}; return
  fi
  (( CURRENT == 3 )) && below=''
  case "$verb/$below" in
{cases}
  esac
  if [[ "$current" != -* || "$current" == *=* ]]; then
    case "$verb/$below" in
      {static}) ;;
      *) names=$(penstock completion names "${{(@)words[2,CURRENT]}}" 2>/dev/null) ;;
    esac
  fi
  compadd -- ${{=${{names:-$found}}}}
  _files
}}
compdef _penstock penstock"""


def bash(words: dict[str, Words]) -> str:
    return _filled(_BASH, words, "\n".join(_cases(words)))


def zsh(words: dict[str, Words]) -> str:
    return _filled(_ZSH, words, "\n".join(_cases(words)).replace(") words=", ") found="))


def _filled(script: str, words: dict[str, Words], cases: str) -> str:
    """`static`: what follows is a verb below, which stands in the script."""
    static = "|".join(f"{verb}/" for verb, own in words.items() if own.below)
    return script.format(verbs=" ".join(words), cases=cases, static=static)
