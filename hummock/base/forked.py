"""What was opened before a fork belongs to the parent: the child's copy is marked, and whoever uses it is refused.

Threads do not come with a fork and locks come as they are, some of them held for ever; so nothing may wait on what the
child got. Nothing is done at the fork but marking.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class ForkAware(Protocol):
    """What `watch` takes."""

    def note_fork(self) -> None:
        """This process is a child that did not open it. Takes no lock and raises nothing."""


_watched: WeakSet[ForkAware] = WeakSet()


def watch(owner: ForkAware) -> None:
    """From here on every fork of this process is noted by its copy of `owner`, as long as that lives."""
    _watched.add(owner)


def _note_all() -> None:
    for owner in list(_watched):
        owner.note_fork()


os.register_at_fork(after_in_child=_note_all)
