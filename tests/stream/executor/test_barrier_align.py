import pytest

from relational.types import Schema
from stream.errors import InconsistentStream
from stream.executor.barrier_align import FromInput, align_barriers
from stream.message import PAUSE, WAIT, Barrier, Wait
from tests.support.drivers.pretty import from_pretty
from tests.support.drivers.stream_driver import ScriptedExecutor, barrier

SCHEMA = Schema.of(v="int")


def chunk(value):
    return from_pretty(f"+ {value}", SCHEMA)


def aligned(*scripts):
    inputs = [ScriptedExecutor(SCHEMA, (0,), iter(script)) for script in scripts]
    found = []
    for message in align_barriers(inputs, "Join"):
        if isinstance(message, FromInput):
            found.append((message.input, next(message.message.changes())[1][0]))
        else:
            found.append(message)
    return found


def test_a_barrier_comes_once_after_all_that_precedes_it_on_any_input():
    found = aligned(
        [barrier(1), chunk(1), barrier(2), chunk(3), barrier(3)],
        [barrier(1), chunk(11), chunk(12), chunk(13), barrier(2), barrier(3)],
    )
    assert found == [barrier(1), (0, 1), (1, 11), (1, 12), (1, 13), barrier(2), (0, 3), barrier(3)]


def test_inputs_are_read_in_turns():
    found = aligned([barrier(1), *map(chunk, range(3)), barrier(2)], [barrier(1), *map(chunk, range(3)), barrier(2)])
    assert [each[0] for each in found if not isinstance(each, Barrier)] == [0, 1] * 3


def test_an_input_without_a_message_holds_no_other_up():
    """[R11]: a hundred messages of one path for each of the other."""
    slow = [barrier(1), *[WAIT] * 100, chunk(1), *[WAIT] * 100, barrier(2)]
    fast = [barrier(1), *map(chunk, range(100)), barrier(2)]
    found = [each for each in aligned(slow, fast) if each != WAIT]
    assert found == [barrier(1), *((1, value) for value in range(100)), (0, 1), barrier(2)]


def test_it_waits_only_if_no_input_has_a_message():
    found = aligned([barrier(1), WAIT, WAIT, chunk(1), barrier(2)], [barrier(1), WAIT, chunk(2), WAIT, barrier(2)])
    assert found == [barrier(1), WAIT, (1, 2), (0, 1), barrier(2)]


def test_it_ends_with_any_input():
    assert aligned([barrier(1)], [barrier(1), chunk(1), barrier(2)]) == [barrier(1)]


def test_different_barriers_are_an_error():
    with pytest.raises(InconsistentStream, match="Join"):
        aligned([barrier(1), barrier(2)], [barrier(1), barrier(3)])


@pytest.mark.parametrize(
    ("waits", "passed_on"),
    [((WAIT, WAIT), WAIT), ((WAIT, PAUSE), PAUSE), ((PAUSE, WAIT), PAUSE), ((Wait(2.0), Wait(1.0)), Wait(1.0)),
     ((Wait(1.0), WAIT), Wait(1.0)), ((Wait(1.0), PAUSE), PAUSE)],
)
def test_of_the_waits_of_its_inputs_it_passes_on_the_one_that_ends_first(waits, passed_on):
    """With another one an input that has more to process, or polls, would be left alone."""
    found = aligned(*([barrier(1), wait, barrier(2)] for wait in waits))
    assert found == [barrier(1), passed_on, barrier(2)]


def test_an_input_that_has_passed_the_barrier_sets_no_time():
    found = aligned([barrier(1), PAUSE], [WAIT, barrier(1), PAUSE])
    assert found == [barrier(1), PAUSE]
