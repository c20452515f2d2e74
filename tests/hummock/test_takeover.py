"""Two writers on one directory, in processes that are frozen or killed: the older one never matters again."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from hummock.errors import MetaStoreBusy
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.sqlite import SqliteMetaStore
from hummock.object_store.local import LocalObjectStore
from tests.suites.manager_parts import Files, epoch_of, names_of

WRITER = """
import sys
from hummock.errors import Fenced, MetaStoreBusy
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.sqlite import SqliteMetaStore
from hummock.object_store.local import LocalObjectStore
from tests.suites.manager_parts import Files, epoch_of

directory, seed = sys.argv[1:]
manager = HummockManager(SqliteMetaStore(directory + "/meta.sqlite"), LocalObjectStore(directory))
session, files = manager.claim_writer(), Files(seed)
number = manager.committed_epoch >> 16
print("claimed", session.generation, flush=True)
try:
    while True:
        number += 1
        info = files.make(number)
        print("trying", number, info.name, flush=True)
        manager.commit_epoch(session, epoch_of(number), [info])
        print("committed", number, info.name, flush=True)
except Fenced:
    print("fenced", flush=True)
"""


def start(directory, seed):
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(directory), str(seed)], text=True,
                               stdout=subprocess.PIPE,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert process.stdout.readline().startswith("claimed")
    return process


def open_here(directory):
    store = SqliteMetaStore(directory / "meta.sqlite", busy_timeout_ms=300)
    return HummockManager(store, LocalObjectStore(directory)), store


def read_until(process, count):
    """Lines of the writer until it has committed `count` times."""
    lines = []
    while sum(line.startswith("committed") for line in lines) < count:
        lines.append(process.stdout.readline())
    return lines


def read_rest(process):
    """What the writer said until it ended; by its own stream, which may have read ahead."""
    with process.stdout:
        lines = process.stdout.read().splitlines()
    process.wait(30)
    return lines


def named(lines, verb):
    return [line.split()[2] for line in lines if line.startswith(verb)]


@pytest.mark.parametrize("seed", range(3))
def test_a_frozen_writer_is_fenced_when_it_wakes(tmp_path, seed):
    rng, process = random.Random(seed), start(tmp_path, seed)
    lines = read_until(process, rng.randrange(1, 40))
    process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    try:
        manager, store = open_here(tmp_path)
        session = manager.claim_writer("successor")
    except MetaStoreBusy:       # frozen inside its transaction: the take-over ends in time and says why
        process.send_signal(signal.SIGCONT)
        manager, store = open_here(tmp_path)
        session = manager.claim_writer("successor")
    assert time.monotonic() - began < 10
    last = (manager.committed_epoch >> 16) + 5
    info = Files(f"successor {seed}").make(last)
    manager.commit_epoch(session, epoch_of(last), [info])
    process.send_signal(signal.SIGCONT)
    rest = read_rest(process)
    assert rest[-1] == "fenced"
    committed = [*named(lines, "committed"), *named(rest, "committed")]
    tried = [*named(lines, "trying"), *named(rest, "trying")]
    names = set(names_of(manager.refresh()))
    assert names - {info.name} <= set(tried)
    assert set(committed) <= names
    assert len(names) - 1 <= len(committed) + 1
    assert tried[-1] not in names
    store.close()


def test_killed_writers_lose_at_most_the_commit_under_way(tmp_path):
    rng, acknowledged, tried = random.Random(7), [], set()
    for round_number in range(5):
        process = start(tmp_path, round_number)
        lines = read_until(process, rng.randrange(1, 50))
        process.kill()
        lines += read_rest(process)
        acknowledged += named(lines, "committed")
        tried |= set(named(lines, "trying"))
        manager, store = open_here(tmp_path)
        names = set(names_of(manager.version))
        assert set(acknowledged) <= names <= tried
        assert len(names) <= len(acknowledged) + 1
        acknowledged = sorted(names)
        store.close()
