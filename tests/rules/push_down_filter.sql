-- below a projection
SELECT r FROM (SELECT region AS r, id FROM orders) WHERE id > 1
-- before
--   Project r
--     Filter (id > 1)
--       Project region AS r, id
--         Scan orders (id, region, amount, at)
-- after
--   Project r
--     Project region AS r, id
--       Filter (id > 1)
--         Scan orders (id, region, amount, at)

-- two filters are one
SELECT id FROM (SELECT id, region FROM orders WHERE id > 1) WHERE region = 'a'
-- before
--   Project id
--     Filter (region = 'a')
--       Project id, region
--         Filter (id > 1)
--           Scan orders (id, region, amount, at)
-- after
--   Project id
--     Project id, region
--       Filter ((id > 1) AND (region = 'a'))
--         Scan orders (id, region, amount, at)

-- a computed column stops it
SELECT d FROM (SELECT amount * 2 AS d FROM orders) WHERE d > 1
-- before
--   Project d
--     Filter (d > 1)
--       Project (amount * 2) AS d
--         Scan orders (id, region, amount, at)
-- after
--   Project d
--     Filter (d > 1)
--       Project (amount * 2) AS d
--         Scan orders (id, region, amount, at)

-- only group conditions go below an aggregation
SELECT * FROM (SELECT region, count(*) AS n FROM orders GROUP BY region) WHERE region <> 'a' AND n > 1
-- before
--   Project region, n
--     Filter ((region <> 'a') AND (n > 1))
--       Project region, count(*) AS n
--         Aggregate [region] count(*)
--           Scan orders (id, region, amount, at)
-- after
--   Project region, n
--     Project region, count(*) AS n
--       Filter (count(*) > 1)
--         Aggregate [region] count(*)
--           Filter (region <> 'a')
--             Scan orders (id, region, amount, at)

-- a condition without columns stays above an aggregation
SELECT count(*) FROM orders HAVING 1 > 2
-- before
--   Project count(*) AS count
--     Filter FALSE
--       Aggregate [] count(*)
--         Scan orders (id, region, amount, at)
-- after
--   Project count(*) AS count
--     Filter FALSE
--       Aggregate [] count(*)
--         Scan orders (id, region, amount, at)

-- not below a limit
SELECT * FROM (SELECT id FROM orders LIMIT 3) WHERE id > 1
-- before
--   Project id
--     Filter (id > 1)
--       Limit 3 offset 0
--         Project id
--           Scan orders (id, region, amount, at)
-- after
--   Project id
--     Filter (id > 1)
--       Limit 3 offset 0
--         Project id
--           Scan orders (id, region, amount, at)

-- below a sort
SELECT * FROM (SELECT id FROM orders ORDER BY id) WHERE id > 1
-- before
--   Project id
--     Filter (id > 1)
--       Sort id ASC NULLS LAST
--         Project id
--           Scan orders (id, region, amount, at)
-- after
--   Project id
--     Sort id ASC NULLS LAST
--       Project id
--         Filter (id > 1)
--           Scan orders (id, region, amount, at)

-- not below rows of a statement
SELECT * FROM (VALUES (1), (2)) AS x(a) WHERE a > 1
-- before
--   Project column1 AS a
--     Filter (column1 > 1)
--       Values 2 rows (column1)
-- after
--   Project column1 AS a
--     Filter (column1 > 1)
--       Values 2 rows (column1)

-- nor below columns of a statement
INSERT INTO plain VALUES (1, 'a')
-- before
--   Values 1 rows (v, w, _row_id)
-- after
--   Values 1 rows (v, w, _row_id)

-- into every branch of a union
SELECT * FROM (SELECT id, region FROM orders UNION ALL SELECT a, CAST(c AS TEXT) FROM pairs) AS x(n, r) WHERE n > 1 AND r = 'x'
-- before
--   Project id AS n, region AS r
--     Filter ((id > 1) AND (region = 'x'))
--       Union
--         Project id, region
--           Scan orders (id, region, amount, at)
--         Project CAST(a AS BIGINT) AS id, c AS region
--           Project a, CAST(c AS VARCHAR) AS c
--             Scan pairs (a, b, c)
-- after
--   Project id AS n, region AS r
--     Union
--       Project id, region
--         Filter ((id > 1) AND (region = 'x'))
--           Scan orders (id, region, amount, at)
--       Filter (id > 1)
--         Project CAST(a AS BIGINT) AS id, c AS region
--           Filter (c = 'x')
--             Project a, CAST(c AS VARCHAR) AS c
--               Scan pairs (a, b, c)

-- below distinct rows
SELECT * FROM (SELECT id FROM orders UNION SELECT a FROM pairs) AS x(n) WHERE n > 1
-- before
--   Project id AS n
--     Filter (id > 1)
--       Aggregate [id]
--         Union
--           Project id
--             Scan orders (id, region, amount, at)
--           Project CAST(a AS BIGINT) AS id
--             Project a
--               Scan pairs (a, b, c)
-- after
--   Project id AS n
--     Aggregate [id]
--       Union
--         Project id
--           Filter (id > 1)
--             Scan orders (id, region, amount, at)
--         Filter (id > 1)
--           Project CAST(a AS BIGINT) AS id
--             Project a
--               Scan pairs (a, b, c)

-- below a shared query if all readers have it
WITH n AS (SELECT region AS r, count(*) AS n FROM orders GROUP BY region) SELECT n FROM n WHERE r = 'a' AND n > 1 UNION ALL SELECT -n FROM n WHERE r = 'a'
-- before
--   Union
--     Project n
--       Filter ((r = 'a') AND (n > 1))
--         Share 0
--           Project region AS r, count(*) AS n
--             Aggregate [region] count(*)
--               Scan orders (id, region, amount, at)
--     Project negate(n) AS ?column?
--       Filter (r = 'a')
--         Share 0 (above)
-- after
--   Union
--     Project n
--       Filter (n > 1)
--         Share 0
--           Project region AS r, count(*) AS n
--             Aggregate [region] count(*)
--               Filter (region = 'a')
--                 Scan orders (id, region, amount, at)
--     Project negate(n) AS ?column?
--       Share 0 (above)

-- not if one has not
WITH n AS (SELECT region AS r, count(*) AS n FROM orders GROUP BY region) SELECT n FROM n WHERE r = 'a' UNION ALL SELECT -n FROM n
-- before
--   Union
--     Project n
--       Filter (r = 'a')
--         Share 0
--           Project region AS r, count(*) AS n
--             Aggregate [region] count(*)
--               Scan orders (id, region, amount, at)
--     Project negate(n) AS ?column?
--       Share 0 (above)
-- after
--   Union
--     Project n
--       Filter (r = 'a')
--         Share 0
--           Project region AS r, count(*) AS n
--             Aggregate [region] count(*)
--               Scan orders (id, region, amount, at)
--     Project negate(n) AS ?column?
--       Share 0 (above)

-- each side of a join gets what concerns it alone, and the condition what concerns both
SELECT region FROM orders JOIN pairs ON id = a WHERE region = 'a' AND c > 1 AND amount < c
-- before
--   Project region
--     Filter ((region = 'a') AND (c > 1) AND (amount < c))
--       Join inner on (id = CAST(a AS BIGINT))
--         Scan orders (id, region, amount, at)
--         Scan pairs (a, b, c)
-- after
--   Project region
--     Join inner on ((id = CAST(a AS BIGINT)) AND (amount < c))
--       Filter (region = 'a')
--         Scan orders (id, region, amount, at)
--       Filter (c > 1)
--         Scan pairs (a, b, c)

-- but not below the side of an outer join that may be NULL
SELECT region FROM orders LEFT JOIN pairs ON id = a AND c > 1 AND amount > 0 WHERE region = 'a' AND c IS NULL
-- before
--   Project region
--     Filter ((region = 'a') AND (c IS NULL))
--       Join left on ((id = CAST(a AS BIGINT)) AND (c > 1) AND (amount > 0))
--         Scan orders (id, region, amount, at)
--         Scan pairs (a, b, c)
-- after
--   Project region
--     Filter (c IS NULL)
--       Join left on ((id = CAST(a AS BIGINT)) AND (amount > 0))
--         Filter (region = 'a')
--           Scan orders (id, region, amount, at)
--         Filter (c > 1)
--           Scan pairs (a, b, c)

-- and below no side of a full one
SELECT region FROM orders FULL JOIN pairs ON id = a AND c > 1 WHERE region = 'a'
-- before
--   Project region
--     Filter (region = 'a')
--       Join full on ((id = CAST(a AS BIGINT)) AND (c > 1))
--         Scan orders (id, region, amount, at)
--         Scan pairs (a, b, c)
-- after
--   Project region
--     Filter (region = 'a')
--       Join full on ((id = CAST(a AS BIGINT)) AND (c > 1))
--         Scan orders (id, region, amount, at)
--         Scan pairs (a, b, c)

-- through numbers only terms over their groups
SELECT * FROM (SELECT id, region, row_number() OVER (PARTITION BY region ORDER BY amount) AS n FROM orders) WHERE region = 'x' AND id > 3 AND n > 1
-- before
--   Project id, region, n
--     Filter ((region = 'x') AND (id > 3) AND (n > 1))
--       Project id, region, row_number AS n
--         OverWindow row_number of [region] by [amount ASC NULLS LAST]
--           Scan orders (id, region, amount, at)
-- after
--   Project id, region, n
--     Project id, region, row_number AS n
--       Filter ((id > 3) AND (row_number > 1))
--         OverWindow row_number of [region] by [amount ASC NULLS LAST]
--           Filter (region = 'x')
--             Scan orders (id, region, amount, at)

-- rows that wait for their window
CREATE MATERIALIZED VIEW closed AS SELECT date_trunc('hour', at) AS hour, page, max(n) AS n FROM clicks WHERE n > 1 GROUP BY 1, 2 EMIT ON WINDOW CLOSE
-- before
--   EmitOnWindowClose watermark [hour]
--     Project date_trunc_hour(at) AS hour, page, max(n) AS n
--       Aggregate [date_trunc_hour(at), page] max(n) watermark [date_trunc_hour(at)]
--         Project date_trunc_hour(at), page, n
--           Filter (n > 1)
--             Scan clicks (at, page, n) watermark [at]
-- after
--   EmitOnWindowClose watermark [hour]
--     Project date_trunc_hour(at) AS hour, page, max(n) AS n
--       Aggregate [date_trunc_hour(at), page] max(n) watermark [date_trunc_hour(at)]
--         Project date_trunc_hour(at), page, n
--           Filter (n > 1)
--             Scan clicks (at, page, n) watermark [at]

-- below grouping sets that all have the column
SELECT * FROM (SELECT region, id, count(*) AS n FROM orders GROUP BY region, GROUPING SETS (id, at)) WHERE region = 'a' AND id = 1
-- before
--   Project region, id, n
--     Filter ((region = 'a') AND (id = 1))
--       Project region, id, count(*) AS n
--         Aggregate [region, id, at, grouping_set] count(*)
--           Expand (region, id), (region, at)
--             Scan orders (id, region, amount, at)
-- after
--   Project region, id, n
--     Project region, id, count(*) AS n
--       Aggregate [region, id, at, grouping_set] count(*)
--         Filter (id = 1)
--           Expand (region, id), (region, at)
--             Filter (region = 'a')
--               Scan orders (id, region, amount, at)

-- below functions that give rows goes what is of the rows before
SELECT * FROM orders, generate_series(1, id) AS g WHERE region = 'x' AND g > 1 AND g < amount
-- before
--   Project id, region, amount, at, generate_series AS g
--     Filter ((region = 'x') AND (generate_series > 1) AND (CAST(generate_series AS NUMERIC(19, 0)) < amount))
--       ProjectSet generate_series(1, id) AS generate_series beside [id, region, amount, at]
--         Scan orders (id, region, amount, at)
-- after
--   Project id, region, amount, at, generate_series AS g
--     Filter ((generate_series > 1) AND (CAST(generate_series AS NUMERIC(19, 0)) < amount))
--       ProjectSet generate_series(1, id) AS generate_series beside [id, region, amount, at]
--         Filter (region = 'x')
--           Scan orders (id, region, amount, at)

-- no term goes into a recursion, and within it each goes down
WITH RECURSIVE r(n) AS (SELECT a FROM pairs UNION SELECT n + v FROM r JOIN plain ON v > 1 WHERE n < 9) SELECT n FROM r WHERE n > 3
-- before
--   Project a AS n
--     Filter (a > 3)
--       Recursive 0 UNION
--         Project a
--           Scan pairs (a, b, c)
--         Project (n + v) AS ?column?
--           Filter (n < 9)
--             Join inner on (v > 1)
--               WorkingTable 0 (n)
--               Scan plain (v, w, _row_id)
-- after
--   Project a AS n
--     Filter (a > 3)
--       Recursive 0 UNION
--         Project a
--           Scan pairs (a, b, c)
--         Project (n + v) AS ?column?
--           Join inner
--             Filter (n < 9)
--               WorkingTable 0 (n)
--             Filter (v > 1)
--               Scan plain (v, w, _row_id)

-- what an OR over both inputs of a join implies about each
SELECT o.id FROM orders o JOIN plain p ON o.id = p.v WHERE (o.region = 'a' AND p.w = 'b') OR (o.region = 'b' AND p.w = 'a' AND o.amount > p.v)
-- before
--   Project id
--     Filter (((region = 'a') AND (w = 'b')) OR ((region = 'b') AND (w = 'a') AND (amount > CAST(v AS NUMERIC(19, 0)))))
--       Join inner on (id = CAST(v AS BIGINT))
--         Scan orders (id, region, amount, at)
--         Scan plain (v, w, _row_id)
-- after
--   Project id
--     Join inner on ((id = CAST(v AS BIGINT)) AND (((region = 'a') AND (w = 'b')) OR ((region = 'b') AND (w = 'a') AND (amount > CAST(v AS NUMERIC(19, 0))))))
--       Filter ((region = 'a') OR (region = 'b'))
--         Scan orders (id, region, amount, at)
--       Filter ((w = 'b') OR (w = 'a'))
--         Scan plain (v, w, _row_id)

-- the same terms once, and a term that all branches have before what they imply
SELECT a.id, b.id FROM sales a JOIN sales b ON a.id = b.big AND ((a.amount = 1 AND a.kind = 'x' AND b.amount = 2) OR (b.amount = 2 AND a.kind = 'x' AND a.amount = 3)) WHERE a.kind = 'x'
-- before
--   Project id, id
--     Filter (kind = 'x')
--       Join inner on ((CAST(id AS BIGINT) = big) AND (((amount = 1) AND (kind = 'x') AND (amount = 2)) OR ((amount = 2) AND (kind = 'x') AND (amount = 3))))
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
-- after
--   Project id, id
--     Join inner on ((CAST(id AS BIGINT) = big) AND (((amount = 1) AND (kind = 'x') AND (amount = 2)) OR ((amount = 2) AND (kind = 'x') AND (amount = 3))))
--       Filter ((kind = 'x') AND ((amount = 1) OR (amount = 3)))
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
--       Filter (amount = 2)
--         Scan sales (id, region, kind, amount, price, weight, big, sold)

-- nothing, where a branch says nothing about an input, or a term may have no value
SELECT a.id, b.id FROM sales a JOIN sales b ON a.id = b.big WHERE (a.amount = 1 AND 1 / b.weight = 2) OR (a.kind = b.kind AND b.weight = 3)
-- before
--   Project id, id
--     Filter (((amount = 1) AND ((1.0 / weight) = 2.0)) OR ((kind = kind) AND (weight = 3.0)))
--       Join inner on (CAST(id AS BIGINT) = big)
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
-- after
--   Project id, id
--     Join inner on ((CAST(id AS BIGINT) = big) AND (((amount = 1) AND ((1.0 / weight) = 2.0)) OR ((kind = kind) AND (weight = 3.0))))
--       Scan sales (id, region, kind, amount, price, weight, big, sold)
--       Scan sales (id, region, kind, amount, price, weight, big, sold)

-- with rows without a partner below the other input alone
SELECT a.id, b.id FROM sales a LEFT JOIN sales b ON a.id = b.big AND ((a.kind = 'x' AND b.kind = 'y') OR (a.kind = 'y' AND b.kind = 'x'))
-- before
--   Project id, id
--     Join left on ((CAST(id AS BIGINT) = big) AND (((kind = 'x') AND (kind = 'y')) OR ((kind = 'y') AND (kind = 'x'))))
--       Scan sales (id, region, kind, amount, price, weight, big, sold)
--       Scan sales (id, region, kind, amount, price, weight, big, sold)
-- after
--   Project id, id
--     Join left on ((CAST(id AS BIGINT) = big) AND (((kind = 'x') AND (kind = 'y')) OR ((kind = 'y') AND (kind = 'x'))))
--       Scan sales (id, region, kind, amount, price, weight, big, sold)
--       Filter ((kind = 'y') OR (kind = 'x'))
--         Scan sales (id, region, kind, amount, price, weight, big, sold)

-- above rows without a partner below the input that keeps them
SELECT a.id, b.id FROM sales a LEFT JOIN sales b ON a.id = b.big WHERE (a.kind = 'x' AND b.kind = 'y') OR (a.kind = 'y' AND b.kind IS NULL)
-- before
--   Project id, id
--     Filter (((kind = 'x') AND (kind = 'y')) OR ((kind = 'y') AND (kind IS NULL)))
--       Join left on (CAST(id AS BIGINT) = big)
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
-- after
--   Project id, id
--     Filter (((kind = 'x') AND (kind = 'y')) OR ((kind = 'y') AND (kind IS NULL)))
--       Join left on (CAST(id AS BIGINT) = big)
--         Filter ((kind = 'x') OR (kind = 'y'))
--           Scan sales (id, region, kind, amount, price, weight, big, sold)
--         Scan sales (id, region, kind, amount, price, weight, big, sold)

-- an OR over three inputs is a condition of the lower join once
SELECT a.id FROM sales a JOIN sales b ON a.id = b.id JOIN sales c ON b.id = c.id WHERE (a.amount = 1 AND b.amount = 2 AND c.amount = 3) OR (a.amount = 2 AND b.amount = 3 AND c.amount = 4)
-- before
--   Project id
--     Filter (((amount = 1) AND (amount = 2) AND (amount = 3)) OR ((amount = 2) AND (amount = 3) AND (amount = 4)))
--       Join inner on (id = id)
--         Join inner on (id = id)
--           Scan sales (id, region, kind, amount, price, weight, big, sold)
--           Scan sales (id, region, kind, amount, price, weight, big, sold)
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
-- after
--   Project id
--     Join inner on ((id = id) AND (((amount = 1) AND (amount = 2) AND (amount = 3)) OR ((amount = 2) AND (amount = 3) AND (amount = 4))))
--       Join inner on ((id = id) AND (((amount = 1) AND (amount = 2)) OR ((amount = 2) AND (amount = 3))))
--         Filter ((amount = 1) OR (amount = 2))
--           Scan sales (id, region, kind, amount, price, weight, big, sold)
--         Filter ((amount = 2) OR (amount = 3))
--           Scan sales (id, region, kind, amount, price, weight, big, sold)
--       Filter ((amount = 3) OR (amount = 4))
--         Scan sales (id, region, kind, amount, price, weight, big, sold)

-- an OR within one implies what the terms of a filter are made of
SELECT a.id FROM sales a JOIN sales b ON a.id = b.id AND ((a.amount = 1 AND b.amount = 1 AND ((a.kind = 'x' AND a.region = 'y') OR (a.kind = 'x' AND a.region = 'z'))) OR (a.amount = 2 AND b.amount = 2))
-- before
--   Project id
--     Join inner on ((id = id) AND (((amount = 1) AND (amount = 1) AND (((kind = 'x') AND (region = 'y')) OR ((kind = 'x') AND (region = 'z')))) OR ((amount = 2) AND (amount = 2))))
--       Scan sales (id, region, kind, amount, price, weight, big, sold)
--       Scan sales (id, region, kind, amount, price, weight, big, sold)
-- after
--   Project id
--     Join inner on ((id = id) AND (((amount = 1) AND (amount = 1) AND (((kind = 'x') AND (region = 'y')) OR ((kind = 'x') AND (region = 'z')))) OR ((amount = 2) AND (amount = 2))))
--       Filter (((amount = 1) AND ((kind = 'x') AND ((region = 'y') OR (region = 'z')))) OR (amount = 2))
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
--       Filter ((amount = 1) OR (amount = 2))
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
