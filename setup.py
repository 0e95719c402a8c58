"""Builds the compiled kernel. Without a C compiler the install goes on and the pure twin runs.

`PENSTOCK_BUILD=later` installs without building: the Makefile builds in place as a step of its own.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

PACKAGES = ("src/penstock/kernel/fast", "src/penstock/bench")
CFLAGS = ["-O3", "-fno-strict-aliasing", "-Wno-unused-function", "-Wno-sign-compare"]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
}


def kernel_extensions() -> list[Extension]:
    sources = [source for package in PACKAGES for source in sorted(Path(package).glob("*.pyx"))]
    return [
        Extension(
            ".".join(source.with_suffix("").parts[1:]),
            [source.as_posix()],
            extra_compile_args=CFLAGS,
            optional=True,
        )
        for source in sources
    ]


def cythonized() -> list[Extension]:
    from Cython.Build import cythonize

    modules: list[Extension] = cythonize(
        kernel_extensions(),
        compiler_directives=DIRECTIVES,
        include_path=["src"],
        nthreads=os.cpu_count() or 1,
    )
    for module in modules:
        module.optional = True
    return modules


setup(ext_modules=[] if os.environ.get("PENSTOCK_BUILD") == "later" else cythonized())
