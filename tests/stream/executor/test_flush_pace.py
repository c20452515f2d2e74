from stream.executor.flush_pace import QUIET_BARRIERS, FlushPace


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
