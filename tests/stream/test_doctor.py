"""The doctor: a healthy store has no finding, and each planted fault is found, with what helps."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

import hummock
import stream
from hummock.backup.format import UNFINISHED, finished_paths
from hummock.columnar.write_batch import WriteBatch
from hummock.doctor.finding import Severity
from hummock.epoch import from_unix_ms, wall_clock_ms
from hummock.errors import StoreNotFound
from hummock.meta import open_meta_store
from hummock.meta.leases import read_leases
from hummock.meta.records import HEAD, Lease, Upload, encode, lease_key, upload_key
from hummock.meta.store.base import MetaOperations
from hummock.meta.vacuum.obsolete_files import ObsoleteFiles
from hummock.object_store import open_object_store
from hummock.object_store.base import sstable_data_path, sstable_meta_path
from hummock.options import CompactionOptions
from relational.inbox.payload import PayloadObject
from relational.inbox.records import InboxRequest, request_key
from stream.cli.main import main
from stream.session.change_cursor import CURSORS, CursorRow

LONG_AGO_MS = 3 * 24 * 3_600_000


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store of a table, a view and a cursor that a session has closed."""
    directory = tmp_path_factory.mktemp("doctor")
    with stream.connect(f"file://{directory}/store", create=True, codecs=("none",), inline_bytes=0) as db:
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
        db.sql("CREATE MATERIALIZED VIEW total AS SELECT SUM(v) AS v FROM t")
        for at in range(3):
            db.sql(f"INSERT INTO t SELECT i, i FROM generate_series({at * 100 + 1}, {at * 100 + 100}) AS g(i)")
            db.flush()
        with db.changes("t", cursor="follower", follow=False) as feed:
            list(feed)
    return directory / "store"


class Patient:
    """A copy of the store, in which a test plants a fault."""

    def __init__(self, directory: Path):
        self.directory, self.url = directory, f"file://{directory}"
        self.objects = open_object_store(self.url)

    def examine(self, **options):
        return stream.doctor(self.url, **options)

    def found(self, check, **options):
        """The findings of one check; there are some."""
        findings = [found for found in self.examine(**options).findings if found.check == check]
        assert findings
        return findings

    def put(self, **rows):
        self.change(MetaOperations(put=rows))

    def change(self, operations):
        with closing(open_meta_store(self.url)) as meta_store:
            meta_store.transaction(operations)

    def rows(self, prefix):
        with closing(open_meta_store(self.url)) as meta_store:
            return meta_store.list(prefix)

    @property
    def names(self):
        with hummock.open(self.url) as store:
            return [info.name for info in store.version.sstables]


@pytest.fixture
def patient(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "store")
    return Patient(tmp_path / "store")


def hummock_doctor(*arguments):
    result = CliRunner().invoke(main, ["doctor", *arguments])
    assert "Traceback" not in result.output
    return result


def test_a_healthy_store_has_no_finding_also_beside_its_writer(patient):
    report = patient.examine(is_deep=True)
    assert report.is_healthy and report.findings == []
    assert report.about["files"] == len(patient.names) and report.about["writer"] is None
    with stream.connect(patient.url) as db:
        db.sql("INSERT INTO t VALUES (0, 0)")
        report = patient.examine(is_deep=True)
        assert report.findings == [] and f"process {os.getpid()}" in report.about["writer"]
    result = hummock_doctor(patient.url)
    assert result.exit_code == 0 and "nothing is wrong" in result.stdout


def test_nothing_is_changed(patient):
    patient.objects.put(sstable_data_path("ab" * 16), b"x")

    def content():
        return {path: path.read_bytes() for path in sorted(patient.directory.rglob("*"))
                if path.is_file() and "-shm" not in path.name}

    before = content()
    patient.examine(is_deep=True, grace_ms=0)
    assert content() == before


def test_the_command_names_the_worst_first_and_ends_with_1(patient):
    patient.objects.delete([sstable_data_path(patient.names[0])])
    patient.objects.put(sstable_data_path("ab" * 16), b"x")
    result = hummock_doctor(patient.url, "--grace", "0")
    lines = [line for line in result.stdout.splitlines() if line.startswith(("error", "warning", "note"))]
    assert result.exit_code == 1 and lines[0].startswith("error    files") and lines[1].startswith("warning  orphans")
    assert f"-> hummock vacuum {patient.url}" in result.stdout
    record = json.loads(hummock_doctor(patient.url, "--grace", "0", "--json").stdout)
    assert not record["healthy"] and [found["severity"] for found in record["findings"]] == ["error", "warning"]
    missing = hummock_doctor(f"{patient.url}/nothing")
    assert missing.exit_code == 1 and missing.stderr.startswith("StoreNotFound")


# -- planted faults ----------------------------------------------------------------------------------------------


def test_a_missing_file(patient):
    for path in (sstable_data_path(patient.names[0]), sstable_meta_path(patient.names[1])):
        patient.objects.delete([path])
    found = patient.found("files")
    assert [one.severity for one in found] == [Severity.ERROR] * 2
    assert patient.names[0] in found[0].what and "--repair" in found[0].remedy


def test_a_truncated_file(patient):
    path = sstable_data_path(patient.names[0])
    patient.objects.put(path, patient.objects.get(path)[:-1])
    assert path in patient.found("files")[0].what


def test_damaged_content_is_found_by_reading_it(patient):
    path = sstable_data_path(patient.names[0])
    data = bytearray(patient.objects.get(path))
    data[len(data) // 2] ^= 1
    patient.objects.put(path, bytes(data))
    assert patient.examine().findings == []
    assert path in patient.found("files", is_deep=True)[0].what


def test_orphans(patient):
    patient.objects.put(sstable_data_path("ab" * 16), b"x" * 10)
    assert patient.examine().findings == [], "it may be of a writer that began within the hour"
    (found,) = patient.found("orphans", grace_ms=0)
    assert "1 files, 10 bytes" in found.what and found.remedy == f"hummock vacuum {patient.url}"
    assert "hummock vacuum" in found.remedy


def test_a_lease_of_a_process_that_died(patient):
    key = lease_key("reader")
    patient.put(**{key: encode(Lease("reader", "ab", wall_clock_ms() - 120_000, 1 << 40, 0))})
    (found,) = patient.found("leases")
    assert found.severity is Severity.NOTE and "2 minutes ago" in found.what and patient.examine().is_healthy
    row = ObsoleteFiles((1 << 40) + 1, (("cd" * 16, 1 << 20),))
    patient.put(**{row.key: row.encode(), upload_key("12" * 8): encode(Upload("loader", "ab", 1))})
    assert {found.severity for found in patient.found("leases")} == {Severity.WARNING, Severity.NOTE}


def test_a_reader_that_keeps_an_old_epoch(patient):
    epoch = from_unix_ms(wall_clock_ms() - LONG_AGO_MS)
    patient.put(**{lease_key("reader"): encode(Lease("reader", "ab", wall_clock_ms() + 60_000, 1, epoch))})
    (found,) = patient.found("old pins")
    assert "days back" in found.what and "reader" in found.what
    assert patient.examine(old_ms=2 * LONG_AGO_MS).is_healthy
    large = ObsoleteFiles(2, (("cd" * 16, 1 << 30),))
    patient.put(**{large.key: large.encode()})
    assert any("1,024 MiB" in found.what for found in patient.found("old pins"))


def test_a_stuck_cursor(patient):
    ((key, row),) = patient.rows(CURSORS)
    cursor = CursorRow.from_bytes(key, row)
    epoch = from_unix_ms(wall_clock_ms() - LONG_AGO_MS)
    old = CursorRow(cursor.table, epoch, epoch, cursor.retention_ms, "ab")
    patient.put(**{key: old.to_bytes()})
    (found,) = patient.found("cursors")
    assert "follower of t" in found.what and "drop_cursor('follower')" in found.remedy
    patient.put(**{key: CursorRow(999, epoch, epoch, 1_000, "ab").to_bytes()})
    assert "was dropped" in patient.found("cursors")[0].what
    patient.put(**{key: b"{}"})
    assert patient.found("cursors")[0].severity is Severity.ERROR
    patient.put(**{key: row})
    patient.change(MetaOperations(delete=(lease_key("cursor-follower"),)))
    assert "not kept any more" in patient.found("cursors")[0].what


def test_a_dangling_request_and_one_that_nobody_carries_out(patient):
    now_ms = wall_clock_ms()
    lost = InboxRequest("ab" * 16, "t", (PayloadObject("cd" * 16, 10, 1, 1, 8),), (), None, now_ms, now_ms + 60_000)
    waiting = InboxRequest("ef" * 16, "t", (), (), None, now_ms - LONG_AGO_MS, now_ms + 60_000)
    patient.put(**{request_key(each.request_id): each.to_bytes() for each in (lost, waiting)})
    gone, late = patient.found("inbox")
    assert gone.severity is Severity.ERROR and "cd" * 16 in gone.what
    assert "4,320 minutes" in late.what and "hummock stream" in late.remedy


def test_a_damaged_database(patient):
    with sqlite3.connect(patient.directory / "meta.sqlite") as database:
        database.execute("UPDATE meta SET value = x'00' WHERE key = ?", (HEAD,))
    database.close()
    (found,) = patient.found("meta")
    assert found.severity is Severity.ERROR and "MetaStoreCorrupt" in found.what and "hummock restore" in found.remedy
    assert hummock_doctor(patient.url).exit_code == 1


def test_a_damaged_log(tmp_path):
    url = f"file://{tmp_path}/log"
    epochs = hummock.EpochGenerator()
    with hummock.open(url, role="writer", meta="log", compaction=False) as store:
        for at in range(3):
            epoch = epochs.next()
            store.ingest_batch(WriteBatch([(hummock.user_key(1, 0, b"%d" % at), b"v")]), epoch)
            store.commit(epoch)
    assert stream.doctor(url, meta="log").findings == []
    objects = open_object_store(url)
    path = [found.path for found in objects.list("meta/0")][2]
    objects.put(path, objects.get(path)[:-3])
    (found,) = stream.doctor(url, meta="log").findings
    assert found.check == "meta" and path in found.what and f"hummock verify {url} --meta log --repair" in found.remedy


def test_a_database_that_was_lost_or_put_back(patient, tmp_path):
    shutil.copytree(patient.directory, tmp_path / "old")
    with stream.connect(patient.url) as db:
        db.sql("INSERT INTO t VALUES (0, 0)")
    for path in patient.directory.glob("meta.sqlite*"):
        if path.name in ("meta.sqlite", "meta.sqlite-wal", "meta.sqlite-shm"):
            path.unlink()
    assert "MetaStoreEmptied" in patient.found("meta")[0].what
    shutil.copy(tmp_path / "old" / "meta.sqlite", patient.directory)
    (found,) = patient.found("meta")
    assert "MetaStoreRolledBack" in found.what and "--accept-rollback" in found.remedy


def test_compaction_debt(tmp_path):
    url, epochs, runs = f"file://{tmp_path}/debt", hummock.EpochGenerator(), CompactionOptions().l0_runs_slowdown
    with hummock.open(url, role="writer", compaction=False) as store:
        for at in range(runs):
            epoch = epochs.next()
            store.ingest_batch(WriteBatch([(hummock.user_key(1, 0, b"%d" % at), b"v")]), epoch)
            store.commit(epoch)
    (found,) = stream.doctor(url).findings
    assert (found.check, found.remedy) == ("debt", f"hummock compact {url}")
    assert f"level 0 has {runs} runs" in found.what


def test_a_format_of_a_newer_release(patient):
    lease = encode(Lease("reader", "ab", wall_clock_ms() + 60_000, 1, 0))
    patient.put(**{lease_key("reader"): lease.replace(b'"format":1', b'"format":2')})
    found = patient.found("format")
    assert "newer release" in found[0].what and "release that wrote it" in found[0].remedy
    patient.change(MetaOperations(delete=(lease_key("reader"),)))
    ((key, row),) = patient.rows("catalog/job/")
    plan = json.loads(row)
    plan["plan"] = json.dumps({**json.loads(plan["plan"]), "version": 99})
    patient.put(**{key: json.dumps(plan).encode()})
    assert "the job of total" in patient.found("format")[0].what


def test_rows_that_cannot_be_read(patient):
    patient.put(**{lease_key("odd"): b"no json", "catalog/table/0000000999": b"{}"})
    report = patient.examine()
    assert {"meta rows", "catalog"} <= {found.check for found in report.findings} and not report.is_healthy


def test_a_job_that_was_set_aside(patient):
    tables = [json.loads(row) for _, row in patient.rows("catalog/table/")]
    table = next(each["id"] for each in tables if each["name"] == "total")
    failure = {"job_id": table, "since": 5, "failed_at_ms": 1, "reason": "a division by zero"}
    patient.put(**{f"catalog/failed/{table:010}": json.dumps(failure).encode()})
    (found,) = patient.found("jobs")
    assert "a division by zero" in found.what and "ALTER MATERIALIZED VIEW total RESUME" in found.remedy


def test_leftovers_of_dead_processes(patient):
    temporary = patient.directory / ".temporary"
    temporary.mkdir(exist_ok=True)
    (temporary / "ab").write_bytes(bytes(1 << 20))
    assert patient.examine().findings == []
    os.utime(temporary / "ab", (time.time() - 7_200,) * 2)
    (found,) = patient.found("leftovers")
    assert "1 temporary files of 1 MiB" in found.what and found.severity is Severity.NOTE
    (temporary / "ab").unlink()
    patient.objects.put("quarantine/sst/x", b"x")
    assert patient.found("leftovers")[0].severity is Severity.NOTE


def test_an_unfinished_backup_and_a_damaged_one(patient, tmp_path):
    target = f"file://{tmp_path}/backups"
    stream.backup(patient.url, target)
    assert stream.doctor(target, is_deep=True).findings == []
    objects = open_object_store(target)
    (path,) = finished_paths(objects)
    objects.put(f"{UNFINISHED}ab", b"{}")
    name = patient.names[0]
    objects.delete([sstable_meta_path(name)])
    found = stream.doctor(target).findings
    assert [one.severity for one in found] == [Severity.ERROR, Severity.WARNING]
    assert name in found[0].what and "repeat hummock backup" in found[1].remedy
    objects.put(path, objects.get(path)[:-1])
    assert any(path in one.what and one.severity is Severity.ERROR for one in stream.doctor(target).findings)
    assert hummock_doctor(target).exit_code == 1


def test_an_unfinished_restore(patient, tmp_path):
    target, copy = f"file://{tmp_path}/backups", f"file://{tmp_path}/copy"
    stream.backup(patient.url, target)
    begun = open_object_store(copy)
    begun.put("restoring", b"{}")
    assert [one.check for one in stream.doctor(copy).findings] == ["restore"]
    begun.delete(["restoring"])
    with pytest.raises(StoreNotFound):
        stream.doctor(copy)
    stream.restore(target, copy)
    assert stream.doctor(copy, is_deep=True).findings == []
    begun.put("restoring", b"{}")
    assert [one.check for one in stream.doctor(copy).findings] == ["leftovers"]


def test_clocks(patient, monkeypatch):
    monkeypatch.setattr("hummock.doctor.checks.wall_clock_ms", lambda: wall_clock_ms() - 60_000)
    (found,) = patient.found("clock")
    assert "60 seconds behind" in found.what
    monkeypatch.undo()
    ahead = json.loads(dict(patient.rows(HEAD))[HEAD])
    assert ahead["committed_epoch"]
    monkeypatch.setattr("hummock.doctor.checks.to_unix_ms", lambda epoch: wall_clock_ms() + LONG_AGO_MS)
    assert any("3 days ahead" in found.what for found in patient.found("clock"))


def test_a_full_disk(patient, monkeypatch):
    usage = type(shutil.disk_usage(patient.directory))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1 << 40, (1 << 40) - (1 << 30), 1 << 30))
    (found,) = patient.found("disk")
    assert found.severity is Severity.ERROR and "1,024 MiB of 1,048,576 MiB are free" in found.what


def test_a_long_log(tmp_path, monkeypatch):
    url = f"file://{tmp_path}/log"
    with hummock.open(url, role="writer", meta="log", compaction=False) as store:
        assert store.committed_epoch == 0
    monkeypatch.setattr("hummock.doctor.checks.LOG_FACTOR", 0)
    (found,) = stream.doctor(url, meta="log").findings
    assert found.check == "log" and "records of the log" in found.what


def test_a_reader_that_is_alive_is_no_finding(patient):
    with stream.connect(patient.url, role="reader"):
        with closing(open_meta_store(patient.url)) as meta_store:
            assert len(read_leases(meta_store)) == 2
        assert patient.examine().findings == []
