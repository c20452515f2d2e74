-- unread columns are not scanned
SELECT region FROM orders WHERE id > 1
-- before
--   Project region
--     Filter (id > 1)
--       Scan orders (id, region, amount, at)
-- after
--   Project region
--     Filter (id > 1)
--       Scan orders (id, region)

-- rows can still be counted
SELECT count(*) FROM orders
-- before
--   Project count(*) AS count
--     Aggregate [] count(*)
--       Scan orders (id, region, amount, at)
-- after
--   Project count(*) AS count
--     Aggregate [] count(*)
--       Scan orders (id)

-- unread aggregates go
SELECT r FROM (SELECT region AS r, count(*) AS n, sum(amount) AS s FROM orders GROUP BY region HAVING count(*) > 1)
-- before
--   Project r
--     Project region AS r, count(*) AS n, sum(amount) AS s
--       Filter (count(*) > 1)
--         Aggregate [region] count(*), sum(amount)
--           Scan orders (id, region, amount, at)
-- after
--   Project r
--     Project region AS r
--       Filter (count(*) > 1)
--         Aggregate [region] count(*)
--           Scan orders (region)

-- sort keys are read
SELECT id FROM orders ORDER BY at DESC
-- before
--   Sort _order_2 DESC NULLS FIRST
--     Project id, at AS _order_2 (hidden)
--       Scan orders (id, region, amount, at)
-- after
--   Sort _order_2 DESC NULLS FIRST
--     Project id, at AS _order_2 (hidden)
--       Scan orders (id, at)

-- an extreme that can be retracted keeps the key
SELECT region, max(amount) FROM orders GROUP BY region
-- before
--   Project region, max(amount) AS max
--     Aggregate [region] max(amount)
--       Scan orders (id, region, amount, at)
-- after
--   Project region, max(amount) AS max
--     Aggregate [region] max(amount)
--       Scan orders (id, region, amount)

-- on append-only input it does not
SELECT msg, max("Id") FROM log GROUP BY msg
-- before
--   Project msg, max(Id) AS max
--     Aggregate [msg] max(Id)
--       Scan log (Id, msg, _row_id)
-- after
--   Project msg, max(Id) AS max
--     Aggregate [msg] max(Id)
--       Scan log (Id, msg)

-- rows of a statement keep their columns
SELECT a FROM (VALUES (1, 2), (2, 3)) AS x(a, b)
-- before
--   Project column1 AS a
--     Values 2 rows (column1, column2)
-- after
--   Project column1 AS a
--     Values 2 rows (column1, column2)

-- columns of a statement too
INSERT INTO plain VALUES (1, 'a')
-- before
--   Values 1 rows (v, w, _row_id)
-- after
--   Values 1 rows (v, w, _row_id)

-- below a limit
SELECT id FROM (SELECT * FROM orders LIMIT 3) AS x
-- before
--   Project id
--     Limit 3 offset 0
--       Project id, region, amount, at
--         Scan orders (id, region, amount, at)
-- after
--   Project id
--     Limit 3 offset 0
--       Project id
--         Scan orders (id)

-- in every branch of a union
SELECT r FROM (SELECT id, region, amount FROM orders UNION ALL SELECT a, 'x', c FROM pairs) AS x(n, r, m) WHERE m > 1
-- before
--   Project region AS r
--     Union
--       Project id, region, amount
--         Filter (amount > 1)
--           Scan orders (id, region, amount, at)
--       Filter (amount > 1)
--         Project CAST(a AS BIGINT) AS id, 'x' AS region, CAST(c AS NUMERIC(38, 10)) AS amount
--           Project a, 'x' AS ?column?, c
--             Scan pairs (a, b, c)
-- after
--   Project region AS r
--     Union
--       Project region
--         Filter (amount > 1)
--           Scan orders (region, amount)
--       Project region
--         Filter (amount > 1)
--           Project 'x' AS region, CAST(c AS NUMERIC(38, 10)) AS amount
--             Project c
--               Scan pairs (c)

-- a union of which only rows are counted
SELECT count(*) FROM (SELECT * FROM plain UNION ALL SELECT * FROM plain) AS x
-- before
--   Project count(*) AS count
--     Aggregate [] count(*)
--       Union
--         Project v, w
--           Scan plain (v, w, _row_id)
--         Project v, w
--           Scan plain (v, w, _row_id)
-- after
--   Project count(*) AS count
--     Aggregate [] count(*)
--       Union
--         Project v
--           Scan plain (v)
--         Project v
--           Scan plain (v)

-- a shared query keeps what its readers need together
WITH n AS (SELECT region AS r, count(*) AS n, sum(amount) AS s, max(at) AS m FROM orders GROUP BY region) SELECT n FROM n UNION ALL SELECT s FROM n WHERE s > 1
-- before
--   Union
--     Project CAST(n AS NUMERIC(38, 10)) AS n
--       Project n
--         Share 0
--           Project region AS r, count(*) AS n, sum(amount) AS s, max(at) AS m
--             Aggregate [region] count(*), sum(amount), max(at)
--               Scan orders (id, region, amount, at)
--     Project s
--       Filter (s > 1)
--         Share 0 (above)
-- after
--   Union
--     Project CAST(n AS NUMERIC(38, 10)) AS n
--       Project n
--         Share 0
--           Project count(*) AS n, sum(amount) AS s
--             Aggregate [region] count(*), sum(amount)
--               Scan orders (region, amount)
--     Project s
--       Filter (s > 1)
--         Share 0 (above)

-- a join reads what its condition needs
SELECT region FROM orders JOIN pairs ON id = a AND amount < c
-- before
--   Project region
--     Join inner on ((id = CAST(a AS BIGINT)) AND (amount < c))
--       Scan orders (id, region, amount, at)
--       Scan pairs (a, b, c)
-- after
--   Project region
--     Join inner on ((id = CAST(a AS BIGINT)) AND (amount < c))
--       Scan orders (id, region, amount)
--       Scan pairs (a, c)

-- numbers need their order, and the key that decides among equal rows
SELECT n FROM (SELECT at, row_number() OVER (PARTITION BY region ORDER BY amount) AS n FROM orders)
-- before
--   Project n
--     Project at, row_number AS n
--       OverWindow row_number of [region] by [amount ASC NULLS LAST]
--         Scan orders (id, region, amount, at)
-- after
--   Project n
--     Project row_number AS n
--       OverWindow row_number of [region] by [amount ASC NULLS LAST]
--         Scan orders (id, region, amount)

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

-- grouping sets keep their copies of columns, and lose others
SELECT region, count(*) FROM orders GROUP BY GROUPING SETS ((region), (id))
-- before
--   Project region, count(*) AS count
--     Aggregate [region, id, grouping_set] count(*)
--       Expand (region), (id)
--         Scan orders (id, region, amount, at)
-- after
--   Project region, count(*) AS count
--     Aggregate [region, id, grouping_set] count(*)
--       Expand (region), (id)
--         Scan orders (id, region)

-- rows that are kept in an order are told apart by their key
SELECT region, array_agg(amount ORDER BY at) FROM orders GROUP BY region
-- before
--   Project region, array_agg(amount ORDER BY at ASC NULLS LAST) AS array_agg
--     Aggregate [region] array_agg(amount ORDER BY at ASC NULLS LAST)
--       Scan orders (id, region, amount, at)
-- after
--   Project region, array_agg(amount ORDER BY at ASC NULLS LAST) AS array_agg
--     Aggregate [region] array_agg(amount ORDER BY at ASC NULLS LAST)
--       Scan orders (id, region, amount, at)

-- rows of functions need their arguments
SELECT g FROM (SELECT region, amount, id, generate_series(1, id) AS g FROM orders)
-- before
--   Project g
--     Project region, amount, id, generate_series AS g
--       ProjectSet generate_series(1, id) AS generate_series beside [id, region, amount, at]
--         Scan orders (id, region, amount, at)
-- after
--   Project g
--     Project generate_series AS g
--       ProjectSet generate_series(1, id) AS generate_series beside []
--         Scan orders (id)

-- a recursion keeps all columns
WITH RECURSIVE r(n, m) AS (SELECT a, b FROM pairs UNION SELECT n + 1, m FROM r WHERE n < 9) SELECT n FROM r
-- before
--   Project a AS n
--     Recursive 0 UNION
--       Project a, b
--         Scan pairs (a, b, c)
--       Project (n + 1) AS ?column?, m
--         Filter (n < 9)
--           WorkingTable 0 (n, m)
-- after
--   Project a AS n
--     Recursive 0 UNION
--       Project a, b
--         Scan pairs (a, b)
--       Project (n + 1) AS ?column?, m
--         Filter (n < 9)
--           WorkingTable 0 (n, m)
