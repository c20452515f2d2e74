"""The events of the Nexmark benchmark: `WITH (connector = 'nexmark', …)`.

    type              bid (the default), auction or person
    events            of all three types together, after which the stream ends; without it there is no end
    splits            1 by default
    seed              0 by default
    event_rate        events per second of event time, 10,000 by default
    rows_per_second   of all splits together; 0: as many as are read

Of every 50 events one is a person, 3 are auctions and 46 are bids; event n happens n / event_rate seconds after
2015-07-15. The columns of a source are those that it names, of the types below. Distributions are those of the Flink
generator: half of the bids go to the hot auction, the last multiple of 100, the others to one of the last 100 or the
next 10; three quarters come from the hot bidder, the others from one of the last 1,000 people or the next 10, and so do
auctions; prices are log-uniform from 100 to 10^8, half of the channels are one of four names. `extra` brings a bid to
about 100 bytes, an auction to 500, a person to 200. `start` may be a timestamp, of event time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from relational.chunk.random_values import random_fractions, random_texts, random_words
from relational.expr.comparisons import Comparison
from relational.types import DataType, Schema
from stream.connector.base import Connector, SplitEnumerator, SplitNames, SplitReader, Start, StartKind
from stream.connector.generated import (
    MOST_ROWS,
    MOST_SPLITS,
    GeneratedReader,
    split_names,
    split_number,
)
from stream.connector.option_values import OptionValues
from stream.errors import ConnectorError

NAME = "nexmark"
OPTIONS = ("type", "events", "splits", "seed", "event_rate", "rows_per_second")
BASE_US = 1_436_918_400_000_000  # 2015-07-15
CYCLE, PEOPLE, AUCTIONS, BIDS = 50, 1, 3, 46
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1_000, 10, 5
HOT_EVERY = 100  # the hot auction and the hot person are the last multiple of this
AUCTIONS_IN_FLIGHT, PEOPLE_ACTIVE, LEAD = 100, 1_000, 10
DEFAULT_RATE, MOST_RATE = 10_000, 1_000_000
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
EXTRA_OF_BID, EXTRA_OF_AUCTION, EXTRA_OF_PERSON = (54, 81), (268, 401), (72, 107)  # bytes


@dataclass(frozen=True, slots=True)
class Events:
    """Rows `first`, `first + step`, … of one type, `rows` of them. `events`: their numbers among all events; `cycles`:
    of the 50 events that each belongs to; both int64[rows]. Random values of column n are those of column `salt` + n of
    the seed."""

    seed: int
    salt: int
    first: int
    step: int
    rows: int
    cycles: np.ndarray
    events: np.ndarray
    rate: int

    def words(self, column: int) -> np.ndarray:
        """uint64[rows]."""
        return random_words(self.seed, self.salt + column, self.first, self.step, self.rows)

    def fractions(self, column: int) -> np.ndarray:
        """float64[rows], from 0 to 1."""
        return random_fractions(self.seed, self.salt + column, self.first, self.step, self.rows)

    def texts(self, column: int, bounds: tuple[int, int]) -> pa.Array:
        """Texts of lengths within `bounds`."""
        return random_texts(self.seed, self.salt + column, self.first, self.step, self.rows, *bounds)

    def choices(self, column: int, texts: pa.Array) -> pa.Array:
        """Each of `texts` as likely as the others."""
        return texts.take(pa.array(below(self.words(column), len(texts))))

    def moments(self, later: np.ndarray | int = 0) -> pa.Array:
        """When each event happens, and `later` milliseconds after it; in whole milliseconds."""
        milliseconds = self.events * 1_000
        milliseconds //= self.rate
        milliseconds += BASE_US // 1_000 + later
        milliseconds *= 1_000
        return pa.Array.from_buffers(pa.timestamp("us"), self.rows, [None, pa.py_buffer(milliseconds)])


def below(words: np.ndarray, limits: np.ndarray | int) -> np.ndarray:
    """int64[rows] from 0 to below `limits`, which are less than 2^31, by the upper half of each random word."""
    found = (words >> np.uint64(33)).view(np.int64)
    found *= limits
    found >>= 31
    return found


def last_of(numbers: np.ndarray, every: int) -> np.ndarray:
    """The last multiple of `every` up to each number."""
    found = numbers // every
    found *= every
    return found


def person_of(rows: Events, words: np.ndarray) -> np.ndarray:
    """The number of a person known by now or soon: one of the last 1,000 or the next 10."""
    active = np.minimum(rows.cycles + 1, PEOPLE_ACTIVE)
    found = below(words, active + LEAD)
    found += rows.cycles + 1
    found -= active
    return found


def hot_or(hot: np.ndarray, other: np.ndarray, words: np.ndarray, share: int) -> np.ndarray:
    """`hot`, but for one row of `share`, which is a power of two; as an id."""
    found = np.where(words & np.uint64(share - 1), hot, other)
    found += FIRST_ID
    return found


def auction_of_bid(rows: Events) -> np.ndarray:
    words = rows.words(0)
    last = rows.cycles * AUCTIONS
    last += AUCTIONS - 1
    in_flight = np.minimum(last, AUCTIONS_IN_FLIGHT)
    other = below(words, in_flight + (1 + LEAD))
    other += last
    other -= in_flight
    return hot_or(last_of(last, HOT_EVERY), other, words, 2)


def bidder_of_bid(rows: Events) -> np.ndarray:
    words = rows.words(1)
    return hot_or(last_of(rows.cycles, HOT_EVERY) + 1, person_of(rows, words), words, 4)


def seller_of_auction(rows: Events) -> np.ndarray:
    words = rows.words(1)
    return hot_or(last_of(rows.cycles, HOT_EVERY), person_of(rows, words), words, 4)


def prices(rows: Events, column: int) -> np.ndarray:
    """Log-uniform from 100 to 10^8."""
    powers = rows.fractions(column)
    powers *= 6 * np.log(10)
    powers += np.log(100)
    np.exp(powers, out=powers)
    return np.rint(powers, out=powers).astype(np.int64)


def channel_numbers(rows: Events) -> pa.Array:
    """0 to 3 for the hot channels, which half of the bids have, else 4 to 10,003."""
    words = rows.words(3)
    return pa.array(np.where(words & np.uint64(1), below(words, 4), 4 + below(words, CHANNELS)))


@cache
def channels() -> tuple[pa.Array, pa.Array]:
    """The names and URLs of all channels; one URL of ten has no channel_id."""
    numbers = range(CHANNELS + len(HOT_CHANNELS))
    parts = [random_texts(0, part, 0, 1, len(numbers), 3, 5).to_pylist() for part in range(3)]
    paths = ["/".join(part) for part in zip(*parts, strict=True)]
    has_id = (random_words(0, 9, 0, 1, len(numbers)) % np.uint64(10)).tolist()
    names = [*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))]
    urls = []
    for number in numbers:
        cold = number - len(HOT_CHANNELS)
        suffix = f"&channel_id={int(f'{cold:032b}'[::-1], 2) & 0x7FFFFFFF}" if cold >= 0 and has_id[number] else ""
        urls.append(f"https://www.nexmark.com/{paths[number]}/item.htm?query=1{suffix}")
    return pa.array(names), pa.array(urls)


def credit_card(rows: Events) -> pa.Array:
    """Four groups of four digits."""
    groups = [pa.array(below(rows.words(5 + group), 10_000)).cast(pa.utf8()) for group in range(4)]
    return pc.binary_join_element_wise(*(pc.utf8_lpad(group, 4, "0") for group in groups), " ")


def email(rows: Events) -> pa.Array:
    return pc.binary_join_element_wise(rows.texts(3, (3, 7)), pc.binary_join_element_wise(
        rows.texts(4, (3, 5)), ".com", ""), "@")


def ids(rows: Events) -> pa.Array:
    """Of people or auctions, which ascend by one."""
    return pa.array(FIRST_ID + rows.first + rows.step * np.arange(rows.rows, dtype=np.int64))


def expires(rows: Events) -> pa.Array:
    """Within twice the time in which as many auctions begin as are in flight."""
    horizon = AUCTIONS_IN_FLIGHT * CYCLE // AUCTIONS * 1_000 // rows.rate
    return rows.moments(1 + below(rows.words(4), max(1, 2 * horizon)))


Column = tuple[DataType, Callable[[Events], pa.Array]]
NAMES = pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])
BID_COLUMNS: Mapping[str, Column] = {
    "auction": (DataType.BIGINT, lambda rows: pa.array(auction_of_bid(rows))),
    "bidder": (DataType.BIGINT, lambda rows: pa.array(bidder_of_bid(rows))),
    "price": (DataType.BIGINT, lambda rows: pa.array(prices(rows, 2))),
    "channel": (DataType.VARCHAR, lambda rows: channels()[0].take(channel_numbers(rows))),
    "url": (DataType.VARCHAR, lambda rows: channels()[1].take(channel_numbers(rows))),
    "date_time": (DataType.TIMESTAMP, Events.moments),
    "extra": (DataType.VARCHAR, lambda rows: rows.texts(9, EXTRA_OF_BID)),
}
AUCTION_COLUMNS: Mapping[str, Column] = {
    "id": (DataType.BIGINT, ids),
    "item_name": (DataType.VARCHAR, lambda rows: rows.texts(10, (3, 20))),
    "description": (DataType.VARCHAR, lambda rows: rows.texts(11, (3, 100))),
    "initial_bid": (DataType.BIGINT, lambda rows: pa.array(prices(rows, 2))),
    "reserve": (DataType.BIGINT, lambda rows: pa.array(prices(rows, 2) + prices(rows, 3))),
    "date_time": (DataType.TIMESTAMP, Events.moments),
    "expires": (DataType.TIMESTAMP, expires),
    "seller": (DataType.BIGINT, lambda rows: pa.array(seller_of_auction(rows))),
    "category": (DataType.BIGINT, lambda rows: pa.array(FIRST_CATEGORY + below(rows.words(5), CATEGORIES))),
    "extra": (DataType.VARCHAR, lambda rows: rows.texts(9, EXTRA_OF_AUCTION)),
}
PERSON_COLUMNS: Mapping[str, Column] = {
    "id": (DataType.BIGINT, ids),
    "name": (DataType.VARCHAR, lambda rows: rows.choices(0, NAMES)),
    "email_address": (DataType.VARCHAR, email),
    "credit_card": (DataType.VARCHAR, credit_card),
    "city": (DataType.VARCHAR, lambda rows: rows.choices(1, pa.array(CITIES))),
    "state": (DataType.VARCHAR, lambda rows: rows.choices(2, pa.array(STATES))),
    "date_time": (DataType.TIMESTAMP, Events.moments),
    "extra": (DataType.VARCHAR, lambda rows: rows.texts(9, EXTRA_OF_PERSON)),
}


@dataclass(frozen=True, slots=True)
class EventType:
    """One of the three types: its columns, how many of its events each cycle has, the first of these, and where its
    random columns begin."""

    columns: Mapping[str, Column]
    of_cycle: int
    first_of_cycle: int
    salt: int

    def compute(self, names: Sequence[str], seed: int, rate: int, first: int, step: int, rows: int) -> list[pa.Array]:
        """The columns `names` of rows `first`, `first + step`, … of the type."""
        numbers = np.arange(first, first + step * rows, step, dtype=np.int64)
        cycles = numbers // self.of_cycle
        events = cycles * (CYCLE - self.of_cycle)
        events += numbers
        events += self.first_of_cycle
        found = Events(seed, self.salt, first, step, rows, cycles, events, rate)
        return [self.columns[name][1](found) for name in names]

    def count(self, events: int) -> int:
        """How many of the first `events` events are of the type."""
        cycles, rest = divmod(events, CYCLE)
        return cycles * self.of_cycle + min(max(0, rest - self.first_of_cycle), self.of_cycle)


TYPES: Mapping[str, EventType] = {
    "bid": EventType(BID_COLUMNS, BIDS, PEOPLE + AUCTIONS, 0),
    "auction": EventType(AUCTION_COLUMNS, AUCTIONS, PEOPLE, 100),
    "person": EventType(PERSON_COLUMNS, PEOPLE, 0, 200),
}


class NexmarkConnector(Connector):
    """`WITH (connector = 'nexmark', …)`."""

    is_remote = True
    is_append_only = is_consistent = True
    starts = frozenset((StartKind.EARLIEST, StartKind.MOMENT))

    def __init__(self, options: Mapping[str, str], schema: Schema) -> None:
        values = OptionValues(NAME, options, OPTIONS)
        self._type = TYPES[values.choice("type", "bid", tuple(TYPES))]
        self._rows = self._type.count(values.integer("events", MOST_ROWS, 0, MOST_ROWS))
        self._splits = values.integer("splits", 1, 1, MOST_SPLITS)
        self._seed = values.integer("seed", 0, 0, (1 << 63) - 1)
        self._event_rate = values.integer("event_rate", DEFAULT_RATE, 1, MOST_RATE)
        self._rate = values.integer("rows_per_second", 0, 0, 1 << 40)
        self._schema = schema
        for field in schema:
            known = self._type.columns.get(field.name)
            if known is None or known[0] != field.data_type:
                columns = ", ".join(f"{name} {column[0]}" for name, column in self._type.columns.items())
                raise ConnectorError(NAME, f"it has no column {field.name} {field.data_type}; it has {columns}")

    def enumerator(self) -> SplitEnumerator:
        return SplitNames(split_names(self._splits))

    def open_split(self, split: str, columns: Sequence[int], filters: Sequence[Comparison] = ()) -> SplitReader:
        number, rate = split_number(NAME, split, self._splits), self._rate / self._splits
        names = [self._schema.names[column] for column in columns]
        compute = partial(self._type.compute, names, self._seed, self._event_rate)
        return GeneratedReader(NAME, number, self._splits, self._rows, compute, rate, self._position)

    def _position(self, start: Start) -> int:
        """The first row at or after a moment of event time."""
        assert start.moment is not None
        passed_us = round((start.moment - datetime.fromtimestamp(BASE_US / 1e6, UTC)).total_seconds() * 1e6)
        events = -(-max(0, passed_us) * self._event_rate // 1_000_000)
        return self._type.count(events)
