"""Nexmark's events: the suite of connectors, the distributions of the generator, order of event time over splits."""

from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

import stream
from relational.types import Schema
from stream.connector.base import Start, StartKind
from stream.connector.generated import split_names
from stream.connector.nexmark import BID_COLUMNS, DEFAULT_RATE, TYPES, NexmarkConnector
from stream.errors import ConnectorError
from tests.stream.connector.test_csv_files import values
from tests.support.drivers.waiting import eventually
from tests.support.suites.connector_suite import ConnectorSuite


def schema_of(kind):
    return Schema.of(**{name: str(column[0]).lower() for name, column in TYPES[kind].columns.items()})


def batch(kind, names, first, rows):
    """The columns `names` of rows `first` to `first + rows` of a type."""
    return pa.record_batch(TYPES[kind].compute(names, 0, DEFAULT_RATE, first, 1, rows), names=names)


def connector(kind, **options):
    return NexmarkConnector({"type": kind, **options}, schema_of(kind))


class _NexmarkSuite(ConnectorSuite):
    kind, events = "bid", 2_000

    @pytest.fixture
    def schema(self):
        return schema_of(self.kind)

    @pytest.fixture
    def connector(self):
        return lambda: connector(self.kind, events=str(self.events), splits="3", seed="5")


class TestBids(_NexmarkSuite):
    pass


class TestAuctions(_NexmarkSuite):
    kind, events = "auction", 10_000


class TestPeople(_NexmarkSuite):
    kind, events = "person", 40_000


@pytest.mark.parametrize("kind", TYPES)
def test_each_cycle_of_events_has_its_people_auctions_and_bids(kind):
    for events in (0, 1, 2, 4, 5, 49, 50, 51, 54, 1_234):
        positions = [number % 50 for number in range(events)]
        wanted = sum({"person": at == 0, "auction": 0 < at < 4, "bid": at >= 4}[kind] for at in positions)
        assert TYPES[kind].count(events) == wanted
        rows = values(connector(kind, events=str(events)).open_split("0", (0,)))
        assert len(rows) == wanted


def test_the_splits_together_are_the_rows_of_one_split():
    for kind in TYPES:
        columns = range(len(TYPES[kind].columns))
        whole = values(connector(kind, events="3000").open_split("0", columns))
        opened = connector(kind, events="3000", splits="7")
        parts = [values(opened.open_split(name, columns)) for name in split_names(7)]
        assert [parts[number % 7][number // 7] for number in range(len(whole))] == whole
        assert whole[:20] == [tuple(row.values()) for row in batch(kind, list(TYPES[kind].columns), 0, 20).to_pylist()]


def test_bids_have_the_distributions_of_the_generator():
    first, rows = 10_000_000, 200_000
    bids = batch("bid", list(BID_COLUMNS), first, rows)
    auction, bidder, price = (bids[name].to_numpy() for name in ("auction", "bidder", "price"))
    cycles = (first + np.arange(rows)) // 46
    last = cycles * 3 + 2
    is_hot = auction - 1_000 == last // 100 * 100
    assert abs(is_hot.mean() - 0.5) < 0.02
    cold = (auction - 1_000 - last)[~is_hot]
    assert cold.min() >= -100 and cold.max() == 10 and len(set(cold.tolist())) == 111
    is_hot = bidder - 1_000 == cycles // 100 * 100 + 1
    assert abs(is_hot.mean() - 0.75) < 0.02
    cold = (bidder - 1_000 - cycles)[~is_hot]
    assert cold.min() >= -999 and cold.max() <= 10
    assert abs(np.log10(price).mean() - 5) < 0.02 and price.min() >= 100 and price.max() <= 10**8
    channels = Counter(bids["channel"].to_pylist())
    for name in ("Google", "Facebook", "Baidu", "Apple"):
        assert abs(channels[name] / rows - 1 / 8) < 0.01
    urls = set(zip(bids["channel"].to_pylist(), bids["url"].to_pylist(), strict=True))
    assert len(urls) == len(channels) > 9_000
    with_id = sum("channel_id=" in url for _, url in urls) / len(urls)
    assert 0.85 < with_id < 0.95
    assert abs(np.mean([len(text) for text in bids["extra"].to_pylist()]) - 67.5) < 0.5


def test_the_first_bids_are_of_auctions_and_people_that_exist():
    bids = batch("bid", ["auction", "bidder"], 0, 46 * 40)
    cycles = np.arange(46 * 40) // 46
    assert (bids["auction"].to_numpy() >= 1_000).all() and (bids["bidder"].to_numpy() >= 1_000).all()
    assert (bids["auction"].to_numpy() - 1_000 <= cycles * 3 + 2 + 10).all()


def test_auctions_and_people():
    auctions = batch("auction", list(TYPES["auction"].columns), 300, 20_000).to_pydict()
    assert auctions["id"] == list(range(1_300, 21_300))
    assert all(low < high for low, high in zip(auctions["initial_bid"], auctions["reserve"], strict=True))
    assert set(auctions["category"]) == {10, 11, 12, 13, 14}
    times = zip(auctions["date_time"], auctions["expires"], strict=True)
    ahead = [(end - begin).total_seconds() for begin, end in times]
    assert min(ahead) > 0 and 0.3 < max(ahead) <= 0.34
    sellers = np.array(auctions["seller"]) - 1_000
    cycles = (300 + np.arange(20_000)) // 3
    assert abs((sellers == cycles // 100 * 100).mean() - 0.75) < 0.02
    people = batch("person", list(TYPES["person"].columns), 0, 5_000).to_pydict()
    assert people["id"] == list(range(1_000, 6_000)) and len(set(people["name"])) == 99
    assert all(len(card) == 19 and card.replace(" ", "").isdecimal() for card in people["credit_card"])
    assert all("@" in each and each.endswith(".com") for each in people["email_address"])
    assert len(set(people["city"])) == 10 and len(set(people["state"])) == 6


def test_event_time_follows_the_event_rate_and_a_job_may_begin_at_a_moment():
    slow = values(connector("person", event_rate="50", events="500").open_split("0", (6,)))
    assert [(moment - datetime(2015, 7, 15)).total_seconds() for (moment,) in slow] == list(range(10))
    for splits in (1, 3):
        found = []
        for name in split_names(splits):
            reader = connector("person", event_rate="50", events="500", splits=str(splits)).open_split(name, (6,))
            reader.begin_at(Start(StartKind.MOMENT, datetime(2015, 7, 15, 0, 0, 4, 500_000, tzinfo=UTC)))
            found += values(reader)
        assert sorted(found) == slow[5:]


@pytest.mark.parametrize(("options", "columns", "fault"), [
    ({"type": "offer"}, {"auction": "bigint"}, "bid or auction or person"),
    ({"event_rate": "0"}, {"auction": "bigint"}, "event_rate is a whole number"),
    ({}, {"seller": "bigint"}, "it has no column seller BIGINT; it has auction BIGINT, bidder BIGINT"),
    ({}, {"auction": "int"}, "it has no column auction INT"),
])
def test_invalid_options_and_columns_are_refused(options, columns, fault):
    with pytest.raises(ConnectorError, match=fault):
        NexmarkConnector(options, Schema.of(**columns))


def test_it_feeds_views_through_sql():
    with stream.connect("memory://", barrier_interval_ms=5) as db:
        db.sql("CREATE SOURCE bid (price BIGINT, bidder BIGINT) "
               "WITH (connector = 'nexmark', events = 50000, splits = 2)")
        db.sql("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(price) AS total FROM bid")
        eventually(lambda: db.sql("SELECT n FROM m").rows() == [{"n": 46_000}])
        total = pa.compute.sum(batch("bid", ["price"], 0, 46_000)["price"]).as_py()
        assert int(db.sql("SELECT total FROM m").rows()[0]["total"]) == total
