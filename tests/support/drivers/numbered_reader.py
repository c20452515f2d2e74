"""The base of the readers of test sources: what all of them do alike."""

from __future__ import annotations

from stream.connector.base import SplitReader


class NumberedReader(SplitReader):
    """A reader whose offset is the number of the next record, `next`, and that never ends."""

    def __init__(self, first: int = 0) -> None:
        self.next = first

    @property
    def offset(self) -> str:
        return str(self.next)

    def seek(self, offset: str) -> None:
        self.next = int(offset)

    @property
    def is_finished(self) -> bool:
        return False
