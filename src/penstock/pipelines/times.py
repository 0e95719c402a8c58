"""Times as people read them, and those of settings (`penstock.times`)."""

from datetime import UTC, datetime, timedelta

from penstock.errors import ConfigError
from penstock.pipelines.progress import Progress
from penstock.pipelines.settings import Settings
from penstock.times import format_time, read_time

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> int:
    """Since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def at(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def read_moment(name: str, text: str, now: datetime) -> datetime | None:
    """None when nothing is given. What is relative counts from `now`."""
    if not text:
        return None
    try:
        return at(read_time(text, micros(now) * 1000) // 1000)
    except ValueError as error:
        raise ConfigError(name, text, str(error)) from error


def check_moments(settings: Settings, *names: str) -> None:
    for name in names:
        read_moment(name, settings.text(name), datetime.now(UTC))


def say_moments(
    progress: Progress, settings: Settings, now: datetime, *names: str
) -> list[datetime | None]:
    """These settings, and a line on how each was understood."""
    moments = [read_moment(name, settings.text(name), now) for name in names]
    for name, found in zip(names, moments, strict=True):
        if found is not None:
            progress.say(f"{name} {settings.text(name)} is {format_time(micros(found) * 1000)}")
    return moments


def moment(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%dT%H:%M:%S.%f}Z"


def duration(us: float | None) -> str:
    """`850 us`, `2.1 ms`, `3.4 s`, `12m30s`; nothing for None."""
    if us is None:
        return ""
    if us < 1000:
        return f"{us:.0f} us"
    if us < 1_000_000:
        return f"{us / 1000:.3g} ms"
    seconds = us / 1_000_000
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds // 60:.0f}m{seconds % 60:02.0f}s"
