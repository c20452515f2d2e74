"""A process that serves the inbox of a store up to a named point, where it exits at once, as by `kill -9`.

`main` runs in a process of its own (`tests/support/drivers/spawned.py`), with a point as in child.py. It ends by itself
once the other end of its link is closed."""

from __future__ import annotations

from contextlib import suppress
from multiprocessing.connection import Connection

from hummock.meta import open_meta_store
from hummock.object_store import open_object_store
from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.session.session import Session
from tests.simulation.child import NEVER_MS, KilledMetaStore, KilledObjectStore, Killer, storage_of


def main(url: str, point: str, nth: int, link: Connection) -> None:
    killer = Killer(point, nth)
    playground = Playground(
        KilledObjectStore(open_object_store(url), killer),
        KilledMetaStore(open_meta_store(url), killer),
        PlaygroundOptions(stream=StreamOptions(barrier_interval_ms=NEVER_MS, inbox_poll_ms=20),
                          storage=storage_of(point)),
        observer=lambda step, epoch: killer.reach(step.value),
    )
    with Session(playground):
        killer.is_armed = True
        with suppress(EOFError):
            link.recv()
        killer.is_armed = False
