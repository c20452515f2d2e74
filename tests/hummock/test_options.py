import pytest

from hummock.errors import InvalidOption
from hummock.options import MetaOptions, RetryOptions, StorageOptions


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
