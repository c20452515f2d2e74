"""The clock of a server that answers late or not at all."""

import pytest

from hummock.errors import MetaStoreError
from hummock.meta.store.shared_clock import AGAIN_SECONDS, Reading, SharedClock

KEPT_SECONDS = 60


class Server:
    """A server whose time is `offset_ms` ahead of the monotonic clock, which only `pass_time` and its delays move."""

    def __init__(self):
        self.seconds, self.offset_ms, self.asked = 1000.0, 5_000_000, 0
        self.waits = self.asks = self.answers = 0.0        # seconds before the request, on its way, and of the answer
        self.is_there = True
        self.clock = SharedClock(self.read, KEPT_SECONDS, lambda: self.seconds)

    @property
    def now_ms(self):
        return self.offset_ms + int(self.seconds * 1000)

    def pass_time(self, seconds):
        self.seconds += seconds

    def read(self):
        self.asked += 1
        self.pass_time(self.waits)
        asked = self.seconds
        if not self.is_there:
            raise MetaStoreError("nobody there")
        self.pass_time(self.asks)
        server_ms = self.now_ms
        self.pass_time(self.answers)
        return Reading(server_ms, asked, self.seconds)


@pytest.fixture
def server():
    return Server()


def test_it_is_asked_once_and_runs_on(server):
    for _ in range(4):
        assert server.clock.now_ms() == server.now_ms
        server.pass_time(KEPT_SECONDS / 4)
    assert server.asked == 1
    server.pass_time(1)
    server.offset_ms += 700             # the two clocks have drifted apart
    assert server.clock.now_ms() == server.now_ms and server.asked == 2


@pytest.mark.parametrize(("waits", "asks", "answers"), [(30, 0, 0), (0, .5, 0), (0, 0, .5), (30, .25, .75)])
def test_a_wait_never_puts_it_ahead_and_behind_by_the_way_of_the_answer(server, waits, asks, answers):
    server.waits, server.asks, server.answers = waits, asks, answers
    for _ in range(3):
        assert server.clock.now_ms() == server.now_ms - answers * 1000
        server.pass_time(KEPT_SECONDS + 1)
    assert server.asked == 3


def test_a_slow_first_answer_is_asked_for_again_at_once_and_a_slow_second_soon(server):
    server.answers = 20
    assert server.clock.now_ms() == server.now_ms - 20_000
    assert server.asked == 2
    server.answers = 0
    server.pass_time(AGAIN_SECONDS)
    server.clock.now_ms()
    assert server.asked == 2
    server.pass_time(1)
    assert server.clock.now_ms() == server.now_ms and server.asked == 3


def test_a_slow_answer_does_not_replace_a_better_reading(server):
    server.clock.now_ms()
    server.answers = 20
    server.pass_time(KEPT_SECONDS + 1)
    assert server.clock.now_ms() == server.now_ms
    server.pass_time(AGAIN_SECONDS + 1)
    server.offset_ms += 1_000_000       # this machine slept meanwhile, and its monotonic clock stood still
    assert server.clock.now_ms() == server.now_ms - 20_000


def test_without_an_answer_the_former_one_counts_and_it_is_not_asked_each_time(server):
    server.clock.now_ms()
    server.is_there = False
    server.pass_time(KEPT_SECONDS + 1)
    for _ in range(5):
        assert server.clock.now_ms() == server.now_ms
    assert server.asked == 2
    server.pass_time(AGAIN_SECONDS + 1)
    server.is_there = True
    assert server.clock.now_ms() == server.now_ms and server.asked == 3


def test_without_any_answer_there_is_no_time(server):
    server.is_there = False
    with pytest.raises(MetaStoreError, match="nobody there"):
        server.clock.now_ms()


def test_a_slow_first_answer_counts_if_no_other_comes(server):
    server.answers, read = 3, server.read

    def read_once():
        server.is_there = server.asked == 0
        return read()

    server.clock = SharedClock(read_once, KEPT_SECONDS, lambda: server.seconds)
    assert server.clock.now_ms() == server.now_ms - 3_000
