"""What a process gets: the compiled kernel, or without it the functions over bytes alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

import penstock.kernel

REPORT = "from penstock import kernel; print(kernel.crc32c.__module__)"
WITHOUT = "import sys; sys.modules.update({f'penstock.kernel.{n}': None for n in %r}); "
WITHOUT_COMPILED = WITHOUT % (["_codec", "engine", "window", "bulk"],)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_the_compiled_functions_are_taken() -> None:
    done = run(REPORT)
    assert (done.stdout, done.stderr, done.returncode) == ("penstock.kernel._codec\n", "", 0)


def test_without_them_plain_ones_are_taken_in_silence() -> None:
    done = run(WITHOUT_COMPILED + REPORT)
    report = "penstock.kernel.codec.hashes\n"
    assert (done.stdout, done.stderr, done.returncode) == (report, "", 0)


def test_whoever_needs_no_engine_loads_none() -> None:
    code = "from penstock import kernel; import sys; print('penstock.kernel.engine' in sys.modules)"
    assert run(code).stdout == "False\n"


def test_a_client_needs_no_compiled_kernel() -> None:
    done = run(WITHOUT_COMPILED + "import penstock.client, penstock.spark.decode")
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_nsqd_without_it_says_what_to_install() -> None:
    code = "from penstock.nsqd.main import main; sys.exit(main(['-data-path=/nowhere']))"
    done = run(WITHOUT_COMPILED + code)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "the compiled kernel cannot be imported" in line
    assert "install a wheel of penstock" in line


def test_every_public_name_is_bound() -> None:
    for name in penstock.kernel.__all__:
        assert getattr(penstock.kernel, name) is not None


def test_no_other_names() -> None:
    with pytest.raises(AttributeError, match="conjure"):
        penstock.kernel.conjure  # noqa: B018
