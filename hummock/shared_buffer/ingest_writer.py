"""Writes sorted rows as the files of a load: the last step of a bulk-load task, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hummock.base.table_rules import NO_RULES, Tables
from hummock.iterator.base import HummockIterator
from hummock.object_store.base import ObjectStore
from hummock.options import StorageOptions
from hummock.pipeline.sorted_run_writer import write_run
from hummock.sstable.info import SstableInfo


def write_load(
    rows: HummockIterator,
    size_bytes: int,
    store: ObjectStore,
    options: StorageOptions,
    mint_name: Callable[[], str],
    *,
    tables: Tables = NO_RULES,
    borders: Iterable[tuple[int, int]] = (),
    before_each: Callable[[], None] = lambda: None,
) -> tuple[SstableInfo, ...]:
    """Writes `rows` (ascending user keys, each once, under the placeholder epoch) to durable files.

    `size_bytes`: approximate size of keys and values. `mint_name` returns names with a registered prefix. `tables`,
    `borders` and `before_each` as in `write_run`. After an error the files are left to vacuum.
    """
    outputs = write_run(rows, size_bytes, store, options, mint_name, name="load", tables=tables, borders=borders,
                        before_each=before_each, room_bytes=options.upload_bytes // options.uploads_in_flight)
    return tuple(output.info for output in outputs)
