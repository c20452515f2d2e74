import pytest

from stream.options import StreamOptions


def test_defaults_are_valid():
    assert StreamOptions().barrier_interval_ms == 1_000


@pytest.mark.parametrize("field", ["chunk_rows", "in_flight_barriers", "aggregation_cache_bytes"])
def test_zero_is_refused_and_the_field_is_named(field):
    with pytest.raises(ValueError, match=field):
        StreamOptions(**{field: 0})


def test_zero_checkpoint_rows_means_never():
    assert StreamOptions(checkpoint_rows=0).checkpoint_rows == 0
