"""Tasks, specs and results survive JSON; other records are refused."""

import json

import pytest

from hummock.base.key_watermark import KeyWatermark
from hummock.base.table_rules import KeyColumn, PrefixRule, TableRules
from hummock.compaction.task import CompactTask, OutputOptions, RangeResult, RangeSpec, TaskInput, TaskKind
from hummock.errors import FormatTooNew, InvalidTask
from hummock.sstable.info import SstableInfo


def info(number):
    return SstableInfo(f"{number:032x}", b"a%d" % number, b"b%d" % number, 10 + number, 100, 200, (1,), 1, 2, id=number,
                       content_hash=number << 60)


RULES = TableRules(PrefixRule(columns=(KeyColumn(1, 8), KeyColumn(254, 0, True))), 60_000,
                   (KeyWatermark(9 << 16, ((0, 0, b"k"), (7, 9, b"\xff"))),), 16)
TASK = CompactTask(
    7, TaskKind.L0_TO_BASE, (TaskInput(0, 4, (info(1), info(2))), TaskInput(6, 0, (info(3),))), 6, 0, 5 << 16, True,
    OutputOptions(1 << 20, 4096, "lz4", "none", 10), (3, 9), {1: RULES, 2: TableRules(PrefixRule(9))}, (b"b", b"c\0"))


def through_json(record):
    return json.loads(json.dumps(record))


class TestRecords:
    def test_a_task_survives_json(self):
        assert CompactTask.from_json(through_json(TASK.to_json())) == TASK

    def test_ranges_cover_all_keys_and_survive_json(self):
        ranges = TASK.ranges()
        assert [(spec.index, spec.start, spec.end) for spec in ranges] == [
            (0, b"", b"b"), (1, b"b", b"c\0"), (2, b"c\0", None)]
        assert tuple(RangeSpec.from_json(through_json(spec.to_json())) for spec in ranges) == ranges

    def test_a_result_survives_json(self):
        result = RangeResult(1, (info(8),), 30, 12, 2**64 - 1, 5, 4_000, 0.25)
        assert RangeResult.from_json(through_json(result.to_json())) == result

    def test_sums_are_over_all_inputs(self):
        assert (TASK.input_bytes, TASK.input_rows) == (300, 36)

    def test_a_task_prints_as_one_line(self):
        assert repr(TASK) == "CompactTask(7, l0_to_base, 3 files of 2 runs, 36 rows, 300 bytes, into level 6)"

    @pytest.mark.parametrize("kind", [CompactTask, RangeSpec, RangeResult])
    @pytest.mark.parametrize("record", [{}, {"format": 1}, {"format": 2}, [], {"format": 1, "task": 5, "end": 1}])
    def test_other_records_are_refused(self, kind, record):
        with pytest.raises((InvalidTask, FormatTooNew)):
            kind.from_json(record)
