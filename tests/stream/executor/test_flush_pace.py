from hummock.epoch import from_unix_ms
from stream.executor.flush_pace import NEAR_GROUPS, NEAR_SECONDS, QUIET_BARRIERS, FlushPace
from stream.runtime.barrier_forecast import BarrierForecast

NOW = 1_800_000_000_000  # ms


def test_flushes_are_rarer_while_groups_change_again_up_to_the_most():
    pace = FlushPace(100, 1_000)
    seen = []
    for _ in range(5):
        seen.append(pace.limit)
        pace.note_flush(pace.limit, pace.limit // 2)
    assert seen == [100, 200, 400, 800, 1_000]


def test_a_few_that_change_again_change_nothing_and_none_make_flushes_frequent():
    pace = FlushPace(100, 1_000)
    pace.note_flush(100, 50)
    pace.note_flush(200, 20)
    assert pace.limit == 200
    pace.note_flush(200, 0)
    assert pace.limit == 100
    pace.note_flush(100, 0)
    assert pace.limit == 100, "the least"


def test_early_flushes_are_tried_again_after_many_barriers_without_one():
    pace = FlushPace(100, 1_000)
    pace.note_flush(100, 100)
    pace.note_barrier()
    for _ in range(QUIET_BARRIERS - 1):
        pace.note_barrier()
        assert pace.limit == 200
    pace.note_barrier()
    assert pace.limit == 100


def test_a_barrier_after_an_early_flush_is_not_quiet():
    pace = FlushPace(100, 1_000)
    for _ in range(2 * QUIET_BARRIERS):
        pace.note_flush(200, 20)
        pace.note_barrier()
    pace.note_flush(200, 200)
    assert pace.limit == 200


def test_the_most_is_a_limit_for_the_first_flush_too():
    assert FlushPace(100, 7).limit == 7


def test_the_nearer_a_barrier_is_the_fewer_groups_are_flushed():
    clock = [NOW]
    forecast = BarrierForecast(1_000, lambda: clock[0])
    forecast.note_barrier(from_unix_ms(NOW))
    most, few = FlushPace(100_000, 1 << 20, forecast), FlushPace(100, 1_000, forecast)
    near = NEAR_SECONDS * 1_000
    for left, expected in ((500, 100_000), (near, 100_000), (near / 3, 33_333), (1, NEAR_GROUPS), (0, NEAR_GROUPS)):
        clock[0] = NOW + 1_000 - left
        assert (most.limit, few.limit) == (expected, 100)
    clock[0] = NOW + 2_000
    assert most.limit == 100_000, "a barrier that has not come"
