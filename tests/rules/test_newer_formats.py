"""Every reader of a format refuses records of a newer release with `FormatTooNew`, not as damage, and changes nothing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b

import pytest

from hummock.base.key import KeyRange
from hummock.compaction.task import CompactTask, RangeResult, RangeSpec
from hummock.compaction.worker_task import WorkerTask
from hummock.epoch import Epoch
from hummock.errors import Corruption, FormatTooNew
from hummock.loaded_files import LoadAnswer
from hummock.meta import MetaOperations, SqliteMetaStore
from hummock.meta.compaction.records import RunningTask, WantedRange
from hummock.meta.records import (
    CommitAnswer,
    Head,
    LargeClaim,
    Lease,
    TaskAnswer,
    TaskCounter,
    Tombstone,
    Upload,
    decode,
    decode_value,
    encode,
    encode_value,
)
from hummock.meta.store.object_log_format import CHECKPOINT_MAGIC, RECORD_MAGIC, LogRecord
from hummock.meta.store.rollback_guard_bucket import GuardRecord
from hummock.meta.store.rollback_guard_file import Acknowledged, RollbackGuard
from hummock.meta.vacuum.obsolete_files import ObsoleteFiles
from hummock.meta_client import WriterSession
from hummock.version import HummockVersion, VersionDelta
from relational.catalog.objects import TableCatalog
from relational.plan.logical import Values
from relational.plan.serialize import plan_from_text, plan_to_text
from relational.spark.load_spec import LoadPart, LoadSpec
from relational.spark.read_spec import ReadSpec
from relational.types import DataType, Field, Schema
from stream.spark.spec import BackfillSpec, TaskSpec
from tests.hummock.compaction.test_task import TASK
from tests.support.drivers.catalogs import table_catalog

NEWER = 9
MESSAGE = r"was made by a newer release \(format {}, this one reads up to \d\): upgrade hummock"
RECORDS = (Head(1, 2, 3, 4), CommitAnswer(1, 2, 3, "d"), LoadAnswer("l", 1, 2, 3, 4, 5, 6, "d"),
           Lease("n", "h", 1, 2, 3), Upload("n", "h", 1),
           Tombstone(1, 2), TaskCounter(1, 2), LargeClaim(1), WriterSession(1, "n", "t"),
           TaskAnswer(1, "t", "done", "manual", 2, "d", ""))


def later(data: bytes, field: str = "format") -> bytes:
    return json.dumps(json.loads(data) | {field: NEWER}).encode()


def sealed(body: bytes) -> bytes:
    return body + blake2b(body, digest_size=16).digest()


def json_cases() -> dict[str, Callable[[], object]]:
    """Name of a format -> decodes a record of it with the version of a newer release."""
    cases: dict[str, Callable[[], object]] = {
        f"row of {type(row).__name__}": lambda row=row: decode(type(row), "hummock/x", later(encode(row)))
        for row in RECORDS
    }
    version = HummockVersion()
    delta = VersionDelta(1, Epoch(0), Epoch(0))
    running = RunningTask(TASK, "00" * 16, "c", 1, 0, 0)
    spec, result = TASK.ranges()[0], RangeResult(0, (), 0, 0, 0, 0, 0, 0.0)
    plan = plan_to_text(Values((), ()))
    table = table_catalog("t", Schema([Field("id", DataType.parse("bigint"))]), (0,))
    read = ReadSpec("memory://", version, table, (0,), (KeyRange(),), Epoch(0))
    cases |= {
        "version": lambda: decode_value(HummockVersion, "hummock/checkpoint", later(encode_value(version))),
        "version delta": lambda: decode_value(VersionDelta, "hummock/delta/1", later(encode_value(delta))),
        "running task": lambda: RunningTask.decode("hummock/task/7", later(running.encode())),
        "wanted range": lambda: WantedRange.decode("hummock/wanted/1", later(WantedRange(1, KeyRange()).encode())),
        "obsolete files": lambda: ObsoleteFiles.decode("hummock/stale/1", later(ObsoleteFiles(1, ()).encode())),
        "compact task": lambda: CompactTask.from_json(TASK.to_json() | {"format": NEWER}),
        "range of a task": lambda: RangeSpec.from_json(spec.to_json() | {"format": NEWER}),
        "result of a range": lambda: RangeResult.from_json(result.to_json() | {"format": NEWER}),
        "worker task": lambda: WorkerTask.decode(later(WorkerTask(spec, "memory://", "", 1, 1).encode())),
        "catalog": lambda: TableCatalog.from_json(table.to_json() | {"version": NEWER}),
        "plan": lambda: plan_from_text(later(plan.encode(), "version").decode(), lambda _: table),
        "read of a table": lambda: ReadSpec.from_bytes(zlib.compress(later(zlib.decompress(read.to_bytes())))),
        "part of a load": lambda: LoadPart.from_bytes(later(LoadPart(0).to_bytes())),
        "bulk load": lambda: LoadSpec.from_bytes(b'{"format": %d}' % NEWER),
        "backfill": lambda: BackfillSpec.from_bytes(b'{"format": %d}' % NEWER),
        "task of a backfill": lambda: TaskSpec.from_bytes(b'{"format": %d}' % NEWER),
    }
    return cases


@pytest.mark.parametrize("name", json_cases())
def test_a_record_of_a_newer_release_says_so(name: str) -> None:
    with pytest.raises(FormatTooNew, match=MESSAGE.format(NEWER)) as caught:
        json_cases()[name]()
    assert caught.value.found == NEWER and not isinstance(caught.value, Corruption | ValueError)


@pytest.mark.parametrize("magic", [RECORD_MAGIC, CHECKPOINT_MAGIC])
def test_a_record_of_the_log_of_a_newer_release_says_so(magic: bytes) -> None:
    record = LogRecord(bytes(16), 7, bytes(16), put={"a": b"1"}, magic=magic)
    assert LogRecord.decode(record.encode(), "meta/7", magic)[0] == record
    with pytest.raises(FormatTooNew, match="meta/7 " + MESSAGE.format(NEWER)):
        LogRecord.decode(replace(record, magic=magic[:-2] + b"09").encode(), "meta/7", magic)
    with pytest.raises(Corruption):
        LogRecord.decode(replace(record, magic=b"SOMEBODY").encode(), "meta/7", magic)


def test_a_rollback_guard_of_a_newer_release_says_so(tmp_path) -> None:
    held = GuardRecord(bytes(16), 5).encode()
    with pytest.raises(FormatTooNew, match="store/identity " + MESSAGE.format(NEWER)):
        GuardRecord.decode(sealed(held[:6] + b"09" + held[8:-16]), "store/identity")
    path = tmp_path / "witness"
    path.write_bytes(Acknowledged(bytes(16), 5).encode().replace(b"HMKWIT01", b"HMKWIT09") * 2)
    with pytest.raises(FormatTooNew, match=MESSAGE.format(NEWER)):
        RollbackGuard(path).read()


@pytest.mark.parametrize("schema", [False, True])
def test_a_database_of_a_newer_release_says_so_and_stays_as_it_is(tmp_path, schema: bool) -> None:
    path = tmp_path / "meta.sqlite"
    store = SqliteMetaStore(path)
    store.transaction(MetaOperations(put={"a": b"1"}))
    store._write_digest(store._connection, replace(store._read_digest(store._connection), format=NEWER))
    if schema:
        store._connection.execute("ALTER TABLE meta ADD COLUMN more INTEGER")
    store.close()
    before = path.read_bytes()
    with pytest.raises(FormatTooNew, match=MESSAGE.format(NEWER)):
        SqliteMetaStore(path)
    assert path.read_bytes() == before
