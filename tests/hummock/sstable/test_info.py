"""SstableInfo round-trips through JSON."""

import json
from dataclasses import replace

import pytest

from hummock.base.table_rules import KeyColumn, PrefixRule
from hummock.sstable.info import SstableInfo

INFO = SstableInfo(
    name="ab" * 16, smallest=b"\0\0\0\1\0\0a", largest=b"\0\0\0\2\xff", rows=9, data_bytes=100,
    uncompressed_bytes=300, table_ids=(1, 2), min_epoch=1 << 16, max_epoch=3 << 16, stale_rows=2,
    tombstones=1, filter_policy="blocked_bloom", codec="lz4", id=7, meta_bytes=50, meta_digest="cd" * 16)


def test_a_record_comes_back_from_its_json():
    assert SstableInfo.from_json(json.loads(json.dumps(INFO.to_json()))) == INFO


def test_rules_of_prefixes_travel_and_are_left_out_where_there_are_none():
    ruled = replace(INFO, prefixes=((1, PrefixRule(8)), (2, PrefixRule(columns=(KeyColumn(254, 0, True),)))))
    assert SstableInfo.from_json(json.loads(json.dumps(ruled.to_json()))) == ruled
    assert "prefixes" not in INFO.to_json()


def test_a_field_of_a_later_version_is_ignored_and_a_missing_one_is_an_error():
    assert SstableInfo.from_json({**INFO.to_json(), "colour": "blue"}) == INFO
    record = INFO.to_json()
    del record["largest"]
    with pytest.raises(KeyError):
        SstableInfo.from_json(record)


def test_an_older_record_without_optional_fields_has_their_defaults():
    record = INFO.to_json()
    for name in ("stale_rows", "tombstones", "global_epoch", "id"):
        del record[name]
    assert SstableInfo.from_json(record) == replace(INFO, stale_rows=0, tombstones=0, id=0)
