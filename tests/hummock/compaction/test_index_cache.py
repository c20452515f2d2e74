"""Indexes shared by subcompactions: read once for all threads, and again after an error."""

import threading

import pytest

from hummock.compaction.index_cache import IndexCache


def test_an_index_is_read_once_however_many_ask():
    indexes, reads, found, start = IndexCache(), [], [], threading.Barrier(8)

    def read():
        reads.append(1)
        return object()

    def get():
        start.wait()
        found.append(indexes.get("a", read))

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reads) == 1 and len(found) == 8 and len(set(map(id, found))) == 1


def test_each_file_has_its_own():
    indexes = IndexCache()
    assert [indexes.get(name, lambda name=name: name * 2) for name in "abab"] == ["aa", "bb", "aa", "bb"]


def test_what_could_not_be_read_is_read_again():
    indexes = IndexCache()

    def fail():
        raise ValueError("damaged")

    for _ in range(2):
        with pytest.raises(ValueError, match="damaged"):
            indexes.get("a", fail)
    assert indexes.get("a", lambda: 7) == indexes.get("a", fail) == 7


def test_the_files_that_were_asked_for_last_are_held():
    indexes, reads = IndexCache(limit=2), []
    for name in "abacab":
        indexes.get(name, lambda name=name: reads.append(name) or name)
    assert reads == list("abcb")
