"""Fork detection: objects opened before a fork belong to the parent; the child's copies are marked, and raise on use.

A child has none of the parent's threads, and copies of its locks, some of them held forever; so nothing may wait on an
inherited object. The fork handler only marks.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class ForkAware(Protocol):
    """An object that `watch` notifies."""

    def note_fork(self) -> None:
        """Called in a child process that did not open the object. Must not acquire locks or raise."""


_watched: WeakSet[ForkAware] = WeakSet()


def watch(owner: ForkAware) -> None:
    """Calls `owner.note_fork` in every future child process; holds a weak reference."""
    _watched.add(owner)


def _note_all() -> None:
    for owner in list(_watched):
        owner.note_fork()


os.register_at_fork(after_in_child=_note_all)
