"""Many cases in one test: a table of values, or the seeds of random histories; and what async tests
are told about.

    @each(("text", "value"), [("1", 1), ("0x1", None)])
    def test_numbers(text: str, value: int | None) -> None: ...

`pytest.mark.parametrize` makes an item of every case, with fixtures, reports and messages between
workers of its own. That is worth it where cases are stories; a table of inputs is one behaviour.
The first case that fails is named.
"""

import functools
import inspect
import os
import random
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

IS_LONG = bool(os.environ.get("PENSTOCK_TEST_LONG"))  # set by `make test-long`

_Test = Callable[..., Any]
T = TypeVar("T")


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[_Test], _Test]:
    single = isinstance(names, str)
    keys = (names,) if isinstance(names, str) else names
    rows = [_values(case, single) for case in cases]

    def decorate(test: _Test) -> _Test:
        @contextmanager
        def named(row: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
            case = dict(zip(keys, row, strict=True))
            try:
                yield case
            except BaseException as error:
                error.add_note(f"with {case}")
                raise

        def run(*arguments: Any, **fixtures: Any) -> None:
            for row in rows:
                with named(row) as case:
                    test(*arguments, **case, **fixtures)

        async def run_async(*arguments: Any, **fixtures: Any) -> None:
            for row in rows:
                with named(row) as case:
                    await test(*arguments, **case, **fixtures)

        return _without(keys, test, run_async if inspect.iscoroutinefunction(test) else run)

    return decorate


def within(
    make: Callable[[], AbstractAsyncContextManager[Any]], count: int = 1
) -> Callable[[_Test], _Test]:
    """An async test whose first arguments are what `make` yields, so many of them."""

    def decorate(test: _Test) -> _Test:
        async def run(**fixtures: Any) -> None:
            async with make() as made:
                await test(*(made if count > 1 else (made,)), **fixtures)

        return _without(tuple(inspect.signature(test).parameters)[:count], test, run)

    return decorate


def _without(names: tuple[str, ...], test: _Test, run: _Test) -> _Test:
    """`run` as the test, without these of its arguments."""
    functools.update_wrapper(run, test)
    signature = inspect.signature(test)
    kept = [one for name, one in signature.parameters.items() if name not in names]
    run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return run


def _values(case: Any, single: bool) -> tuple[Any, ...]:
    if hasattr(case, "marks"):  # of pytest.param, whose name for it says more than its values do
        return tuple(case.values)
    return (case,) if single else tuple(case)


def ended(work: Generator[None, None, T]) -> T:
    """What it returns after all its steps."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            value: T = end.value
            return value


def seeds(few: int, many: int) -> range:
    """Of random histories: `few` in `make test`, `many` in `make test-long`."""
    return range(many if IS_LONG else few)


def fresh_seed() -> int:
    """Another one in each run of `make test-long`, which is there to find what nobody has seen;
    `make test` says yes or no to a change, and plays the same histories every time.
    PENSTOCK_TEST_SEED repeats one. Tests show it when they fail."""
    given = os.environ.get("PENSTOCK_TEST_SEED")
    return int(given or (random.SystemRandom().randrange(1 << 32) if IS_LONG else 1))


def examples(many: int) -> int:
    """Of Hypothesis: a fifth in `make test`."""
    return many if IS_LONG else max(10, many // 5)
