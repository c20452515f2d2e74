"""Objects that `with` closes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import TracebackType
from typing import Self


class ClosedAtExit(ABC):
    """A context manager whose end is `close`."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Releases what is held. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def close_all(objects: Iterable[ClosedAtExit]) -> None:
    """Closes each of them, also where that takes it out of `objects`."""
    for each in list(objects):
        each.close()
