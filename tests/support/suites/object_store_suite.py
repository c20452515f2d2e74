"""The contract of every object store. A test class derives from the suite and provides a fixture `store`."""

import threading
from contextlib import suppress

import numpy as np
import pytest

from hummock.errors import InvalidPath, ObjectExists, ObjectNotFound, ObjectStoreError, StoreClosed
from tests.support.drivers.seeds import amount

BAD_PATHS = ["", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/..", "a\0b", "a\nb", "a\\b",
             "x" * 1025, "\ud800", "\x7f"]


class ObjectStoreSuite:
    def test_what_was_put_is_read(self, store):
        store.put("sst/a.data", b"hello")
        assert store.get("sst/a.data") == b"hello"

    def test_any_buffer_can_be_put(self, store):
        numbers = np.arange(10, dtype=np.uint32)
        for number, data in enumerate([bytearray(b"abc"), memoryview(b"abc")[1:], numbers, b""]):
            store.put(f"o{number}", data)
            assert store.get(f"o{number}") == memoryview(data).tobytes()

    def test_a_later_change_of_the_buffer_changes_nothing(self, store):
        data = bytearray(b"abc")
        store.put("a", data)
        data[0] = 0
        assert store.get("a") == b"abc"

    def test_memory_of_the_caller_is_filled_from_any_byte_on(self, store):
        store.put("a", b"0123456789")
        memory = bytearray(b"-" * 6)
        for start, expected in ((0, b"012345"), (3, b"345678"), (7, b"789"), (10, b""), (99, b"")):
            memory[:] = b"-" * 6
            assert store.get_into("a", start, memoryview(memory)) == len(expected)
            assert memory == expected.ljust(6, b"-")
        assert store.get_into("a", 2, memoryview(memory)[:0]) == 0
        with pytest.raises(ObjectNotFound):
            store.get_into("b", 0, memoryview(memory))

    def test_a_written_object_is_seen_whole_or_not_at_all(self, store):
        parts = [b"one", bytearray(b"two"), memoryview(b"-three-")[1:-1], np.arange(3, dtype=np.uint32), b""]
        whole = b"".join(memoryview(part).tobytes() for part in parts)
        with store.create("sst/a") as writer:
            for part in parts:
                writer.write(part)
                assert list(store.list()) == []
        assert store.get("sst/a") == whole
        assert store.head("sst/a").size_bytes == len(whole)

    def test_a_writer_copies_what_it_is_given(self, store):
        data = bytearray(b"abc")
        with store.create("a") as writer:
            writer.write(data)
            data[:] = b"xyz"
            writer.write(data)
        assert store.get("a") == b"abcxyz"

    def test_a_written_object_may_be_empty(self, store):
        store.create("a").close()
        assert store.get("a") == b""

    def test_what_is_given_up_leaves_nothing(self, store):
        aborted = store.create("a")
        aborted.write(b"x" * 100_000)
        aborted.abort()
        aborted.abort()
        with pytest.raises(ZeroDivisionError), store.create("b") as broken:
            broken.write(b"x")
            raise ZeroDivisionError
        assert list(store.list()) == []
        for ended in (aborted, broken):
            with pytest.raises(StoreClosed):
                ended.write(b"more")
            with pytest.raises(StoreClosed):
                ended.close()
        store.put("a", b"free", if_absent=True)

    def test_an_end_is_an_end(self, store):
        writer = store.create("a")
        writer.write(b"1")
        writer.close()
        writer.close()
        writer.abort()
        with pytest.raises(StoreClosed):
            writer.write(b"2")
        assert store.get("a") == b"1"

    def test_a_scratch_object_is_as_others_are(self, store):
        with store.create_scratch("sst/a") as writer:
            for part in (b"one", bytearray(b"two"), b"x" * 100_000):
                writer.write(part)
                assert list(store.list()) == []
        writer.close()
        assert store.get("sst/a") == b"onetwo" + b"x" * 100_000
        with pytest.raises(ObjectExists), store.create_scratch("sst/a") as other:
            other.write(b"second")
        with pytest.raises(ZeroDivisionError), store.create_scratch("b") as broken:
            broken.write(b"x")
            raise ZeroDivisionError
        for ended in (writer, broken):
            with pytest.raises(StoreClosed):
                ended.write(b"more")
        with store.create_scratch("empty"):
            pass
        assert [(found.path, found.size_bytes) for found in store.list()] == [("empty", 0), ("sst/a", 100_006)]
        store.delete(["sst/a"])
        store.put("sst/a", b"free", if_absent=True)

    def test_a_writer_never_replaces_unless_requested(self, store):
        store.put("a", b"first")
        with pytest.raises(ObjectExists) as caught, store.create("a") as writer:
            writer.write(b"second")
        assert caught.value.path == "a"
        assert store.get("a") == b"first"
        with store.create("a", if_absent=False) as writer:
            writer.write(b"third")
        assert store.get("a") == b"third"

    def test_of_two_writers_the_first_to_close_wins(self, store):
        slow, fast = store.create("a"), store.create("a")
        slow.write(b"slow")
        fast.write(b"fast")
        fast.close()
        with pytest.raises(ObjectExists):
            slow.close()
        slow.abort()
        assert store.get("a") == b"fast"

    def test_put_replaces_the_whole_object(self, store):
        store.put("a", b"long long long")
        store.put("a", b"short")
        assert store.get("a") == b"short"
        assert store.head("a").size_bytes == 5

    def test_put_if_absent_never_replaces(self, store):
        store.put("a", b"first", if_absent=True)
        with pytest.raises(ObjectExists) as caught:
            store.put("a", b"second", if_absent=True)
        assert caught.value.path == "a"
        assert store.get("a") == b"first"

    def test_of_many_creators_one_wins(self, store):
        winners, start = [], threading.Barrier(8)

        def create(number):
            start.wait()
            try:
                store.put("race", b"%d" % number * 1000, if_absent=True)
                winners.append(number)
            except ObjectExists:
                pass

        threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) == 1 if store.creates_exclusively else winners
        assert store.get("race") in [b"%d" % winner * 1000 for winner in winners]

    def test_a_reader_never_sees_half_an_object(self, store):
        store.put("a", b"0" * 200_000)
        stop, seen = threading.Event(), set()

        def read():
            while not stop.is_set():
                with suppress(ObjectStoreError):        # a busy server may refuse a read, but not shorten it
                    seen.add(bytes(set(store.get("a"))))

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(amount(15, 50)):
            store.put("a", b"%d" % (number % 10) * 200_000)
        stop.set()
        reader.join()
        assert seen and all(len(kinds) == 1 for kinds in seen)

    @pytest.mark.parametrize(("start", "stop"), [(0, 0), (0, 5), (3, 7), (8, 99), (10, 12), (50, 60)])
    def test_a_range_gives_the_bytes_that_exist(self, store, start, stop):
        store.put("a", b"0123456789")
        assert store.get("a", range(start, stop)) == b"0123456789"[start:stop]

    @pytest.mark.parametrize("byte_range", [range(0, 8, 2), range(-3, 4)])
    def test_what_is_no_range_of_bytes_is_refused(self, store, byte_range):
        store.put("a", b"0123456789")
        with pytest.raises(ValueError):
            store.get("a", byte_range)

    def test_an_absent_object_is_named(self, store):
        store.put("a/b", b"")
        for call in (store.get, store.head, lambda path: store.get(path, range(1))):
            for path in ("nothing", "no/where/at/all", "a"):
                with pytest.raises(ObjectNotFound) as caught:
                    call(path)
                assert caught.value.path == path
                assert isinstance(caught.value, KeyError)

    def test_listing_ascends_and_honours_the_prefix(self, store):
        paths = ["a-b", "a/b", "a/c/d", "a0", "b", "sst/1.data", "sst/1.meta", "sst/10.data",
                 "sst2", "é", "z"]
        for path in reversed(paths):
            store.put(path, path.encode())
        assert [found.path for found in store.list()] == sorted(paths)
        assert [found.path for found in store.list("sst/")] == ["sst/1.data", "sst/1.meta", "sst/10.data"]
        assert [found.path for found in store.list("sst/1.")] == ["sst/1.data", "sst/1.meta"]
        assert [found.path for found in store.list("a")] == ["a-b", "a/b", "a/c/d", "a0"]
        assert [found.path for found in store.list("a/")] == ["a/b", "a/c/d"]
        assert list(store.list("nothing/here")) == []
        for after in ("", "a-b", "a/b", "a/bb", "sst/1.data", "sst/1", "z", "zz"):
            assert [found.path for found in store.list(after=after)] == [path for path in sorted(paths) if path > after]
        assert [found.path for found in store.list("sst/", after="sst/1.data")] == ["sst/1.meta", "sst/10.data"]
        assert [found.path for found in store.list("b", after="a")] == ["b"]
        assert [found.path for found in store.list("a", after="b")] == []

    def test_listing_reports_the_size(self, store):
        store.put("a", b"12345")
        (found,) = store.list()
        assert found == store.head("a")
        assert found.size_bytes == 5
        assert found.modified_ms > 0

    def test_deleted_objects_are_gone_and_absent_ones_are_fine(self, store):
        for path in ("a", "b/c", "d"):
            store.put(path, b"x")
        store.delete(["a", "b/c", "never", "no/where"])
        assert [found.path for found in store.list()] == ["d"]
        store.delete([])
        store.put("b/c", b"again", if_absent=True)
        assert store.get("b/c") == b"again"

    @pytest.mark.parametrize("path", BAD_PATHS)
    def test_a_path_that_names_nothing_inside_is_refused(self, store, path):
        for call in (lambda: store.put(path, b""), lambda: store.get(path), lambda: store.head(path),
                     lambda: store.delete([path]), lambda: store.put(path, b"", if_absent=True),
                     lambda: store.create(path), lambda: store.create_scratch(path)):
            with pytest.raises(InvalidPath):
                call()
        assert list(store.list()) == []
