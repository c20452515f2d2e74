"""A process that commits transfers up to a named point of `tests/simulation/child.py`, where it exits at once.

`main` runs in a process of its own (`tests/support/drivers/spawned.py`). Barriers come all the time, also between the
statements of a transaction. It sends each transfer whose COMMIT has returned."""

from __future__ import annotations

from multiprocessing.connection import Connection

from hummock.meta import open_meta_store
from hummock.object_store import open_object_store
from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.session.session import Session
from tests.simulation import transfers
from tests.simulation.child import KilledMetaStore, KilledObjectStore, Killer

BARRIER_MS = 3


def main(url: str, seed: int, count: int, point: str, nth: int, link: Connection) -> None:
    killer = Killer(point, nth)
    playground = Playground(
        KilledObjectStore(open_object_store(url), killer),
        KilledMetaStore(open_meta_store(url), killer),
        PlaygroundOptions(stream=StreamOptions(barrier_interval_ms=BARRIER_MS)),
        observer=lambda step, epoch: killer.reach(step.value),
    )
    with Session(playground) as session:
        killer.is_armed = True
        session.sql(f"BEGIN; {transfers.OPEN}; COMMIT")
        link.send("transfer 0")
        for number in range(1, count + 1):
            session.sql(f"BEGIN; {transfers.block(seed, number)}; COMMIT")
            link.send(f"transfer {number}")
        killer.is_armed = False
