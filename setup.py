"""Builds the compiled kernel. Without a C compiler the install goes on: clients need no kernel.

What is compiled again goes by the times of files, and a checkout or a rebase gives new times to
files that are as they were. So a build notes what it was made of, and what is found unchanged by
the next one gets its time back.

`PENSTOCK_BUILD` says what is asked for: `later` builds nothing (the Makefile builds in place, as a
step of its own), `required` fails where something does not compile, as a wheel for others must, and
`development` builds the load generator of the benchmark too. `PENSTOCK_CFLAGS` replaces `-O2`.
"""

import hashlib
import json
import os
import re
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

WANTED = os.environ.get("PENSTOCK_BUILD", "")
KERNEL = "src/penstock/kernel"
LINUX_ONLY = ("bulk", "engine")  # they need epoll; only nsqd needs them
PACKAGES = (KERNEL, "bench") if WANTED == "development" else (KERNEL,)
OPTIMISED = os.environ.get("PENSTOCK_CFLAGS", "-O2").split()
CFLAGS = [
    *OPTIMISED,
    "-g0",  # Python's own flags ask for debug symbols, which cost a third of the compiler's time
    "-fno-strict-aliasing",
    "-w",  # what there is to warn of is Cython's; to look for it takes a tenth of the time
]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "auto_pickle": False,  # nothing of the kernel is pickled
    # what would make the C larger, and nobody reads
    "binding": False,
    "emit_code_comments": False,
}


SEEN = Path("build/sources.json")  # what the last build that ended was made of


def _fingerprint(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def keep_times() -> None:
    """The note is gone while a build runs: after one that failed, times alone count."""
    if not SEEN.exists():
        return
    seen = json.loads(SEEN.read_text())
    SEEN.unlink()
    for name, (fingerprint, time_ns) in seen.items():
        path = Path(name)
        if path.exists() and _fingerprint(path) == fingerprint:
            os.utime(path, ns=(time_ns, time_ns))


def note_times() -> None:
    paths = [path for package in PACKAGES for path in Path(package).glob("*.p[yx][xdi]")]
    seen = {path.as_posix(): (_fingerprint(path), path.stat().st_mtime_ns) for path in paths}
    SEEN.parent.mkdir(exist_ok=True)
    SEEN.write_text(json.dumps(seen))


def weight(source: Path) -> int:
    """In bytes, with the files of one subject that a module is made of."""
    parts = re.findall(r'^include "(.+)"$', source.read_text(), re.MULTILINE)
    return source.stat().st_size + sum((source.parent / one).stat().st_size for one in parts)


def sources() -> list[Path]:
    """The largest first: the compiler that takes longest does not start last."""
    found = [path for package in PACKAGES for path in Path(package).glob("*.pyx")]
    if sys.platform != "linux":
        found = [path for path in found if path.stem not in LINUX_ONLY]
    if not found:
        sys.exit(f"no Cython sources in {' and '.join(PACKAGES)}: this source tree is incomplete")
    return sorted(found, key=lambda path: (-weight(path), path))


def extensions() -> list[Extension]:
    return [
        Extension(
            ".".join(source.with_suffix("").parts).removeprefix("src."),
            [source.as_posix()],
            extra_compile_args=CFLAGS,
        )
        for source in sources()
    ]


class BuildKernel(build_ext):
    """Translates with our directives, all cores at once; only when something is to be compiled."""

    def build_extensions(self) -> None:
        from Cython.Build import cythonize

        keep_times()
        translated = cythonize(
            self.extensions,
            compiler_directives=DIRECTIVES,
            include_path=["src", "."],
            nthreads=os.cpu_count() or 1,
        )
        c_files = {module.name: module.sources for module in translated}
        for module in self.extensions:
            module.sources = c_files[module.name]
            module.optional = not WANTED
        super().build_extensions()
        note_times()


if __name__ == "__main__":  # Cython's processes import this module, since Python 3.14
    modules = [] if WANTED == "later" else extensions()
    setup(ext_modules=modules, cmdclass={"build_ext": BuildKernel})
