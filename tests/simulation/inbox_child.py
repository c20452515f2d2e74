"""A process that serves the inbox of a store up to a named point, where it exits at once, as by `kill -9`.

    python -m tests.simulation.inbox_child URL POINT NTH

POINT as in child.py. It prints `serving`, and ends by itself when its input ends."""

from __future__ import annotations

import sys

from hummock.meta import open_meta_store
from hummock.object_store import open_object_store
from stream.options import StreamOptions
from stream.playground import Playground, PlaygroundOptions
from stream.session.session import Session
from tests.simulation.child import NEVER_MS, KilledMetaStore, KilledObjectStore, Killer


def main(url: str, point: str, nth: int) -> None:
    killer = Killer(point, nth)
    playground = Playground(
        KilledObjectStore(open_object_store(url), killer),
        KilledMetaStore(open_meta_store(url), killer),
        PlaygroundOptions(stream=StreamOptions(barrier_interval_ms=NEVER_MS, inbox_poll_ms=20)),
        observer=lambda step, epoch: killer.reach(step.value),
    )
    with Session(playground):
        killer.is_armed = True
        print("serving", flush=True)
        sys.stdin.read()
        killer.is_armed = False


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
