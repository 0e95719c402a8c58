"""Which form a process gets, and what it says when it gets another than one would wish."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import penstock.kernel
from penstock.kernel import ENVIRONMENT_NAME, load

REPORT = "from penstock import kernel; print(kernel.IMPLEMENTATION, kernel.crc32c.__module__)"
# any one module that is missing is enough: a half-built kernel is none
WITHOUT_COMPILED = "import sys; sys.modules['penstock.kernel.fast.engine'] = None; "


def run(code: str, form: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != ENVIRONMENT_NAME}
    if form is not None:
        environment[ENVIRONMENT_NAME] = form
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("form", "report"),
    [
        (None, "compiled penstock.kernel.fast.crc32c\n"),
        ("", "compiled penstock.kernel.fast.crc32c\n"),
        ("compiled", "compiled penstock.kernel.fast.crc32c\n"),
        ("pure", "pure penstock.kernel.pure.crc32c\n"),
    ],
)
def test_the_environment_chooses(form: str | None, report: str) -> None:
    done = run(REPORT, form)
    assert (done.stdout, done.stderr, done.returncode) == (report, "", 0)


def test_pure_loads_nothing_compiled() -> None:
    code = (
        "from penstock import kernel; import sys; "
        "print([name for name in sys.modules if name.startswith('penstock.kernel.fast')])"
    )
    assert run(code, "pure").stdout == "[]\n"


def test_without_a_compiled_kernel_the_log_says_what_to_do() -> None:
    done = run(WITHOUT_COMPILED + REPORT, None)
    assert done.stdout == "pure penstock.kernel.pure.crc32c\n"
    assert done.stderr.count("\n") == 1
    assert "build_ext --inplace" in done.stderr


def test_a_compiled_kernel_that_was_asked_for_must_be_there() -> None:
    done = run(WITHOUT_COMPILED + REPORT, "compiled")
    assert done.returncode == 1
    assert "ImportError: the compiled kernel cannot be imported" in done.stderr


def test_another_word_is_an_error() -> None:
    done = run(REPORT, "fast")
    assert done.returncode == 1
    assert "PENSTOCK_KERNEL='fast' is not one of compiled, pure" in done.stderr


def test_every_public_name_is_bound() -> None:
    for name in penstock.kernel.__all__:
        assert getattr(penstock.kernel, name) is not None


@pytest.mark.parametrize("form", ["compiled", "pure"])
def test_a_form_has_names_of_its_own(form: str) -> None:
    kernel = load(form)
    assert form == kernel.IMPLEMENTATION
    package = {"compiled": "penstock.kernel.fast.", "pure": "penstock.kernel.pure."}[form]
    for name in ("crc32c", "hex_to_id", "check_batch", "decode_columns", "Engine"):
        assert getattr(kernel, name).__module__.startswith(package)


def bound(monkeypatch: pytest.MonkeyPatch, form: str | None) -> str:
    """What this process would get if it began with that environment."""
    if form is None:
        monkeypatch.delenv(ENVIRONMENT_NAME, raising=False)
    else:
        monkeypatch.setenv(ENVIRONMENT_NAME, form)
    implementation: str = penstock.kernel._bind().IMPLEMENTATION
    return implementation


def test_the_choice_is_the_environments(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert bound(monkeypatch, None) == bound(monkeypatch, "compiled") == "compiled"
    assert bound(monkeypatch, "pure") == "pure"
    assert caplog.text == ""
    with pytest.raises(ImportError, match="PENSTOCK_KERNEL='fast' is not one of compiled, pure"):
        bound(monkeypatch, "fast")


def test_a_half_built_kernel_is_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "penstock.kernel.fast.engine", None)
    with pytest.raises(ImportError, match="build_ext --inplace"):
        bound(monkeypatch, "compiled")
    assert bound(monkeypatch, None) == "pure"
    assert "going on with the slower pure form" in caplog.text
    monkeypatch.setitem(sys.modules, "penstock.kernel.pure.engine", None)
    with pytest.raises(ImportError, match=r"kernel\.pure\.engine"):
        bound(monkeypatch, None)  # then there is none at all


def test_no_other_names() -> None:
    with pytest.raises(AttributeError, match="conjure"):
        load("pure").conjure  # noqa: B018
    with pytest.raises(AttributeError, match="conjure"):
        penstock.kernel.conjure  # noqa: B018
