"""Builds the compiled kernel. Without a C compiler the install goes on and the pure twin runs.

`PENSTOCK_BUILD` says what is asked for: `later` builds nothing (the Makefile builds in place, as a
step of its own), `kernel` leaves out the load generator of the benchmark, `required` fails where
something does not compile, as a wheel for others must. `PENSTOCK_CFLAGS` replaces `-O3`.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

WANTED = os.environ.get("PENSTOCK_BUILD", "")
KERNEL = "src/penstock/kernel/fast"
PACKAGES = (KERNEL,) if WANTED == "kernel" else (KERNEL, "src/penstock/bench")
OPTIMISED = os.environ.get("PENSTOCK_CFLAGS", "-O3").split()
CFLAGS = [
    *OPTIMISED,
    "-g0",  # Python's own flags ask for debug symbols, which cost a third of the compiler's time
    "-fno-strict-aliasing",
    "-Wno-unused-function",
    "-Wno-sign-compare",
]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
    "auto_pickle": False,  # nothing of the kernel is pickled
}


def sources() -> list[Path]:
    """The largest first: the compiler that takes longest does not start last."""
    found = [path for package in PACKAGES for path in Path(package).glob("*.pyx")]
    if not found:
        sys.exit(f"no Cython sources in {' and '.join(PACKAGES)}: this source tree is incomplete")
    return sorted(found, key=lambda path: (-path.stat().st_size, path))


def extensions() -> list[Extension]:
    return [
        Extension(
            ".".join(source.with_suffix("").parts[1:]),
            [source.as_posix()],
            extra_compile_args=CFLAGS,
        )
        for source in sources()
    ]


class BuildKernel(build_ext):
    """Translates with our directives, all cores at once; only when something is to be compiled."""

    def build_extensions(self) -> None:
        from Cython.Build import cythonize

        translated = cythonize(
            self.extensions,
            compiler_directives=DIRECTIVES,
            include_path=["src"],
            nthreads=os.cpu_count() or 1,
        )
        c_files = {module.name: module.sources for module in translated}
        for module in self.extensions:
            module.sources = c_files[module.name]
            module.optional = WANTED != "required"
        super().build_extensions()


setup(
    ext_modules=[] if WANTED == "later" else extensions(),
    cmdclass={"build_ext": BuildKernel},
)
