"""The golden stores of views: DDL, and the changes of each step. Later steps update and delete rows, so that views must
read back their state.
"""

from __future__ import annotations

TABLE = """CREATE TABLE t (id BIGINT PRIMARY KEY, s SMALLINT, i INT, b BIGINT, n NUMERIC, p NUMERIC(10, 2),
    q NUMERIC(38, 30), r NUMERIC(20, 0), w NUMERIC(38, 0), d DOUBLE, txt VARCHAR, at TIMESTAMP, iv INTERVAL, j JSONB)"""
SUMMARIES = """SUM(n) AS n, AVG(n) AS na, SUM(p) AS p, AVG(p) AS pa, SUM(q) AS q, AVG(q) AS qa, SUM(w) AS w,
    SUM(b) AS b, AVG(b) AS ba, SUM(i) AS i, AVG(s) AS sa, MIN(n) AS least, MAX(p) AS most, MIN(b) AS low, MAX(q) AS top,
    COUNT(r) AS counted"""
VIEWS = {
    "text_casts": """SELECT id, txt::int AS i, txt::bigint AS b, txt::smallint AS s, txt::numeric AS n,
        txt::numeric(12, 3) AS p, txt::double AS d FROM t""",
    "by_text": "SELECT txt::int AS k, COUNT(*) AS rows, SUM(b) AS b, MIN(p) AS p FROM t GROUP BY txt::int",
    "sums": """SELECT id, n + p AS np, q - q * 2 AS nq, p + r AS pr, p - 0.005 AS less, b + p AS bp, q + 1.25 AS iq,
        -n AS minus, 1 + n AS more, r + r AS rr FROM t""",
    "products": """SELECT id, p * p AS pp, n * p AS np, q * q AS qq, p * i AS pi, r * 3 AS r3, 1.5 * s AS half,
        p * 0.125 AS eighth, n * n AS nn, b * p AS bp FROM t""",
    "quotients": """SELECT id, p / 3 AS third, n / p AS np, r / 7 AS r7, p / (q + 1) AS pq, b / 7.0 AS b7,
        p % 7 AS rest,
        n % 0.3 AS part, r % 11 AS r11, i / p AS ip FROM t""",
    "rounded": """SELECT id, ROUND(n, 2) AS n2, ROUND(p) AS p0, FLOOR(n) AS low, CEIL(p) AS high, ABS(n) AS size,
        p::numeric(6, 1) AS p1, n::int AS whole, d::numeric(20, 4) AS d4, n::double AS nd, p::varchar AS pt FROM t""",
    "chosen": """SELECT id, CASE WHEN p > 0 THEN p ELSE n END AS c, COALESCE(q, p) AS first, GREATEST(n, p, i) AS most,
        LEAST(r, p) AS least, NULLIF(p, 1.50) AS other, n > q AS above, p = r AS same FROM t""",
    "summaries": f"SELECT s, {SUMMARIES} FROM t GROUP BY s",
    "totals": f"SELECT {SUMMARIES}, SUM(p * i) AS worth FROM t",
    "by_product": "SELECT p * s AS k, n / 4 AS part, COUNT(*) AS rows, SUM(p - n) AS d FROM t GROUP BY p * s, n / 4",
    "layered": "SELECT s, n / 3 AS n, p + na AS pn, b * 2 AS b, qa - q AS q FROM summaries WHERE counted > 0",
    "intervals": "SELECT iv, COUNT(*) AS rows, MIN(at + iv) AS at FROM t GROUP BY iv",
    "documents": "SELECT j, COUNT(*) AS rows, MAX(at) AS at FROM t GROUP BY j",
}
FIRST = [
    "(1, 1, 10, 1000, 12.5, 1.50, 0.000000000000000000000000000001, 7, 5, 0.1, '12', '2020-01-31 10:00:00', "
    "'1 month', '{\"b\": 1, \"a\": [1, 2]}')",
    "(2, 1, -3, -9223372036854775808, -0.0000000001, -99999999.99, 12345678.9, 99999999999999999999, "
    "9999999999999999999999999999999999999, -2.5, ' 7 ', '2021-02-28', '-1 day 02:00:00', '[true, null]')",
    "(3, 2, 2147483647, 9223372036854775807, 1234567890123456789.0123456789, 99999999.99, -1.5, -1, -7, 1e15, 'seven', "
    "NULL, '30 days', '\"x\"')",
    "(4, 2, 0, 0, 0, 0.01, NULL, 0, NULL, 0, '', '1999-12-31 23:59:59.5', NULL, NULL)",
    "(5, NULL, 5, 12, 0.3, 0.29, 3.3, 12, 1, 12.345, '12', '2020-01-31 10:00:00', '1 month', "
    "'{\"a\": [1, 2], \"b\": 1}')",
    "(6, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "(7, 3, 7, 70, 7.7, 7.07, 0.7, 777, 7777, 7.5, '-42', '2024-02-29', '1 year 2 mons', '{}')",
]
STEPS: tuple[tuple[str, ...], ...] = (
    (
        TABLE,
        *(f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in VIEWS.items()),
        f"INSERT INTO t VALUES {', '.join(FIRST)}",
        "FLUSH",
        "UPDATE t SET p = p + 1, txt = '13' WHERE id IN (1, 4)",
        "DELETE FROM t WHERE id = 7",
    ),
    (
        "INSERT INTO t VALUES (8, 2, 8, 80, 8.8, 8.08, 0.8, 888, 8888, 8.5, '8', '2024-02-29', '2 mons', '{}'), "
        "(9, 9, 9, 90, 9.9, 9.09, 0.9, 999, 9999, 9.5, '0012', '2024-03-01', '60 days', '[]'), "
        "(10, 1, 1, 1, 100, 1.00, 1, 1, -9999999999999999999999999999999999999, 1, '1.5', NULL, '1 month', '1.0')",
    ),
    (
        "UPDATE t SET n = n * 2, p = p + 0.5, q = q + 0.1, b = b + 1, txt = '77' WHERE id IN (2, 5, 8)",
        "UPDATE t SET i = i + 1, w = w - 1, at = at + INTERVAL '1 day' WHERE id IN (1, 4, 9, 10)",
    ),
    ("DELETE FROM t WHERE id IN (1, 3, 8, 10)", "UPDATE t SET s = 4, iv = '1 day', j = '[1]' WHERE id = 5"),
    ("DELETE FROM t",),
)
CHANGED_VIEWS = {
    "numbers": "SELECT txt::int AS k, COUNT(*) AS rows FROM c GROUP BY txt::int",
    "wide": "SELECT id, x - y AS d, x % y AS m FROM c",
}
CHANGED: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE c (id BIGINT PRIMARY KEY, txt VARCHAR, x NUMERIC(38, 10), y NUMERIC(38, 20))",
        *(f"CREATE MATERIALIZED VIEW {name} AS {query}" for name, query in CHANGED_VIEWS.items()),
        "INSERT INTO c VALUES (1, '0x10', 1800000000000000000, 900000000000000000)",
        "FLUSH",
        "INSERT INTO c VALUES (2, 'x', 2, 1)",
    ),
)
"""Views whose rows the first kernels computed differently from version 1."""
