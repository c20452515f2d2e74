from dataclasses import fields
from typing import get_type_hints

import pytest

import hummock
from hummock.errors import InvalidOption, UnknownOption
from hummock.options import (
    FILTER_POLICIES,
    CompactionOptions,
    MetaOptions,
    RetryOptions,
    StorageKeywords,
    StorageOptions,
    VacuumOptions,
)
from hummock.sstable.filter.policy import POLICIES


def test_defaults_are_valid():
    assert StorageOptions().block_bytes == 65536
    assert RetryOptions().attempts > 1
    assert MetaOptions().lease_ms == 30_000


@pytest.mark.parametrize("settings", [
    {"block_bytes": 0}, {"block_bytes": 1.5}, {"codec": "zip"}, {"filter_policy": ""},
    {"scan_batch_bytes": 1 << 31}, {"scan_batch_rows": True}, {"filter_bits_per_key": 65},
])
def test_a_wrong_value_is_refused_by_name(settings):
    with pytest.raises(InvalidOption, match=next(iter(settings))):
        StorageOptions(**settings)


def test_the_keywords_of_open_are_the_options_and_their_types():
    assert get_type_hints(StorageKeywords) == get_type_hints(StorageOptions)


@pytest.mark.parametrize(("name", "message"), [
    ("blok_bytes", "there is no option 'blok_bytes'; did you mean 'block_bytes'?"),
    ("zzz", "there is no option 'zzz'; there are block_bytes, block_cache_bytes, "),
])
def test_an_unknown_option_is_named_with_the_nearest_one(name, message):
    with pytest.raises(UnknownOption) as caught:
        hummock.open("memory://", **{name: 1})
    assert str(caught.value).startswith(message) and (caught.value.name, caught.value.value) == (name, 1)


def test_the_filter_policies_that_may_be_named_are_those_there_are():
    assert (*(policy.name for policy in POLICIES), "none") == FILTER_POLICIES


KINDS = (StorageOptions, CompactionOptions, MetaOptions, RetryOptions, VacuumOptions)
FIELDS = [(kind, field.name) for kind in KINDS for field in fields(kind)]


@pytest.mark.parametrize("value", [-1, 0, 1, 1 << 70, 1.5, "x", None, True], ids=repr)
@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda part: getattr(part, "__name__", part))
def test_a_value_is_refused_by_an_option_s_name_or_a_store_works_with_it(kind, name, value, tmp_path):
    try:
        options = kind(**{name: value})
    except InvalidOption as error:
        assert error.name in {each.name for each in fields(kind)} and error.name in str(error)
        return
    directory = {"disk_cache_directory": str(tmp_path)} if name == "disk_cache_bytes" else {}
    settings = {StorageOptions: {name: value, **directory}, CompactionOptions: {"compaction": options},
                MetaOptions: {"meta_options": options}, RetryOptions: {"retry": options},
                VacuumOptions: {"vacuum": options}}[kind]
    with hummock.open(f"file://{tmp_path}/store", role="writer", **settings) as store:
        for number in (1, 2):
            epoch = hummock.Epoch(number << 16)
            store.ingest_batch(hummock.WriteBatch([(hummock.user_key(1, 0, b"k"), b"%d" % number)]), epoch)
            store.commit(epoch)
        assert store.get(hummock.user_key(1, 0, b"k"), epoch) == b"2"
