"""The queries of the Nexmark benchmark, in RisingWave's variant, over tables or sources person, auction and bid.

q12 is by event time. Of equal bids the first one is that with the least bidder. The side input of q13 never changes.
"""

from __future__ import annotations

import re

COLUMNS = {
    "person": "id BIGINT, name VARCHAR, email_address VARCHAR, credit_card VARCHAR, city VARCHAR, state VARCHAR,"
              " date_time TIMESTAMP, extra VARCHAR",
    "auction": "id BIGINT, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT,"
               " date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra VARCHAR",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time TIMESTAMP,"
           " extra VARCHAR",
}  # fmt: skip
_HOPS = ("SELECT auction, count(*) AS num, window_start AS starttime"
         " FROM HOP(bid, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND) GROUP BY auction, window_start")
_DAY = "to_char(date_time, 'YYYY-MM-DD')"
_RANKS = (
    "count(*) AS total_bids, count(*) FILTER (WHERE price < 10000) AS rank1_bids,"
    " count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,"
    " count(*) FILTER (WHERE price >= 1000000) AS rank3_bids"
)


def _distinct(column: str) -> str:
    return (
        f"count(DISTINCT {column}) AS total_{column}s,"
        f" count(DISTINCT {column}) FILTER (WHERE price < 10000) AS rank1_{column}s,"
        f" count(DISTINCT {column}) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_{column}s,"
        f" count(DISTINCT {column}) FILTER (WHERE price >= 1000000) AS rank3_{column}s"
    )


QUERIES = {
    "q0": "SELECT auction, bidder, price, date_time FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction = 1007 OR auction = 1020 OR auction = 2001 OR auction = 1019",
    "q3": "SELECT p.name, p.city, p.state, a.id FROM auction AS a JOIN person AS p ON a.seller = p.id"
          " WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')",
    "q4": "SELECT q.category, avg(q.final) AS mean FROM (SELECT max(b.price) AS final, a.category FROM auction a, bid b"
          " WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) q"
          " GROUP BY q.category",
    "q5": f"SELECT a.auction, a.num FROM ({_HOPS}) AS a JOIN"
          f" (SELECT max(c.num) AS maxn, c.starttime FROM ({_HOPS}) AS c GROUP BY c.starttime) AS m"
          " ON a.starttime = m.starttime AND a.num >= m.maxn",
    "q6": "SELECT q.seller, q.id, avg(q.final) OVER (PARTITION BY q.seller ORDER BY q.date_time, q.id"
          " ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean FROM (SELECT row_number() OVER (PARTITION BY a.id,"
          " a.seller ORDER BY b.price, b.date_time, b.bidder) AS rank, a.id, a.seller, b.price AS final, b.date_time"
          " FROM auction a, bid b WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires) AS q"
          " WHERE q.rank <= 1",
    "q7": "SELECT b.auction, b.price, b.bidder, b.date_time FROM bid b JOIN (SELECT max(price) AS maxprice,"
          " window_end AS date_time FROM TUMBLE(bid, date_time, INTERVAL '10' SECOND) GROUP BY window_end) b1"
          " ON b.price = b1.maxprice WHERE b.date_time BETWEEN b1.date_time - INTERVAL '10' SECOND AND b1.date_time",
    "q8": "SELECT p.id, p.name, p.starttime FROM (SELECT id, name, window_start AS starttime, window_end AS endtime"
          " FROM TUMBLE(person, date_time, INTERVAL '10' SECOND) GROUP BY id, name, window_start, window_end) p JOIN"
          " (SELECT seller, window_start AS starttime, window_end AS endtime"
          " FROM TUMBLE(auction, date_time, INTERVAL '10' SECOND) GROUP BY seller, window_start, window_end) a"
          " ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime",
    "q9": "SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, auction,"
          " bidder, price, bid_date_time FROM (SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve,"
          " a.date_time, a.expires, a.seller, a.category, b.auction, b.bidder, b.price, b.date_time AS bid_date_time,"
          " row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC, b.bidder) AS rownum"
          " FROM auction a, bid b WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires) AS q"
          " WHERE rownum <= 1",
    "q10": f"SELECT auction, bidder, price, date_time, {_DAY} AS date, to_char(date_time, 'HH24:MI') AS time FROM bid",
    "q11": "SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime"
           " FROM SESSION(bid, date_time, INTERVAL '10' SECOND, bidder) GROUP BY bidder, window_start, window_end",
    "q12": "SELECT bidder, count(*) AS bid_count, window_start, window_end"
           " FROM TUMBLE(bid, date_time, INTERVAL '10' SECOND) GROUP BY bidder, window_start, window_end",
    "q13": "SELECT b.auction, b.bidder, b.price, b.date_time, s.value FROM bid AS b"
           " JOIN side_input FOR SYSTEM_TIME AS OF PROCTIME() AS s ON b.auction % 10000 = s.key",
    "q14": "SELECT auction, bidder, 0.908 * price AS price, CASE WHEN extract(hour FROM date_time) >= 8"
           " AND extract(hour FROM date_time) <= 18 THEN 'dayTime' WHEN extract(hour FROM date_time) <= 6"
           " OR extract(hour FROM date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bidtimetype, date_time,"
           " length(extra) - length(replace(extra, 'c', '')) AS c_counts FROM bid"
           " WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
    "q15": f"SELECT {_DAY} AS day, {_RANKS}, {_distinct('bidder')}, {_distinct('auction')} FROM bid GROUP BY {_DAY}",
    "q16": f"SELECT channel, {_DAY} AS day, max(to_char(date_time, 'HH24:MI')) AS minute, {_RANKS},"
           f" {_distinct('bidder')}, {_distinct('auction')} FROM bid GROUP BY channel, {_DAY}",
    "q17": f"SELECT auction, {_DAY} AS day, {_RANKS}, min(price) AS min_price, max(price) AS max_price,"
           f" avg(price) AS avg_price, sum(price) AS sum_price FROM bid GROUP BY auction, {_DAY}",
    "q18": "SELECT auction, bidder, price, channel, url, date_time FROM (SELECT *, row_number() OVER"
           " (PARTITION BY bidder, auction ORDER BY date_time DESC, price, url, channel) AS rank_number FROM bid) AS q"
           " WHERE rank_number <= 1",
    "q19": "SELECT auction, bidder, price, channel, url, date_time, rank_number FROM (SELECT *, row_number() OVER"
           " (PARTITION BY auction ORDER BY price DESC, date_time, bidder, url) AS rank_number FROM bid) AS q"
           " WHERE rank_number <= 10",
    "q20": "SELECT auction, bidder, price, channel, url, b.date_time AS bid_date_time, b.extra AS bid_extra, item_name,"
           " description, initial_bid, reserve, a.date_time AS auction_date_time, expires, seller, category,"
           " a.extra AS auction_extra FROM bid AS b JOIN auction AS a ON b.auction = a.id WHERE a.category = 10",
    "q21": "SELECT auction, bidder, price, channel, CASE WHEN lower(channel) = 'apple' THEN '0'"
           " WHEN lower(channel) = 'google' THEN '1' WHEN lower(channel) = 'facebook' THEN '2'"
           " WHEN lower(channel) = 'baidu' THEN '3' ELSE (regexp_match(url, '(&|^)channel_id=([^&]*)'))[2] END"
           " AS channel_id FROM bid WHERE (regexp_match(url, '(&|^)channel_id=([^&]*)'))[2] IS NOT NULL"
           " OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')",
    "q22": "SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,"
           " split_part(url, '/', 6) AS dir3 FROM bid",
    "q101": "SELECT a.id, a.item_name, b.max_price FROM auction a LEFT JOIN (SELECT b1.auction, max(b1.price)"
            " AS max_price FROM bid b1 GROUP BY b1.auction) b ON a.id = b.auction",
    "q102": "SELECT a.id, a.item_name, count(b.auction) AS bid_count FROM auction a JOIN bid b ON a.id = b.auction"
            " GROUP BY a.id, a.item_name HAVING count(b.auction) >="
            " (SELECT count(*) / count(DISTINCT auction) FROM bid)",
    "q103": "SELECT a.id, a.item_name FROM auction a WHERE a.id IN"
            " (SELECT b.auction FROM bid b GROUP BY b.auction HAVING count(*) >= 20)",
    "q104": "SELECT a.id, a.item_name FROM auction a WHERE a.id NOT IN"
            " (SELECT b.auction FROM bid b GROUP BY b.auction HAVING count(*) < 20)",
    "q105": "SELECT a.id, a.item_name, count(b.auction) AS bid_count FROM auction a JOIN bid b ON a.id = b.auction"
            " GROUP BY a.id, a.item_name ORDER BY bid_count DESC, a.id LIMIT 1000",
    "q106": "SELECT min(final) AS min_final FROM (SELECT auction.id, max(price) AS final FROM auction, bid"
            " WHERE bid.auction = auction.id AND bid.date_time BETWEEN auction.date_time AND auction.expires"
            " GROUP BY auction.id) AS q",
}  # fmt: skip
_TUMBLE = re.compile(r"TUMBLE\((\w+), date_time, INTERVAL '10' SECOND\)")
_HOP = re.compile(r"HOP\((\w+), date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND\)")
_BIN = "time_bucket(INTERVAL '{0}' SECOND, date_time, TIMESTAMP '1970-01-01')"
_SESSION = re.compile(r"SESSION\((\w+), date_time, INTERVAL '(\d+)' SECOND, (\w+)\)")
_SESSION_ROWS = (
    r"(SELECT *, max(date_time) OVER (PARTITION BY \3, window_start) + INTERVAL '\2' SECOND AS window_end FROM"
    r" (SELECT *, max(CASE WHEN before IS NULL OR date_time > before + INTERVAL '\2' SECOND THEN date_time END)"
    r" OVER (PARTITION BY \3 ORDER BY date_time) AS window_start FROM"
    r" (SELECT *, lag(date_time) OVER (PARTITION BY \3 ORDER BY date_time) AS before FROM \1)))"
)
SIDE_INPUT = "key BIGINT PRIMARY KEY, value BIGINT"
"""The columns of the side input of q13, whose rows are those of SIDE_ROWS."""
SIDE_ROWS = "SELECT i, i * 7 % 1000 FROM generate_series(0, 9999) AS g(i)"


def for_duckdb(query: str) -> str:
    """The same query in DuckDB's words."""
    start = _BIN.format(10)
    query = _TUMBLE.sub(rf"(SELECT *, {start} AS window_start, {start} + INTERVAL '10' SECOND AS window_end FROM \1)",
                        query)
    start = f"{_BIN.format(2)} - to_seconds(2 * n)"
    query = _HOP.sub(rf"(SELECT *, {start} AS window_start FROM \1, range(5) AS r(n))", query)
    query = query.replace(" FOR SYSTEM_TIME AS OF PROCTIME()", "")
    query = _SESSION.sub(_SESSION_ROWS, query)
    query = query.replace("to_char(date_time, 'YYYY-MM-DD')", "strftime(date_time, '%Y-%m-%d')")
    query = query.replace("to_char(date_time, 'HH24:MI')", "strftime(date_time, '%H:%M')")
    match = "(regexp_match(url, '(&|^)channel_id=([^&]*)'))[2]"
    query = query.replace(match, "nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')")
    return query.replace("count(*) / count(DISTINCT auction)", "count(*) // count(DISTINCT auction)")
