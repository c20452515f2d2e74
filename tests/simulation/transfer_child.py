"""A process that commits transfers up to a named point of `tests/simulation/child.py`, where it exits at once.

    python transfer_child.py URL SEED TRANSFERS POINT NTH

Barriers come all the time, also between the statements of a transaction. It prints each transfer whose COMMIT has
returned."""

from __future__ import annotations

import sys

from hummock.meta import open_meta_store
from hummock.object_store import open_object_store
from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.session.session import Session
from tests.simulation import transfers
from tests.simulation.child import KilledMetaStore, KilledObjectStore, Killer

BARRIER_MS = 3


def main(url: str, seed: int, count: int, point: str, nth: int) -> None:
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
        print("transfer 0", flush=True)
        for number in range(1, count + 1):
            session.sql(f"BEGIN; {transfers.block(seed, number)}; COMMIT")
            print(f"transfer {number}", flush=True)
        killer.is_armed = False


if __name__ == "__main__":
    url, seed, count, point, nth = sys.argv[1:]
    main(url, int(seed), int(count), point, int(nth))
