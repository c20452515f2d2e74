"""Epochs of failed jobs stay pinned for the limit, and longer if somebody is about to resume from them."""

import pytest

from hummock.errors import EpochTooOld, InvalidEpoch, MetaStoreBusy, OutcomeUnknown, SnapshotExpired
from stream.meta.kept_history import CLAIMED_SECONDS, KeptHistory


class Pins:
    """Pinned epochs; those below `oldest` cannot be. The next calls raise `errors`."""

    def __init__(self, oldest=0, errors=()):
        self.oldest, self.pinned, self.errors = oldest, [], list(errors)

    def pin(self, epoch):
        if self.errors:
            raise self.errors.pop(0)
        if epoch < self.oldest:
            raise EpochTooOld(epoch, self.oldest)
        self.pinned.append(epoch)

    def unpin(self, epoch):
        self.pinned.remove(epoch)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def of_two_jobs(clock, limit_ms):
    """Jobs 1 and 2 stopped, and job 1 is about to be resumed."""
    pins = Pins()
    history = KeptHistory(pins, limit_ms, clock)
    history.keep(1, 7 << 16)
    history.keep(2, 8 << 16)
    assert history.claim(1)
    return pins, history


def test_an_epoch_is_kept_for_the_limit(clock):
    pins = Pins()
    history = KeptHistory(pins, 5_000, clock)
    history.keep(1, 7 << 16)
    history.keep(1, 9 << 16)            # as of the first failure
    clock.now += 4.9
    history.expire()
    assert pins.pinned == [7 << 16] and history.claim(1) and not history.claim(2)
    clock.now += CLAIMED_SECONDS
    history.expire()
    assert pins.pinned == [] and not history.claim(1)
    history.keep(1, 7 << 16)            # released once
    assert pins.pinned == []


def test_a_claimed_epoch_outlives_a_limit_that_is_over(clock):
    pins, history = of_two_jobs(clock, 0)
    history.expire()
    assert pins.pinned == [7 << 16] and not history.claim(2)
    clock.now += CLAIMED_SECONDS
    history.expire()
    assert pins.pinned == []


def test_an_epoch_of_a_job_that_runs_again_is_released(clock):
    pins, history = of_two_jobs(clock, 5_000)
    history.keep_only({2})
    assert pins.pinned == [8 << 16] and not history.claim(1)


def test_an_epoch_that_can_no_longer_be_read_is_not_kept(clock):
    history = KeptHistory(Pins(oldest=8 << 16), 5_000, clock)
    history.keep(1, 7 << 16)
    assert not history.claim(1)


@pytest.mark.parametrize("error", [EpochTooOld(7 << 16, 8 << 16), InvalidEpoch(7 << 16, "is above the committed one")])
def test_an_epoch_that_cannot_be_read_is_not_tried_again(clock, error, caplog):
    pins = Pins(errors=[error])
    history = KeptHistory(pins, 5_000, clock)
    history.keep(1, 7 << 16)
    history.keep(1, 7 << 16)
    history.expire()
    assert pins.pinned == [] and not history.claim(1) and not caplog.records


@pytest.mark.parametrize("again", [lambda history: history.keep(1, 7 << 16), KeptHistory.expire])
@pytest.mark.parametrize("error", [MetaStoreBusy("busy", 5), OutcomeUnknown("lost"), SnapshotExpired("a")])
def test_an_epoch_that_could_not_be_pinned_for_the_moment_is_tried_again(clock, error, again, caplog):
    pins = Pins(errors=[error, error])
    history = KeptHistory(pins, 5_000, clock)
    history.keep(1, 7 << 16)
    again(history)
    assert not history.claim(1)
    assert [record.getMessage().split(" job=")[1].split()[0] for record in caplog.records] == ["1"], "once"
    again(history)
    assert pins.pinned == [7 << 16] and history.claim(1)
    again(history)
    assert pins.pinned == [7 << 16], "pinned twice"


def test_an_epoch_of_a_job_that_runs_again_is_not_tried_again(clock):
    pins = Pins(errors=[MetaStoreBusy("busy", 5)] * 2)
    history = KeptHistory(pins, 5_000, clock)
    history.keep(1, 7 << 16)
    history.keep(2, 8 << 16)
    history.keep_only({2})
    history.expire()
    assert pins.pinned == [8 << 16]
