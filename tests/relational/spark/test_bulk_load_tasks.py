"""Both task types of a bulk load with an in-memory shuffle in between: the files contain the rows, in order."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hummock.base.key import KeyRange
from hummock.base.process import installed_version
from hummock.base.table_rules import TableRules
from hummock.columnar.binary_column import BinaryColumn
from hummock.columnar.write_batch import WriteBatch
from hummock.errors import Corruption, InvalidTask, SparkJobFailed
from hummock.loaded_files import LoadedFiles
from hummock.meta import MemoryMetaStore
from hummock.meta.hummock_manager import HummockManager
from hummock.object_store.local import LocalObjectStore
from hummock.store.storage import HummockStorage
from relational.chunk.data_chunk import DataChunk
from relational.errors import InvalidValue
from relational.spark import load_encoder
from relational.spark.bulk_load import RowsRefused, joined
from relational.spark.load_encoder import RowEncoder, encode_rows
from relational.spark.load_spec import LoadPart, LoadSpec, Stored
from relational.spark.load_writer import write_rows
from relational.spark.message_writer import MessageWriter
from relational.spark.row_sorter import RowSorter
from relational.table.row_serde import RowSerde
from relational.types import DataType, Schema
from tests.support.drivers.catalogs import table_catalog
from tests.support.worlds.manager_parts import epoch_of

TYPES = {"id": DataType.BIGINT, "name": DataType.VARCHAR, "amount": DataType.DOUBLE}
TABLE = table_catalog("orders", Schema.of(**TYPES), [0], table_id=7)


@pytest.fixture(autouse=True)
def small_messages(monkeypatch):
    monkeypatch.setattr(load_encoder, "MESSAGE_BYTES", 1_000)


def spec_of(directory, **changes):
    spec = LoadSpec("load", f"file://{directory}", ("ab" * 8,), TABLE, (0, 1, 2), 4, "error", 4_000, 500, "lz4",
                    "blocked_bloom", 10, 1 << 30, 600_000)
    return replace(spec, **changes)


def batches_of(rows, size=37):
    for at in range(0, len(rows), size):
        part = rows[at:at + size]
        yield pa.record_batch({"id": pa.array([row[0] for row in part], pa.int64()),
                               "name": pa.array([row[1] for row in part], pa.string()),
                               "amount": pa.array([row[2] for row in part], pa.float64())})


def encoded(spec, senders, monkeypatch):
    """The output of all senders' tasks, by partition."""
    sent = {partition: [] for partition in range(spec.partitions)}
    for sender, rows in enumerate(senders):
        monkeypatch.setattr(load_encoder, "_task_partition", lambda sender=sender: sender)
        for batch in encode_rows(installed_version(), spec.to_bytes(), batches_of(rows)):
            for partition in sent:
                part = batch.filter(pc.equal(batch.column(0), partition))
                if part.num_rows:
                    sent[partition].append(part)
    return sent


def written(spec, sent, rng=None):
    parts = []
    for batches in sent.values():
        if rng is not None:
            rng.shuffle(batches)
        parts += [LoadPart.from_bytes(answer.column(0)[0].as_py())
                  for answer in write_rows(spec.to_bytes(), iter(batches))]
    return parts


def load(spec, senders, monkeypatch, rng=None):
    return joined(written(spec, encoded(spec, senders, monkeypatch), rng), spec, "job")


class Target:
    """The target store of a load."""

    def __init__(self, directory):
        self.objects = LocalObjectStore(directory)
        self.manager = HummockManager(MemoryMetaStore(), self.objects)
        self.store = HummockStorage(self.manager, self.objects, session=self.manager.claim_writer())
        self.serde, self.epoch = RowSerde(TABLE), 0

    def write(self, rows):
        self.epoch += 1
        if rows:
            chunk = DataChunk.from_rows(TABLE.schema, rows)
            keys, values = self.serde.keys_of(chunk)[0], self.serde.values_of(chunk)
            self.store.ingest_batch(WriteBatch(sorted(zip(keys, values, strict=True))), epoch_of(self.epoch))
        self.store.commit(epoch_of(self.epoch))

    def delete(self, ids):
        self.epoch += 1
        chunk = DataChunk.from_rows(TABLE.schema, [(number, "", 0.0) for number in ids])
        keys = sorted(self.serde.keys_of(chunk)[0])
        self.store.ingest_batch(WriteBatch([(key, None) for key in keys]), epoch_of(self.epoch))
        self.store.commit(epoch_of(self.epoch))

    def stored(self):
        return Stored(epoch_of(self.epoch), tuple(run.sstables for run in self.manager.version.runs))

    def load(self, outcome, load_id="load"):
        self.epoch += 1
        self.store.commit(epoch_of(self.epoch), loads=[LoadedFiles(load_id, outcome.sstables)])

    def rows(self):
        with self.store.scan(KeyRange.table(TABLE.id), epoch_of(self.epoch)) as scan:
            found = scan.to_arrow()
        if not found.num_rows:
            return []
        keys, values = (BinaryColumn.from_arrow(found.column(index).combine_chunks()) for index in (0, 1))
        return sorted(self.serde.decode(keys, values).rows())


@pytest.fixture
def target(tmp_path):
    return Target(tmp_path)


def rows_of(rng, count, ids=None):
    ids = ids or rng.sample(range(100_000), count)
    return [(number, f"name {number} {rng.randrange(100)}", rng.random()) for number in ids]


def split_randomly(rng, rows, senders):
    parts = [[] for _ in range(senders)]
    for row in rows:
        rng.choice(parts).append(row)
    return parts


@pytest.mark.parametrize("seed", range(8))
def test_all_rows_are_in_files_that_end_at_the_partitions_borders(seed, tmp_path, target, monkeypatch):
    """With and without spilled runs; batches of several tasks arrive in any order."""
    rng = random.Random(seed)
    rows = rows_of(rng, 1_000)
    spec = spec_of(tmp_path, partitions=rng.choice((1, 3, 8)), memory_bytes=rng.choice((1 << 30, 5_000)))
    outcome = load(spec, split_randomly(rng, rows, 3), monkeypatch, rng)
    assert (outcome.rows_sent, outcome.rows_dropped, outcome.duplicates) == (1_000, 0, 0)
    assert (outcome.spills > 0) == (spec.memory_bytes == 5_000)
    assert len(outcome.sstables) >= spec.partitions
    for info in outcome.sstables:
        vnodes = [int.from_bytes(key[4:6], "big") for key in (info.smallest, info.largest)]
        groups = {max(p for p in range(spec.partitions) if spec.first_vnode(p) <= vnode) for vnode in vnodes}
        assert len(groups) == 1
    target.load(outcome)
    assert target.rows() == sorted(rows)
    assert target.manager.load_answer("load").level == 6


@pytest.mark.parametrize("memory_bytes", [1 << 30, 4_000], ids=["in memory", "spilled"])
class TestDuplicates:
    def senders(self, rng):
        """Rows of three tasks over 60 ids, each id several times."""
        return [rows_of(rng, 0, [rng.randrange(60) for _ in range(200)]) for _ in range(3)]

    def test_they_are_counted_and_shown_where_they_are_errors(self, memory_bytes, tmp_path, target, monkeypatch):
        senders = self.senders(random.Random(1))
        spec = spec_of(tmp_path, memory_bytes=memory_bytes)
        outcome = load(spec, senders, monkeypatch)
        ids = {row[0] for sender in senders for row in sender}
        assert outcome.rows_sent == 600 and outcome.duplicates > 0 and 0 < len(outcome.duplicate_keys) <= 10
        assert {target.serde.show_key(key)[0] for key in outcome.duplicate_keys} <= ids

    @pytest.mark.parametrize("rule", ["last", "first"])
    @pytest.mark.parametrize("seed", range(3))
    def test_the_position_in_the_frame_decides_whatever_arrives_first(self, memory_bytes, tmp_path, target, monkeypatch,
                                                                      rule, seed):
        rng = random.Random(seed)
        senders = self.senders(rng)
        spec = spec_of(tmp_path, memory_bytes=memory_bytes, on_duplicate=rule)
        outcome = load(spec, senders, monkeypatch, rng)
        kept = {}
        for row in (row for sender in senders for row in sender):
            if rule == "last" or row[0] not in kept:
                kept[row[0]] = row
        assert (outcome.rows_sent, outcome.rows_dropped) == (600, 600 - len(kept))
        target.load(outcome)
        assert target.rows() == sorted(kept.values())


@pytest.mark.parametrize("memory_bytes", [1 << 30, 4_000], ids=["in memory", "spilled"])
@pytest.mark.parametrize("rule", ["error", "last", "first"])
def test_rows_that_are_stored_count_as_duplicates_unless_they_were_deleted(memory_bytes, rule, tmp_path, target,
                                                                          monkeypatch):
    rng = random.Random(5)
    old = rows_of(rng, 0, range(300))
    target.write(old)
    target.write(updated := rows_of(rng, 0, range(100, 150)))
    target.delete(range(200, 260))
    held = {row[0]: row for row in (*old, *updated)}
    for number in range(200, 260):
        del held[number]
    new = rows_of(rng, 0, range(120, 500, 2))
    spec = spec_of(tmp_path, memory_bytes=memory_bytes, on_duplicate=rule, stored=target.stored(),
                   tables={7: TableRules(vnode_groups=2)})
    outcome = load(spec, split_randomly(rng, new, 2), monkeypatch)
    met = {row[0] for row in new} & set(held)
    assert outcome.duplicates == len(met) and outcome.rows_dropped == (len(met) if rule == "first" else 0)
    if rule == "error":
        assert {target.serde.show_key(key)[0] for key in outcome.duplicate_keys} <= met
        return
    target.load(outcome)
    wins = {row[0]: row for row in new if rule == "last" or row[0] not in held}
    assert target.rows() == sorted({**held, **wins}.values())


class TestRefusals:
    def error_of(self, spec, senders, monkeypatch, change=lambda sent: None):
        sent = encoded(spec, senders, monkeypatch)
        change(sent)
        with pytest.raises(RowsRefused) as caught:
            joined(written(spec, sent), spec, "job")
        return str(caught.value)

    def test_a_key_that_is_null(self, tmp_path, monkeypatch):
        rows = [*rows_of(random.Random(1), 50), (None, "nobody", 0.0)]
        error = self.error_of(spec_of(tmp_path), [rows], monkeypatch)
        assert "column 'id', row 50: the column is part of the primary key, and this is NULL" in error

    @pytest.mark.parametrize(
        ("column", "wrong", "reason"),
        [("name", b"\xff", "UTF-8"), ("name", b"x" * (1 << 20), "the key takes"), ("doc", b"{", "no JSON")],
    )
    def test_a_value_that_its_column_cannot_hold(self, tmp_path, column, wrong, reason):
        table = table_catalog("orders", Schema.of(name="varchar", doc="jsonb", at="date"), [0], table_id=7)
        encoder = RowEncoder(spec_of(tmp_path, table=table))

        def batch(**values):
            rows = {"name": [b"a", b"b"], "doc": [b'{"b":1, "a":2}', None], **values}
            texts = [pa.array(rows[name], pa.binary()) for name in ("name", "doc")]
            made = [pa.Array.from_buffers(pa.utf8(), 2, text.buffers()) for text in texts]
            return pa.record_batch([*made, pa.nulls(2, pa.date32())], ["name", "doc", "at"])

        encoder.encode(batch())
        with pytest.raises(InvalidValue, match=f"column '{column}', row 3: .*{reason}.*partition 0"):
            encoder.encode(batch(**{column: [b"1", wrong]}))

    def test_rows_that_are_lost_or_come_twice_on_their_way(self, tmp_path, monkeypatch):
        rows = rows_of(random.Random(1), 200)

        def lose(sent):
            sent[1].pop(0)

        def repeat(sent):
            sent[2].append(sent[2][0])

        def change(sent):
            batch = sent[0][0]
            first, *others = batch.column(1).to_pylist()
            spoiled = [first[:-1] + bytes([first[-1] ^ 1]), *others]
            sent[0][0] = batch.set_column(1, "message", pa.array(spoiled, pa.binary()))

        for spoil in (lose, repeat, change):
            assert "received" in self.error_of(spec_of(tmp_path), [rows], monkeypatch, spoil)

    def test_a_task_that_only_some_received_from(self, tmp_path, monkeypatch):
        """One partition misses all rows and the row count of a task."""
        spec = spec_of(tmp_path)
        one, two = (encoded(spec, [rows_of(random.Random(seed), 50)], monkeypatch) for seed in (1, 2))
        sent = {partition: [*one[partition], *two[partition]] for partition in one}
        sent[3] = one[3]
        with pytest.raises(SparkJobFailed, match="which received"):
            joined(written(spec, sent), spec, "job")

    def test_a_partition_without_an_answer(self, tmp_path, monkeypatch):
        spec = spec_of(tmp_path)
        parts = written(spec, encoded(spec, [rows_of(random.Random(1), 50)], monkeypatch))
        with pytest.raises(SparkJobFailed, match="partitions"):
            joined(parts[:-1], spec, "job")
        with pytest.raises(SparkJobFailed, match="partitions"):
            joined([*parts, parts[0]], spec, "job")

    def test_an_executor_with_another_package(self, tmp_path):
        spec = spec_of(tmp_path, partitions=1)
        batches = list(encode_rows("0.0.other", spec.to_bytes(), batches_of(rows_of(random.Random(1), 5))))
        (answer,) = write_rows(spec.to_bytes(), iter(batches))
        assert "version" in LoadPart.from_bytes(answer.column(0)[0].as_py()).error

    def test_an_attempt_that_takes_too_long(self, tmp_path, monkeypatch):
        spec = spec_of(tmp_path, limit_ms=0)
        sent = encoded(spec, [rows_of(random.Random(1), 500)], monkeypatch)
        with pytest.raises(TimeoutError, match="took more than 0 ms"):
            written(spec, sent)

    def test_bytes_that_are_no_record(self):
        for data in (b"", b"{}", b'{"format":0}', b"[1]"):
            with pytest.raises(InvalidTask):
                LoadSpec.from_bytes(data)
            with pytest.raises(InvalidTask):
                LoadPart.from_bytes(data)


def test_specs_and_parts_survive_their_way(tmp_path, target):
    target.write(rows_of(random.Random(1), 20))
    spec = spec_of(tmp_path, stored=target.stored(), tables={7: TableRules(vnode_groups=4)}, limit_ms=12)
    assert LoadSpec.from_bytes(spec.to_bytes()) == spec
    infos = target.manager.version.levels[0].runs[0].sstables
    part = LoadPart(3, infos, 2, 9, 1, 1, (b"\x00key",), 50, 1, {"sort": 0.5})
    assert LoadPart.from_bytes(part.to_bytes()) == part


def test_columns_that_a_frame_does_not_have_hold_their_defaults(tmp_path, target, monkeypatch):
    columns = (TABLE.columns[0], TABLE.columns[1], replace(TABLE.columns[2], default=2.5))
    spec = spec_of(tmp_path, columns=(0, -1, -1), table=replace(TABLE, columns=columns))
    target.load(load(spec, [rows_of(random.Random(1), 30)], monkeypatch))
    assert {row[1:] for row in target.rows()} == {(None, 2.5)}


@pytest.mark.parametrize("seed", range(20))
def test_a_sorter_gives_rows_by_key_and_of_each_key_the_highest(seed):
    rng = random.Random(seed)
    length, count = rng.choice((3, 20)), rng.choice((0, 1, 30, 2_000))
    rows = [(b"k" * rng.choice((0, length)) + rng.randbytes(rng.choice((1, 2, length))), rng.randbytes(5), rank)
            for rank in range(count)]
    rng.shuffle(rows)
    sorter, writer, kept = RowSorter(), MessageWriter(1, True), {}
    for at in range(0, count, 100):
        pack(writer, rows[at:at + 100])
        if rng.random() < 0.5:
            sorter.add(pa.array(writer.take()[1], pa.binary()))
    sorter.add(pa.array(writer.take()[1], pa.binary()))
    sorter.add(pa.array(writer.accounts(), pa.binary()))
    assert (sorter.counted, sorter.reported_rows, sorter.senders) == (count, count, 1)
    assert sorter.content == sorter.reported_content
    for key, value, rank in rows:
        if key not in kept or kept[key][1] < rank:
            kept[key] = value, rank
    expected = [(key, rank, value) for key, (value, rank) in sorted(kept.items())]
    assert list(sorter.sort(True).entries()) == expected
    assert sorter.duplicates == count - len(kept) and len(sorter.duplicate_keys) == min(10, sorter.duplicates)


def pack(writer, rows):
    keys, values = (BinaryColumn.from_pylist([row[index] for row in rows]) for index in (0, 1))
    writer.add(keys, values, [0] * len(rows), [row[2] for row in rows])


def test_a_sorter_refuses_bytes_that_are_no_message():
    """Truncated at any length, too long, or with offsets that do not ascend."""
    writer = MessageWriter(1, True)
    pack(writer, [(b"key %d" % number, b"value", number) for number in range(20)])
    (message,) = writer.take()[1]
    for bad in (*(message[:size] for size in range(len(message))), message + b"x",
                message[:8] + bytes([200]) + message[9:], writer.accounts()[0][:-1]):
        with pytest.raises(Corruption):
            RowSorter().add(pa.array([bad], pa.binary()))
    with pytest.raises(Corruption):
        RowSorter().add(pa.array([None], pa.binary()))
    sorter = RowSorter()
    sorter.add(pa.array([MessageWriter.refusal("no way on"), message], pa.binary()))
    assert sorter.refusals == ["no way on"] and sorter.rows == 20
