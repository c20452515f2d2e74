import threading

import pytest

from hummock.epoch import (
    BASE_MS,
    EpochGenerator,
    EpochPair,
    check_epoch,
    check_pure,
    from_unix_ms,
    pure_epoch,
    to_unix_ms,
    with_spill,
)
from hummock.errors import InvalidEpoch


def test_an_epoch_is_milliseconds_since_april_2021_shifted_by_sixteen():
    assert from_unix_ms(BASE_MS + 5) == 5 << 16
    assert to_unix_ms(from_unix_ms(BASE_MS + 12345)) == BASE_MS + 12345
    with pytest.raises(InvalidEpoch):
        from_unix_ms(BASE_MS)


def test_offsets_of_flushes_are_above_their_pure_epoch_and_below_the_next():
    epoch = 7 << 16
    assert with_spill(epoch, 3) == epoch | 3
    assert pure_epoch(epoch | 3) == epoch
    assert epoch < with_spill(epoch, 1) < with_spill(epoch, 0xFFFF) < 8 << 16
    with pytest.raises(InvalidEpoch):
        with_spill(epoch, 0x10000)


@pytest.mark.parametrize("bad", [-1, 1 << 64, "1", 1.0, True, None])
def test_what_is_no_epoch_is_refused(bad):
    with pytest.raises(InvalidEpoch):
        check_epoch(bad)


@pytest.mark.parametrize("bad", [0, 1, (5 << 16) | 1])
def test_an_epoch_with_an_offset_is_not_pure(bad):
    with pytest.raises(InvalidEpoch):
        check_pure(bad)


def test_generated_epochs_rise_while_the_clock_stops_or_goes_back():
    moments = iter([BASE_MS + 100, BASE_MS + 100, BASE_MS + 50, BASE_MS + 200])
    generator = EpochGenerator(lambda: next(moments))
    assert [generator.next() >> 16 for _ in range(4)] == [100, 101, 102, 200]


def test_a_generator_continues_above_the_last_epoch():
    generator = EpochGenerator(lambda: BASE_MS + 1, last=(900 << 16) | 5)
    assert generator.next() == 901 << 16


def test_threads_never_get_the_same_epoch():
    generator, seen = EpochGenerator(lambda: BASE_MS + 1), []

    def generate():
        seen.extend([generator.next() for _ in range(500)])

    threads = [threading.Thread(target=generate) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 4000


def test_a_pair_goes_forward():
    assert EpochPair(curr=2 << 16, prev=1 << 16).prev == 1 << 16
    with pytest.raises(InvalidEpoch):
        EpochPair(curr=1 << 16, prev=1 << 16)
