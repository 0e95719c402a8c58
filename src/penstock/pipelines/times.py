"""Times of settings (`penstock.times`)."""

from datetime import UTC, datetime

from penstock.errors import ConfigError
from penstock.pipelines.progress import Progress
from penstock.pipelines.settings import Settings
from penstock.times import at, format_time, micros, read_time


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
