"""`each` runs a test for every case and names the one that fails."""

import pytest

from cases import each


def test_every_case_is_run_with_the_fixtures() -> None:
    seen = []

    @each("number", range(2))
    @each(("text", "size"), [("a", 1), ("bb", 2)])
    def run(fixture: str, number: int, text: str, size: int) -> None:
        seen.append((fixture, number, text, size))

    run(fixture="f")
    assert seen == [("f", 0, "a", 1), ("f", 0, "bb", 2), ("f", 1, "a", 1), ("f", 1, "bb", 2)]


def test_the_case_that_fails_is_named() -> None:
    @each("number", range(5))
    def run(number: int) -> None:
        assert number < 3

    with pytest.raises(AssertionError) as caught:
        run()
    assert caught.value.__notes__ == ["with {'number': 3}"]
