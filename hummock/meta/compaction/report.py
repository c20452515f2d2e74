"""Validation of reports: the result of an attempt is accepted only if every row and every file is accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hummock.base.json_fields import U64
from hummock.compaction.picker.candidate import files_of, key_bounds
from hummock.compaction.task import CompactTask, RangeResult
from hummock.epoch import Epoch
from hummock.errors import TaskRefused
from hummock.object_store.base import is_sstable_name, name_prefix
from hummock.sstable.info import SstableInfo
from hummock.version import HummockVersion, RunAddition, VersionDelta


def check_results(task: CompactTask, prefixes: frozenset[str],
                  results: Sequence[RangeResult]) -> tuple[SstableInfo, ...]:
    """The outputs, ascending. Raises `TaskRefused` for anything but a result of this task's attempts."""
    ordered = sorted(results, key=lambda result: result.index)
    if [result.index for result in ordered] != list(range(len(ordered))) or not ordered:
        raise TaskRefused(task.id, f"its ranges are {[result.index for result in ordered]}")
    for result in ordered:
        if why := result.mismatch():
            raise TaskRefused(task.id, f"range {result.index} {why}")
    read = sum(result.rows_read for result in ordered)
    if read != task.input_rows:
        raise TaskRefused(task.id, f"{read} rows were read of {task.input_rows}")
    content, held = sum(result.hash_read for result in ordered) % U64, task.input_hash
    if held is not None and content != held:
        raise TaskRefused(task.id, f"rows of content hash {content:016x} were read where the inputs hold {held:016x}")
    outputs = tuple(info for result in ordered for info in result.sstables)
    _check_outputs(task, prefixes, outputs)
    return outputs


def _check_outputs(task: CompactTask, prefixes: frozenset[str], outputs: Sequence[SstableInfo]) -> None:
    inputs = tuple(files_of(task))
    smallest, largest = key_bounds(inputs)
    tables = {table_id for info in inputs for table_id in info.table_ids}
    oldest = min(info.global_epoch or info.min_epoch for info in inputs)
    newest = max(info.global_epoch or info.max_epoch for info in inputs)
    for info in outputs:
        if not is_sstable_name(info.name) or name_prefix(info.name) not in prefixes:
            raise TaskRefused(task.id, f"{info.name} is no name of this attempt's")
        if info.rows <= 0 or info.data_bytes <= 0 or info.smallest > info.largest:
            raise TaskRefused(task.id, f"{info.name} is empty or its smallest key is above its largest")
        if info.smallest < smallest or info.largest > largest or not set(info.table_ids) <= tables:
            raise TaskRefused(task.id, f"{info.name} holds keys that the inputs do not")
        if info.global_epoch or info.min_epoch < oldest or info.max_epoch > newest:
            raise TaskRefused(task.id, f"{info.name} holds epochs that the inputs do not")
    if len({info.name for info in outputs}) != len(outputs):
        raise TaskRefused(task.id, "a name is used once")
    for left, right in pairwise(outputs):
        if left.largest >= right.smallest:
            raise TaskRefused(task.id, f"{left.name} and {right.name} overlap or do not ascend")


def delta_of(task: CompactTask, outputs: Sequence[SstableInfo], version: HummockVersion,
             next_file_id: int) -> tuple[VersionDelta, int]:
    """The version step that replaces the inputs by the outputs, numbered from `next_file_id`; and the next number."""
    numbered = tuple(replace(info, id=next_file_id + offset) for offset, info in enumerate(outputs))
    added = (RunAddition(task.target_level, task.target_run, numbered),) if numbered else ()
    removed = tuple(info.id for info in files_of(task))
    delta = VersionDelta(version.id + 1, Epoch(version.max_committed_epoch), version.safe_epoch, added, removed)
    return delta, next_file_id + len(numbered)
