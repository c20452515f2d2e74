"""The contract of every meta store. A test class derives from the suite and provides a fixture `store`."""

import os
import random
import threading

import pytest

from hummock.errors import HummockError, MetaStoreError, MetaStoreForked, PreconditionFailed
from hummock.meta.store.base import MetaOperations
from tests.support.drivers.seeds import seeds


def put(**values):
    return MetaOperations(put={key.replace("_", "/"): value for key, value in values.items()})


def openers_agree(open_store, count=6):
    """Asserts that threads which open a new store concurrently all get the same one."""
    errors, start = [], threading.Barrier(count)

    def work(number):
        try:
            start.wait()
            store = open_store()
            store.transaction(MetaOperations(put={f"k/{number}": b"%d" % number}))
            store.close()
        except HummockError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    store = open_store()
    assert len(store.list("k/")) == count
    store.close()


def a_fork_is_refused(store):
    """Asserts that no call of a handle works in a child process, and that `close` there does not affect the parent."""
    store.transaction(put(a=b"1"))
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        outcomes = []
        for call in (lambda: store.get("a"), lambda: store.list(""), lambda: store.transaction(put(b=b""))):
            try:
                call()
                outcomes.append("worked")
            except MetaStoreForked:
                outcomes.append("refused")
        store.close()
        os.write(write_end, " ".join(outcomes).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read_end, 100) == b"refused refused refused"
    store.transaction(put(a=b"2"))
    assert store.get("a") == b"2"


class MetaStoreSuite:
    def test_what_was_put_is_read(self, store):
        assert store.get("a") is None
        store.transaction(put(a=b"1", b_c=b"", d=bytes(range(256)) * 400))
        assert store.get("a") == b"1"
        assert store.get("b/c") == b""
        assert store.get("d") == bytes(range(256)) * 400

    def test_listing_ascends_and_honours_the_prefix(self, store):
        store.transaction(put(a_1=b"1", a_10=b"10", a_2=b"2", a=b"", b=b"", Z=b"", a0=b""))
        assert store.list("a/") == [("a/1", b"1"), ("a/10", b"10"), ("a/2", b"2")]
        assert [key for key, _ in store.list("")] == ["Z", "a", "a/1", "a/10", "a/2", "a0", "b"]
        assert store.list("c") == []

    def test_deleting_what_is_absent_is_fine(self, store):
        store.transaction(put(a=b"1", b=b"2"))
        store.transaction(MetaOperations(delete=("a", "never")))
        assert store.list("") == [("b", b"2")]

    @pytest.mark.parametrize("required", [
        {"a": b"2"}, {"a": None}, {"b": b"1"}, {"a": b"1", "c": b""}, {"a": b""},
    ])
    def test_a_failed_precondition_names_the_key_and_writes_nothing(self, store, required):
        store.transaction(put(a=b"1"))
        with pytest.raises(PreconditionFailed) as caught:
            store.transaction(MetaOperations(require=required, put={"x": b"1"}, delete=("a",)))
        key = caught.value.key
        assert key in required and required[key] == caught.value.expected != caught.value.got
        assert store.list("") == [("a", b"1")]

    def test_met_preconditions_let_the_transaction_pass(self, store):
        store.transaction(put(a=b"1"))
        store.transaction(MetaOperations(require={"a": b"1", "b": None}, put={"a": b"2", "b": b"3"}))
        assert store.list("") == [("a", b"2"), ("b", b"3")]

    def test_parts_of_several_managers_join_into_one_transaction(self, store):
        one = MetaOperations(require={"a": None}, put={"a": b"1"}, delete=("x",))
        two = MetaOperations(require={"b": None, "a": None}, put={"b": b"2"}, delete=("x", "y"))
        both = one + two
        assert both == MetaOperations({"a": None, "b": None}, {"a": b"1", "b": b"2"}, ("x", "y"))
        store.transaction(both)
        with pytest.raises(PreconditionFailed):
            store.transaction(both)

    def test_parts_that_contradict_each_other_are_refused(self):
        with pytest.raises(MetaStoreError, match="differently"):
            put(a=b"1") + put(a=b"2")
        with pytest.raises(MetaStoreError, match="differently"):
            MetaOperations(require={"a": None}) + MetaOperations(require={"a": b""})
        with pytest.raises(MetaStoreError, match="put and delete"):
            put(a=b"1") + MetaOperations(delete=("a",))

    @pytest.mark.parametrize("key", ["", "x" * 513, "é", "a\0", "a\nb", 7, None, b"a"])
    def test_a_malformed_key_is_refused(self, store, key):
        for build in (lambda: MetaOperations(put={key: b""}), lambda: MetaOperations(require={key: None}),
                      lambda: MetaOperations(delete=(key,)), lambda: store.get(key)):
            with pytest.raises(MetaStoreError):
                build()

    @pytest.mark.parametrize("value", ["text", None, 1, bytearray(b"x")])
    def test_a_value_is_bytes(self, value):
        with pytest.raises(MetaStoreError):
            MetaOperations(put={"a": value})

    def test_counting_threads_lose_no_step(self, store):
        store.transaction(put(n=b"0"))
        failures = []

        def count():
            done = 0
            while done < 25:
                value = store.get("n")
                step = MetaOperations(require={"n": value}, put={"n": b"%d" % (int(value) + 1)})
                try:
                    store.transaction(step)
                    done += 1
                except PreconditionFailed:
                    failures.append(1)

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.get("n") == b"100"

    def test_a_listing_sees_whole_transactions_only(self, store):
        store.transaction(put(p_a=b"0", p_b=b"0"))
        stop, torn = threading.Event(), []

        def watch():
            while not stop.is_set():
                values = {value for _, value in store.list("p/")}
                if len(values) != 1:
                    torn.append(values)

        watcher = threading.Thread(target=watch)
        watcher.start()
        for number in range(100):
            store.transaction(put(p_a=b"%d" % number, p_b=b"%d" % number))
        stop.set()
        watcher.join()
        assert torn == []

    @pytest.mark.parametrize("seed", seeds(2, 5))
    def test_random_transactions_match_a_dict(self, store, seed):
        rng, model = random.Random(seed), {}
        keys = [f"{letter}/{number}" for letter in "ab" for number in range(8)]
        for step in range(60):
            chosen = rng.sample(keys, 6)
            require = {key: model.get(key) if rng.random() < .9 else b"wrong" for key in chosen[:2]}
            values = {key: rng.randbytes(rng.randrange(50)) for key in chosen[2:4]}
            operations = MetaOperations(require, values, tuple(chosen[4:]))
            try:
                store.transaction(operations)
                assert all(model.get(key) == value for key, value in require.items()), (seed, step)
                for key in operations.delete:
                    model.pop(key, None)
                model.update(operations.put)
            except PreconditionFailed as error:
                assert model.get(error.key) == error.got != error.expected, (seed, step)
            assert store.list("") == sorted(model.items()), (seed, step)
