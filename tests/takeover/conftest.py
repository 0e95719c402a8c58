"""A broker is brought up on what a take-over made."""

from broker.conftest import disk, no_engine_is_left, quiet, start

__all__ = ["disk", "no_engine_is_left", "quiet", "start"]
