import pytest

from stream.connector import Connector, open_connector, register_connector
from stream.errors import UnknownConnector


class EmptyConnector(Connector):
    def __init__(self, options, schema):
        self.options, self.schema = options, schema

    def enumerator(self):
        raise AssertionError("must not be called")

    def open_split(self, split, columns):
        raise AssertionError("must not be called")


def test_registered_connector_is_opened_with_options_and_schema():
    register_connector("empty", EmptyConnector)
    connector = open_connector("empty", {"a": "b"}, "schema")
    assert connector.options == {"a": "b"} and connector.schema == "schema"


def test_unknown_connector_lists_those_that_are_registered():
    register_connector("empty", EmptyConnector)
    with pytest.raises(UnknownConnector, match=r"'nowhere'.*empty"):
        open_connector("nowhere", {}, None)
