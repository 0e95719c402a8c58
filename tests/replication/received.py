"""Frames of a link, as if they had come from a socket."""

from collections.abc import Iterator

from penstock.replication.frames import AppendFrame, Frame, Frames, Target


def received(frames: Frames, data: bytes) -> Iterator[tuple[Target, Frame]]:
    """Appends may be kept."""
    while data:
        space = frames.space()
        part, data = data[: len(space)], data[len(space) :]
        space[: len(part)] = part
        for target, frame in frames.filled(len(part)):
            if isinstance(frame, AppendFrame):
                frame = frame._replace(batches=bytes(frame.batches))
            yield target, frame
