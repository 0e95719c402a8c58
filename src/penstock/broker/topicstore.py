"""`topic.json` of one topic, and what becomes of a write that fails.

A change that cannot be written is refused and taken back. The file may all the same hold it: its
old content is put back, and that may fail as well. So the topic is written again as it is in
memory, about once a second, until the disk has taken it. `/ping` names the trouble until then,
though nobody asks for another change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.health import Trouble
from penstock.broker.topicfile import TopicFile, check_topic_file, write_topic_file
from penstock.errors import StorageError

if TYPE_CHECKING:
    from penstock.broker.context import Context


class TopicStore:
    def __init__(
        self,
        context: Context,
        topic_name: str,
        directory: str,
        content: Callable[[], TopicFile],
        on_failed: Callable[[], None],
    ) -> None:
        """`content` is the topic as it is in memory; `on_failed` sees to it that `settle` is
        called."""
        self._context = context
        self._topic_name = topic_name
        self._directory = directory
        self._content = content
        self._on_failed = on_failed
        self._failed = False
        self.kept = True  # False: nothing is written

    def write_or(self, undo: Callable[[], object]) -> None:
        """Write what is in memory; when that fails, take the change back and raise StorageError."""
        try:
            self.write(self._content())
        except StorageError:
            undo()
            raise

    def write(self, file: TopicFile) -> None:
        """Raises StorageError. A file that a start could not read is refused, and no trouble."""
        check_topic_file(self._directory, file)
        if not self.kept:
            return
        try:
            write_topic_file(self._context.disk, self._directory, file)
        except StorageError as error:
            self._failed = True
            self._context.health.report(
                self._topic_name, Trouble.TOPIC_FILE, f"{error}; changes are refused"
            )
            self._on_failed()
            raise
        if self._failed:
            self._failed = False
            self._context.health.clear(self._topic_name, Trouble.TOPIC_FILE)

    def settle(self) -> bool:
        """Write again after a failure. True when the file is as the topic is."""
        if self._failed:
            try:
                self.write(self._content())
            except StorageError:
                return False  # `write` has reported it
        return True
