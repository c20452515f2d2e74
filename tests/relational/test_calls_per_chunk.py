"""What a chunk costs in Python calls does not depend on its rows."""


import numpy as np
import pyarrow as pa

from relational.chunk import DataChunk, StreamChunk, VnodeMap, mask_of, vnodes_of
from relational.chunk.net_changes import net_changes
from relational.encoding import KeyEncoder, ValueEncoder
from relational.types import OrderType, Schema
from tests.suites.call_count import calls_of

SCHEMA = Schema.of(
    id="bigint", name="varchar", amount="numeric(10, 2)", seen="timestamp", span="interval", ok="boolean"
)


def chunk_of(rows):
    values = [(i % 97, f"name {i}", i % 50, None, None, i % 3 == 0) for i in range(rows)]
    return StreamChunk.from_rows(SCHEMA, [(i % 2, row) for i, row in enumerate(values)])


def all_verbs(chunk):
    keys = KeyEncoder(SCHEMA.types, [OrderType(descending=True)] * len(SCHEMA))
    values = ValueEncoder(SCHEMA.types)
    owners = VnodeMap.even([0, 1])

    def work():
        kept = chunk.filter(mask_of(chunk.columns[5]))
        dense = kept.compact()
        encoded = keys.encode(chunk.columns, table_id=1, vnodes=vnodes_of(chunk.columns[:1]))
        DataChunk(keys.decode(encoded, skip=6))
        values.decode(values.encode(dense.columns), [0, 2])
        chunk.split_by_vnode([0], owners)
        net_changes(chunk, [0])
        chunk.without_unchanged_updates()
        chunk.inverse()
        StreamChunk.concat([chunk, dense])
        StreamChunk.from_arrow(pa.record_batch(kept))
        chunk.take(np.zeros(10, np.int32))

    return work


def test_calls_do_not_grow_with_rows():
    small, large = chunk_of(1024), chunk_of(4096)
    all_verbs(small)()
    few, many = calls_of(all_verbs(small)), calls_of(all_verbs(large))
    assert few == many, f"{few} calls for 1,024 rows, {many} for 4,096"
