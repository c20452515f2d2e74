"""Functions as sinks: the suite of targets, names, functions that fail."""

import pyarrow as pa
import pytest

from stream.connector.arrow_sink import ArrowTarget, arrow_sink
from stream.connector.sink import SinkIdentity
from stream.errors import ConnectorError
from tests.support.suites.sink_suite import SinkSuite, changes_in

IDENTITY = SinkIdentity("s", 7)


def target():
    return ArrowTarget({"name": "f"}, IDENTITY)


class TestArrowSink(SinkSuite):
    repeats = True

    @pytest.fixture
    def opened(self, received):
        return target

    @pytest.fixture
    def received(self):
        found = []

        def receive(epoch, changes):
            assert epoch & 0xFFFF == 0
            table = changes.read_all()
            found.extend(changes_in(table))

        with arrow_sink("f", receive):
            yield lambda: found


def test_names_are_those_of_one_function_each():
    with arrow_sink("f", print), pytest.raises(ConnectorError, match="registered already"):
        arrow_sink("f", print)
    with pytest.raises(ConnectorError, match="this process has no function 'f'"):
        target().deliver(1, iter([pa.record_batch({"_op": pa.array([0], pa.uint8())})]))
    with pytest.raises(ConnectorError, match="option name is missing"):
        ArrowTarget({}, IDENTITY)


def test_an_error_of_the_function_is_that_of_the_delivery():
    def refuse(epoch, changes):
        next(changes)
        raise KeyError("no room")

    with arrow_sink("f", refuse), pytest.raises(KeyError):
        target().deliver(1, iter([pa.record_batch({"_op": pa.array([0], pa.uint8())})]))
