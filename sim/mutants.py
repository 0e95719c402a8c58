"""Rules taken away one by one from outside: a world that does not notice proves nothing.

A mutant is a text of the product that stands there once, and what stands there instead. A process
of its own imports the product with that change and plays histories until one breaks a promise, or
all have been played; or it runs a test that plays histories of its own:

    python -m sim.mutants                  # all, one after the other
    python -m sim.mutants learner_counted  # one, and the seed that shows it
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from subprocess import run
from types import CodeType, ModuleType
from typing import NamedTuple

from sim.mutated import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parent.parent
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
FOUND = 3  # exit code of the process; 0: it was not, and else the process has failed


class Verdict(NamedTuple):
    is_found: bool
    text: str  # the seed and the promise, or what did not notice


class _Changed(SourceFileLoader):
    """Compiles the module with the change. Byte code on the disk is neither used nor written."""

    def __init__(self, name: str, path: str, mutant: Mutant) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = self.source_to_code(changed(self._mutant).encode(), self.path)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Changed(fullname, spec.origin, self._mutant)
        return spec


def changed(mutant: Mutant) -> str:
    """The module's text with the change."""
    path = ROOT / "src" / Path(*mutant.module.split(".")).with_suffix(".py")
    text = path.read_text()
    count = text.count(mutant.text)
    if count != 1:
        raise LookupError(f"{mutant.name}: its text stands {count} times in {path}")
    return text.replace(mutant.text, mutant.instead)


def played(mutant: Mutant) -> Verdict:
    """In this process, which must not have imported the product yet."""
    sys.meta_path.insert(0, _Finder(mutant))
    found = _found(mutant)
    if found is None:
        return Verdict(False, f"{mutant.within or 'the'} histories of {mutant.world} do not notice")
    return Verdict(True, found)


def _found(mutant: Mutant) -> str | None:
    if mutant.world.startswith("tests/"):
        return _failed(mutant.world)
    from sim.brokers.histories import play as play_brokers
    from sim.histories import find
    from sim.protocol.histories import play

    if mutant.world == "brokers":
        found = find(play_brokers, 0, mutant.within)
    else:
        found = find(lambda seed: play(seed, mutant.reckless, mutant.focus), 0, mutant.within)
    return None if found is None else f"seed {found.seed}: {found.text}"


def _failed(path: str) -> str | None:
    import pytest

    code = pytest.main([path, "-x", "-q", "-p", "no:cacheprovider"])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{path}: pytest ended with {code}")
    return f"{path} fails" if code == pytest.ExitCode.TESTS_FAILED else None


def try_out(mutant: Mutant) -> Verdict:
    """In a process of its own."""
    command = [sys.executable, "-m", "sim.mutants", mutant.name]
    done = run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, FOUND):
        raise RuntimeError(f"{mutant.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return Verdict(done.returncode == FOUND, done.stdout.strip().rpartition("\n")[2])


def main(names: Sequence[str]) -> int:
    """One is played here, and FOUND says that it was found; of all, 1 says that one was not."""
    if len(names) == 1:
        verdict = played(BY_NAME[names[0]])
        print(verdict.text)
        return FOUND if verdict.is_found else 0
    missed = 0
    for mutant in MUTANTS:
        verdict = try_out(mutant)
        missed += not verdict.is_found
        print(f"{mutant.name}: {verdict.text}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
