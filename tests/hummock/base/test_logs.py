"""Log records: one line of fields, no handler of the library's own, one of a command's, and the events of a store."""

import logging
import random
import subprocess
import sys

import pytest

import hummock
from hummock.base.logs import Event, LineFormatter, install_handler, shown
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import DeadlineExceeded, Fenced, InvalidOption, ObjectStoreError, SnapshotExpired
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.meta.records import lease_key
from hummock.meta.store.base import MetaOperations
from hummock.meta.vacuum.loop import VacuumLoop
from hummock.metrics import Metrics
from hummock.object_store.instrumented import InstrumentedObjectStore, Pacing
from hummock.object_store.memory import MemoryObjectStore
from hummock.options import RetryOptions, StorageOptions
from hummock.store.storage import HummockStorage
from tests.support.servers.object_store_faults import Fault, FaultKind, FaultPlan, FaultyObjectStore
from tests.support.worlds.vacuum_world import VacuumWorld

PACKAGES = ("hummock", "relational", "stream")
pytestmark = pytest.mark.usefixtures("plain_logging")


def events(caplog):
    return [record.getMessage() for record in caplog.records]


def line(message, **record):
    made = logging.LogRecord("hummock.x", logging.WARNING, "x.py", 1, message, (), record.get("exc_info"))
    made.created, made.msecs = 1_767_323_045.678, 678.0
    return LineFormatter().format(made)


# -- the format --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "text"), [
    (7, "7"), (1.5, "1.500"), (True, "True"), ("word", "word"), ("", '""'), ("two words", '"two words"'),
    ("a=b", '"a=b"'), ('say "x"', '"say \\"x\\""'), ("a\nb\t\x1b[0m", '"a\\nb\\t\\u001b[0m"'), ("é", "é"),
    (ValueError("no row"), '"ValueError: no row"'), ("x" * 600, "x" * 500 + "..."),
])
def test_a_field_is_one_word_or_a_quoted_text(value, text):
    assert shown(value) == text


def test_a_record_is_one_line():
    event = Event("commit slow", epoch=7, seconds=6.25, nothing=None, reason="a\nb")
    assert str(event) == 'commit slow epoch=7 seconds=6.250 reason="a\\nb"'
    assert line(event) == f"2026-01-02T03:04:05.678Z WARNING hummock.x {event}"
    assert line("two\nlines").endswith("hummock.x two\\nlines")
    try:
        raise ValueError("broken")
    except ValueError:
        text = line(event, exc_info=sys.exc_info())
    assert "\n" not in text and 'ValueError: broken"' in text and " trace=" in text


def test_the_fields_are_there_for_other_handlers(caplog):
    with caplog.at_level(logging.INFO):
        logging.getLogger("hummock.x").info(Event("opened", epoch=7))
    assert caplog.records[0].msg.fields == {"epoch": 7}


# -- handlers ----------------------------------------------------------------------------------------------------


def test_the_library_installs_no_handler():
    code = ("import logging, stream, hummock\n"
            "with stream.connect('memory://') as db: db.sql('CREATE TABLE t (id BIGINT PRIMARY KEY)')\n"
            "found = [name for name in (None, *logging.root.manager.loggerDict) if logging.getLogger(name).handlers]\n"
            "print([name for name in found if str(name or 'stream').startswith(('hummock', 'relational', 'stream'))])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_handler_writes_to_the_error_stream_from_a_level_on(capsys):
    install_handler("info,hummock.meta=debug")
    install_handler("info,hummock.meta=debug")
    for name in ("hummock.x", "hummock.meta.y", "other"):
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            logging.getLogger(name).log(level, Event("said"))
    captured = capsys.readouterr()
    assert captured.out == ""
    install_handler()
    logging.getLogger("hummock.meta.y").info(Event("said"))
    assert capsys.readouterr().err == "", "the level of before is gone"
    assert [text.split()[1:3] for text in captured.err.splitlines()] == [
        ["INFO", "hummock.x"], ["WARNING", "hummock.x"],
        ["DEBUG", "hummock.meta.y"], ["INFO", "hummock.meta.y"], ["WARNING", "hummock.meta.y"], ["WARNING", "other"]]


@pytest.mark.parametrize("levels", ["", "loud", "hummock=", "info,", "x=loud"])
def test_an_unknown_level_is_refused(levels):
    with pytest.raises(InvalidOption, match="log level"):
        install_handler(levels)


# -- the events of a store ---------------------------------------------------------------------------------------


def test_a_writer_that_is_taken_over(caplog):
    meta_store, objects = MemoryMetaStore(), MemoryObjectStore()
    with caplog.at_level(logging.INFO):
        first = HummockManager(meta_store, objects)
        session = first.claim_writer("one")
        HummockManager(meta_store, objects).claim_writer("two")
        with pytest.raises(Fenced):
            first.check_writer(session)
    assert events(caplog) == [
        "writer claimed node=one generation=1 epoch=0", "writer claimed node=two generation=2 former=one epoch=0",
        "writer taken over node=one generation=1 by=two now=2"]


def test_a_lease_that_was_lost(caplog):
    meta_store = MemoryMetaStore()
    manager = HummockManager(meta_store, MemoryObjectStore())
    manager.claim_writer()
    manager.pin_version("reader")
    meta_store.transaction(MetaOperations(delete=(lease_key("reader"),)))
    with caplog.at_level(logging.WARNING), pytest.raises(SnapshotExpired):
        manager.renew_lease("reader")
    assert events(caplog) == ["lease lost node=reader versions=1 epochs=0"]


def test_a_slow_commit(caplog, monkeypatch):
    monkeypatch.setattr("hummock.meta.hummock_manager.SLOW_SECONDS", 0.0)
    with hummock.open("memory://", compaction=False) as store:
        epoch = hummock.EpochGenerator().next()
        store.ingest_batch(WriteBatch([(hummock.user_key(1, 0, b"k"), b"v")]), epoch)
        store.commit(epoch)
    assert events(caplog)[0].startswith(f"commit slow epoch={epoch} seconds=0.")


def test_requests_that_are_tried_again(caplog):
    plan = FaultPlan([Fault(FaultKind.BEFORE, "get", times=2)])
    inner = MemoryObjectStore()
    inner.put("a", b"x")
    store = InstrumentedObjectStore(FaultyObjectStore(inner, plan), Metrics(), RetryOptions(attempts=3),
                                    Pacing(random.Random(0), sleep=lambda seconds: None))
    with caplog.at_level(logging.INFO):
        assert store.get("a") == b"x"
        plan.add(Fault(FaultKind.BEFORE, "get", times=3))
        with pytest.raises(DeadlineExceeded):
            store.get("a")
    texts = events(caplog)
    assert [text.partition(" ")[0] for text in texts] == ["retry"] * 4 + ["gave"]
    assert texts[1].startswith("retry operation=get path=a attempt=2 after=0.0")
    assert texts[4].startswith("gave up operation=get path=a attempts=3 error=")


def test_rounds_of_vacuum(caplog):
    world = VacuumWorld()
    world.commit_new(2)
    world.replace()
    plan = FaultPlan([Fault(FaultKind.BEFORE, "delete")])
    loop = VacuumLoop(world.vacuum(objects=FaultyObjectStore(world.objects, plan), listing_ms=1 << 40))
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            loop.round()
    assert [text.split("=")[0] for text in events(caplog)] == ["vacuum failed error", "vacuum done files"]


def test_uploads_and_compactions_that_fail_and_those_that_do_not(caplog):
    plan, meta_store = FaultPlan(), MemoryMetaStore()
    objects = FaultyObjectStore(MemoryObjectStore(), plan)
    manager = HummockManager(meta_store, objects)
    storage = HummockStorage(manager, objects, StorageOptions(inline_bytes=0), session=manager.claim_writer())
    epochs = hummock.EpochGenerator()
    plan.add(Fault(FaultKind.BEFORE, "put", "sst/"))
    epoch = epochs.next()
    storage.ingest_batch(WriteBatch([(hummock.user_key(1, 0, b"k"), b"v")]), epoch)
    with caplog.at_level(logging.INFO), pytest.raises(ObjectStoreError):
        storage.commit(epoch)
    assert any(text.startswith("upload failed error=") for text in events(caplog))
    storage.close()
    caplog.clear()
    shape = hummock.CompactionOptions(l0_runs=2)
    with hummock.open("memory://", inline_bytes=0, compaction=shape) as store, caplog.at_level(logging.INFO):
        for at in range(4):
            epoch = epochs.next()
            store.ingest_batch(WriteBatch([(hummock.user_key(1, 0, b"%d" % at), b"v")]), epoch)
            store.commit(epoch)
        assert store.compact(timeout=30)
    assert any(text.startswith("compaction done task=") for text in events(caplog))


def test_the_number_of_records_does_not_depend_on_the_rows(caplog):
    counts = []
    for rows in (10, 5_000):
        caplog.clear()
        with caplog.at_level(logging.DEBUG), hummock.open("memory://", compaction=False) as store:
            epoch = hummock.EpochGenerator().next()
            for at in range(0, rows, 100):
                store.ingest_batch(WriteBatch([(hummock.user_key(1, 0, b"%06d" % (at + row)), b"v")
                                               for row in range(min(100, rows - at))]), epoch)
            store.commit(epoch)
            list(store.scan(hummock.KeyRange.table(1), epoch))
        counts.append(len([record for record in caplog.records if record.name.split(".")[0] in PACKAGES]))
    assert counts[0] == counts[1] <= 5
