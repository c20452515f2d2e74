"""The tables and queries of TPC-H, with data of the same shapes: keys, dates, words that the queries look for.

Values are drawn from the ranges of the specification, but with fewer different words, so that every query has an answer
over a few thousand rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np
import pyarrow as pa

SCHEMAS = {
    "region": "r_regionkey INT, r_name VARCHAR, r_comment VARCHAR, PRIMARY KEY (r_regionkey)",
    "nation": "n_nationkey INT, n_name VARCHAR, n_regionkey INT, n_comment VARCHAR, PRIMARY KEY (n_nationkey)",
    "supplier": "s_suppkey INT, s_name VARCHAR, s_address VARCHAR, s_nationkey INT, s_phone VARCHAR,"
                " s_acctbal NUMERIC(15, 2), s_comment VARCHAR, PRIMARY KEY (s_suppkey)",
    "part": "p_partkey INT, p_name VARCHAR, p_mfgr VARCHAR, p_brand VARCHAR, p_type VARCHAR, p_size INT,"
            " p_container VARCHAR, p_retailprice NUMERIC(15, 2), p_comment VARCHAR, PRIMARY KEY (p_partkey)",
    "partsupp": "ps_partkey INT, ps_suppkey INT, ps_availqty INT, ps_supplycost NUMERIC(15, 2), ps_comment VARCHAR,"
                " PRIMARY KEY (ps_partkey, ps_suppkey)",
    "customer": "c_custkey INT, c_name VARCHAR, c_address VARCHAR, c_nationkey INT, c_phone VARCHAR,"
                " c_acctbal NUMERIC(15, 2), c_mktsegment VARCHAR, c_comment VARCHAR, PRIMARY KEY (c_custkey)",
    "orders": "o_orderkey BIGINT, o_custkey INT, o_orderstatus VARCHAR, o_totalprice NUMERIC(15, 2), o_orderdate DATE,"
              " o_orderpriority VARCHAR, o_clerk VARCHAR, o_shippriority INT, o_comment VARCHAR,"
              " PRIMARY KEY (o_orderkey)",
    "lineitem": "l_orderkey BIGINT, l_partkey INT, l_suppkey INT, l_linenumber INT, l_quantity NUMERIC(15, 2),"
                " l_extendedprice NUMERIC(15, 2), l_discount NUMERIC(15, 2), l_tax NUMERIC(15, 2),"
                " l_returnflag VARCHAR, l_linestatus VARCHAR, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE,"
                " l_shipinstruct VARCHAR, l_shipmode VARCHAR, l_comment VARCHAR,"
                " PRIMARY KEY (l_orderkey, l_linenumber)",
}  # fmt: skip

QUERIES = {
    1: """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
        sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
        sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, avg(l_quantity) AS avg_qty,
        avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY
        GROUP BY l_returnflag, l_linestatus""",
    2: """SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        FROM part, supplier, partsupp, nation, region
        WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size = 15 AND p_type LIKE '%BRASS'
        AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE'
        AND ps_supplycost = (SELECT min(ps_supplycost) FROM partsupp, supplier, nation, region
            WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND s_nationkey = n_nationkey
            AND n_regionkey = r_regionkey AND r_name = 'EUROPE')
        ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100""",
    3: """SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
        AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10""",
    4: """SELECT o_orderpriority, count(*) AS order_count FROM orders
        WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-07-01' + INTERVAL '3' MONTH
        AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority""",
    5: """SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey
        AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
        AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1994-01-01' + INTERVAL '1' YEAR
        GROUP BY n_name""",
    6: """SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR
        AND l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND l_quantity < 24""",
    7: """SELECT supp_nation, cust_nation, l_year, sum(volume) AS revenue FROM (
        SELECT n1.n_name AS supp_nation, n2.n_name AS cust_nation, extract(year FROM l_shipdate) AS l_year,
        l_extendedprice * (1 - l_discount) AS volume
        FROM supplier, lineitem, orders, customer, nation n1, nation n2
        WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey
        AND s_nationkey = n1.n_nationkey AND c_nationkey = n2.n_nationkey
        AND ((n1.n_name = 'FRANCE' AND n2.n_name = 'GERMANY') OR (n1.n_name = 'GERMANY' AND n2.n_name = 'FRANCE'))
        AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31') AS shipping
        GROUP BY supp_nation, cust_nation, l_year""",
    8: """SELECT o_year, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS mkt_share FROM (
        SELECT extract(year FROM o_orderdate) AS o_year, l_extendedprice * (1 - l_discount) AS volume,
        n2.n_name AS nation FROM part, supplier, lineitem, orders, customer, nation n1, nation n2, region
        WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey
        AND c_nationkey = n1.n_nationkey AND n1.n_regionkey = r_regionkey AND r_name = 'AMERICA'
        AND s_nationkey = n2.n_nationkey AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
        AND p_type = 'ECONOMY ANODIZED STEEL') AS all_nations GROUP BY o_year""",
    9: """SELECT nation, o_year, sum(amount) AS sum_profit FROM (
        SELECT n_name AS nation, extract(year FROM o_orderdate) AS o_year,
        l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
        FROM part, supplier, lineitem, partsupp, orders, nation
        WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey
        AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE '%green%') AS profit
        GROUP BY nation, o_year""",
    10: """SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address,
        c_phone, c_comment FROM customer, orders, lineitem, nation
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= DATE '1993-10-01'
        AND o_orderdate < DATE '1993-10-01' + INTERVAL '3' MONTH AND l_returnflag = 'R' AND c_nationkey = n_nationkey
        GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        ORDER BY revenue DESC, c_custkey LIMIT 20""",
    11: """SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value FROM partsupp, supplier, nation
        WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY'
        GROUP BY ps_partkey HAVING sum(ps_supplycost * ps_availqty) > (
        SELECT sum(ps_supplycost * ps_availqty) * 0.05 FROM partsupp, supplier, nation
        WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY')""",
    12: """SELECT l_shipmode,
        sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high_line_count,
        sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END)
        AS low_line_count FROM orders, lineitem
        WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate
        AND l_shipdate < l_commitdate AND l_receiptdate >= DATE '1994-01-01'
        AND l_receiptdate < DATE '1994-01-01' + INTERVAL '1' YEAR GROUP BY l_shipmode""",
    13: """SELECT c_count, count(*) AS custdist FROM (
        SELECT c_custkey, count(o_orderkey) AS c_count FROM customer LEFT OUTER JOIN orders
        ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%' GROUP BY c_custkey) AS c_orders
        GROUP BY c_count""",
    14: """SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
        / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue FROM lineitem, part
        WHERE l_partkey = p_partkey AND l_shipdate >= DATE '1995-09-01'
        AND l_shipdate < DATE '1995-09-01' + INTERVAL '1' MONTH""",
    15: """WITH revenue AS (SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total_revenue
        FROM lineitem WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-01-01' + INTERVAL '3' MONTH
        GROUP BY l_suppkey)
        SELECT s_suppkey, s_name, s_address, s_phone, total_revenue FROM supplier, revenue
        WHERE s_suppkey = supplier_no AND total_revenue = (SELECT max(total_revenue) FROM revenue)""",
    16: """SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt FROM partsupp, part
        WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
        AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
        AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
        GROUP BY p_brand, p_type, p_size""",
    17: """SELECT sum(l_extendedprice) / 7.0 AS avg_yearly FROM lineitem, part
        WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX'
        AND l_quantity < (SELECT 0.2 * avg(l_quantity) FROM lineitem WHERE l_partkey = p_partkey)""",
    18: """SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM customer, orders, lineitem WHERE o_orderkey IN (
        SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 250)
        AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100""",
    19: """SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem, part
        WHERE (p_partkey = l_partkey AND p_brand = 'Brand#12'
        AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG') AND l_quantity >= 1 AND l_quantity <= 1 + 10
        AND p_size BETWEEN 1 AND 5 AND l_shipmode IN ('AIR', 'AIR REG')
        AND l_shipinstruct = 'DELIVER IN PERSON')
        OR (p_partkey = l_partkey AND p_brand = 'Brand#23'
        AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK') AND l_quantity >= 10
        AND l_quantity <= 10 + 10 AND p_size BETWEEN 1 AND 10 AND l_shipmode IN ('AIR', 'AIR REG')
        AND l_shipinstruct = 'DELIVER IN PERSON')
        OR (p_partkey = l_partkey AND p_brand = 'Brand#34'
        AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG') AND l_quantity >= 20
        AND l_quantity <= 20 + 10 AND p_size BETWEEN 1 AND 15 AND l_shipmode IN ('AIR', 'AIR REG')
        AND l_shipinstruct = 'DELIVER IN PERSON')""",
    20: """SELECT s_name, s_address FROM supplier, nation WHERE s_suppkey IN (
        SELECT ps_suppkey FROM partsupp WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')
        AND ps_availqty > (SELECT 0.5 * sum(l_quantity) FROM lineitem
            WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= DATE '1994-01-01'
            AND l_shipdate < DATE '1994-01-01' + INTERVAL '1' YEAR))
        AND s_nationkey = n_nationkey AND n_name = 'CANADA'""",
    21: """SELECT s_name, count(*) AS numwait FROM supplier, lineitem l1, orders, nation
        WHERE s_suppkey = l1.l_suppkey AND o_orderkey = l1.l_orderkey AND o_orderstatus = 'F'
        AND l1.l_receiptdate > l1.l_commitdate
        AND EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey AND l2.l_suppkey <> l1.l_suppkey)
        AND NOT EXISTS (SELECT * FROM lineitem l3 WHERE l3.l_orderkey = l1.l_orderkey
            AND l3.l_suppkey <> l1.l_suppkey AND l3.l_receiptdate > l3.l_commitdate)
        AND s_nationkey = n_nationkey AND n_name = 'SAUDI ARABIA'
        GROUP BY s_name ORDER BY numwait DESC, s_name LIMIT 100""",
    22: """SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal FROM (
        SELECT substring(c_phone FROM 1 FOR 2) AS cntrycode, c_acctbal FROM customer
        WHERE substring(c_phone FROM 1 FOR 2) IN ('13', '31', '23', '29', '30', '18', '17')
        AND c_acctbal > (SELECT avg(c_acctbal) FROM customer WHERE c_acctbal > 0.00
            AND substring(c_phone FROM 1 FOR 2) IN ('13', '31', '23', '29', '30', '18', '17'))
        AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey)) AS custsale GROUP BY cntrycode""",
}

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = (
    ("ALGERIA", 0), ("BRAZIL", 1), ("CANADA", 1), ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("JAPAN", 2),
    ("SAUDI ARABIA", 4), ("CHINA", 2), ("UNITED STATES", 1),
)  # fmt: skip
FIRST_DAY = date(1992, 1, 1)
DAYS = 2_400


class _Drawing:
    """Random columns of `rows` rows."""

    def __init__(self, rng: np.random.Generator, rows: int) -> None:
        self._rng, self._rows = rng, rows

    def integers(self, low: int, high: int) -> np.ndarray:
        return self._rng.integers(low, high + 1, self._rows)

    def words(self, words: Sequence[str]) -> pa.Array:
        numbers = pa.array(self._rng.integers(0, len(words), self._rows))
        return pa.array(list(words), pa.utf8()).take(numbers)

    def money(self, low: float, high: float) -> pa.Array:
        cents = self._rng.integers(round(100 * low), round(100 * high) + 1, self._rows)
        halves = np.stack([cents, cents >> 63], axis=1)  # of 128-bit integers
        return pa.Array.from_buffers(pa.decimal128(15, 2), self._rows, [None, pa.py_buffer(halves.tobytes())])


def _days(numbers: np.ndarray) -> pa.Array:
    first = (FIRST_DAY - date(1970, 1, 1)).days
    return pa.array((numbers + first).astype(np.int32)).cast(pa.date32())


def _int(values: np.ndarray) -> pa.Array:
    return pa.array(values.astype(np.int32))


def _text(form: str, values: np.ndarray) -> list[str]:
    return [form % value for value in values.tolist()]


COMMENTS = ("quick", "special packages requests", "Customer slow Complaints", "even deposits", "bold")


def static_tables(suppliers: int, seed: int) -> dict[str, pa.Table]:
    """Everything but orders and their items; 20 parts and 15 customers for each supplier."""
    rng = np.random.default_rng(seed)
    keys = np.arange(1, suppliers + 1)
    draw = _Drawing(rng, suppliers)
    tables = {
        "region": pa.table({"r_regionkey": _int(np.arange(5)), "r_name": REGIONS, "r_comment": ["x"] * 5}),
        "nation": pa.table({"n_nationkey": _int(np.arange(len(NATIONS))), "n_name": [name for name, _ in NATIONS],
                            "n_regionkey": _int(np.array([region for _, region in NATIONS])),
                            "n_comment": ["x"] * len(NATIONS)}),
        "supplier": pa.table({
            "s_suppkey": _int(keys), "s_name": _text("Supplier#%09d", keys), "s_address": draw.words(("a", "b c")),
            "s_nationkey": _int(draw.integers(0, len(NATIONS) - 1)), "s_phone": draw.words(("13-555", "29-556")),
            "s_acctbal": draw.money(-999, 9999), "s_comment": draw.words(COMMENTS)}),
    }  # fmt: skip
    parts = np.arange(1, 20 * suppliers + 1)
    draw = _Drawing(rng, len(parts))
    tables["part"] = pa.table({
        "p_partkey": _int(parts), "p_name": draw.words(("forest green", "green lace", "dark blue", "forest")),
        "p_mfgr": draw.words(("Manufacturer#1", "Manufacturer#2")),
        "p_brand": draw.words(("Brand#12", "Brand#23", "Brand#34", "Brand#45")),
        "p_type": draw.words(("ECONOMY ANODIZED STEEL", "PROMO BURNISHED BRASS", "MEDIUM POLISHED TIN", "LARGE BRASS")),
        "p_size": _int(np.array([15, 3, 9, 14, 4])[draw.integers(0, 4)]),
        "p_container": draw.words(("SM CASE", "MED BOX", "MED BAG", "LG BOX")), "p_retailprice": draw.money(900, 2000),
        "p_comment": draw.words(COMMENTS)})  # fmt: skip
    of_part = np.repeat(parts, 4)
    draw = _Drawing(rng, len(of_part))
    by = (of_part + np.tile(np.arange(4), len(parts)) * max(suppliers // 4, 1)) % suppliers + 1
    tables["partsupp"] = pa.table({
        "ps_partkey": _int(of_part), "ps_suppkey": _int(by), "ps_availqty": _int(draw.integers(1, 200)),
        "ps_supplycost": draw.money(1, 100), "ps_comment": draw.words(COMMENTS)})  # fmt: skip
    customers = np.arange(1, 15 * suppliers + 1)
    draw = _Drawing(rng, len(customers))
    tables["customer"] = pa.table({
        "c_custkey": _int(customers), "c_name": _text("Customer#%09d", customers), "c_address": draw.words(("a", "b")),
        "c_nationkey": _int(draw.integers(0, len(NATIONS) - 1)),
        "c_phone": draw.words(("13-1", "31-2", "29-3", "11-4")), "c_acctbal": draw.money(-999, 9999),
        "c_mktsegment": draw.words(("BUILDING", "MACHINERY")), "c_comment": draw.words(COMMENTS)})  # fmt: skip
    return tables


def orders(first: int, count: int, suppliers: int, seed: int) -> dict[str, pa.Table]:
    """The orders number `first` to `first` + `count` and their items. Of three customers one has no order."""
    rng = np.random.default_rng([seed, first])
    keys, draw = np.arange(first, first + count), _Drawing(rng, count)
    days = draw.integers(0, DAYS)
    customers = draw.integers(0, 5 * suppliers - 1) * 3 + draw.integers(1, 2)
    made = pa.table({
        "o_orderkey": pa.array(keys), "o_custkey": _int(customers), "o_orderstatus": draw.words("FOP"),
        "o_totalprice": draw.money(1000, 400000), "o_orderdate": _days(days),
        "o_orderpriority": draw.words(("1-URGENT", "2-HIGH", "5-LOW")), "o_clerk": draw.words(("Clerk#1", "Clerk#2")),
        "o_shippriority": _int(draw.integers(0, 1)), "o_comment": draw.words(COMMENTS)})  # fmt: skip
    counts = draw.integers(1, 7)
    of_order, day = np.repeat(keys, counts), np.repeat(days, counts)
    draw = _Drawing(rng, len(of_order))
    parts = draw.integers(1, 20 * suppliers)
    starts = np.cumsum(counts) - counts
    shipped = day + draw.integers(1, 121)
    items = pa.table({
        "l_orderkey": pa.array(of_order), "l_partkey": _int(parts),
        "l_suppkey": _int((parts + draw.integers(0, 3) * max(suppliers // 4, 1)) % suppliers + 1),
        "l_linenumber": _int(np.arange(len(of_order)) - np.repeat(starts, counts) + 1),
        "l_quantity": draw.money(1, 50), "l_extendedprice": draw.money(900, 90000), "l_discount": draw.money(0, 0.1),
        "l_tax": draw.money(0, 0.08), "l_returnflag": draw.words("RAN"), "l_linestatus": draw.words("OF"),
        "l_shipdate": _days(shipped), "l_commitdate": _days(day + draw.integers(30, 90)),
        "l_receiptdate": _days(shipped + draw.integers(1, 30)),
        "l_shipinstruct": draw.words(("DELIVER IN PERSON", "NONE")),
        "l_shipmode": draw.words(("MAIL", "SHIP", "AIR", "AIR REG")), "l_comment": draw.words(COMMENTS)})  # fmt: skip
    return {"orders": made, "lineitem": items}
