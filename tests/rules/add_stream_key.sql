-- a dropped key is carried hidden
SELECT amount FROM orders
-- before
--   Project amount
--     Scan orders (id, region, amount, at)
-- after
--   Project amount, id AS _id (hidden)
--     Scan orders (id, region, amount, at)

-- a kept key is enough
SELECT amount, id FROM orders
-- before
--   Project amount, id
--     Scan orders (id, region, amount, at)
-- after
--   Project amount, id
--     Scan orders (id, region, amount, at)

-- a generated key
SELECT w FROM plain
-- before
--   Project w
--     Scan plain (v, w, _row_id)
-- after
--   Project w, _row_id (hidden)
--     Scan plain (v, w, _row_id)

-- a name that is taken
SELECT region AS _id FROM orders
-- before
--   Project region AS _id
--     Scan orders (id, region, amount, at)
-- after
--   Project region AS _id, id AS _id_2 (hidden)
--     Scan orders (id, region, amount, at)

-- through several projections
SELECT upper(r) AS u FROM (SELECT lower(region) AS r FROM orders) WHERE r <> 'x'
-- before
--   Project upper(r) AS u
--     Filter (r <> 'x')
--       Project lower(region) AS r
--         Scan orders (id, region, amount, at)
-- after
--   Project upper(r) AS u, _id (hidden)
--     Filter (r <> 'x')
--       Project lower(region) AS r, id AS _id (hidden)
--         Scan orders (id, region, amount, at)

-- groups are their own key
SELECT n FROM (SELECT region, count(*) AS n FROM orders GROUP BY region)
-- before
--   Project n
--     Project region, count(*) AS n
--       Aggregate [region] count(*)
--         Scan orders (id, region, amount, at)
-- after
--   Project n, region AS _region (hidden)
--     Project region, count(*) AS n
--       Aggregate [region] count(*)
--         Scan orders (id, region, amount, at)

-- an extreme needs the key of its input
SELECT region, min(amount * 2) FROM orders GROUP BY region
-- before
--   Project region, min((amount * 2)) AS min
--     Aggregate [region] min((amount * 2))
--       Project region, (amount * 2)
--         Scan orders (id, region, amount, at)
-- after
--   Project region, min((amount * 2)) AS min
--     Aggregate [region] min((amount * 2))
--       Project region, (amount * 2), id AS _id (hidden)
--         Scan orders (id, region, amount, at)

-- values of one word are kept without their rows
SELECT region, max(v) FROM (SELECT region, at AS v FROM orders) AS x GROUP BY region
-- before
--   Project region, max(v) AS max
--     Aggregate [region] max(v)
--       Project region, at AS v
--         Scan orders (id, region, amount, at)
-- after
--   Project region, max(v) AS max
--     Aggregate [region] max(v)
--       Project region, at AS v
--         Scan orders (id, region, amount, at)

-- a sum does not
SELECT region, sum(amount * 2) FROM orders GROUP BY region
-- before
--   Project region, sum((amount * 2)) AS sum
--     Aggregate [region] sum((amount * 2))
--       Project region, (amount * 2)
--         Scan orders (id, region, amount, at)
-- after
--   Project region, sum((amount * 2)) AS sum
--     Aggregate [region] sum((amount * 2))
--       Project region, (amount * 2)
--         Scan orders (id, region, amount, at)

-- one row has an empty key
SELECT count(*) FROM orders
-- before
--   Project count(*) AS count
--     Aggregate [] count(*)
--       Scan orders (id, region, amount, at)
-- after
--   Project count(*) AS count
--     Aggregate [] count(*)
--       Scan orders (id, region, amount, at)

-- rows of a statement have none
SELECT column1 FROM (VALUES (1), (2)) AS x
-- before
--   Project column1
--     Values 2 rows (column1)
-- after
--   Project column1
--     Values 2 rows (column1)

-- nor have columns of a statement
INSERT INTO plain VALUES (1, 'a')
-- before
--   Values 1 rows (v, w, _row_id)
-- after
--   Values 1 rows (v, w, _row_id)

-- branches with keys of one type share a column
SELECT region FROM orders UNION ALL SELECT msg FROM log
-- before
--   Union
--     Project region
--       Scan orders (id, region, amount, at)
--     Project msg
--       Scan log (Id, msg, _row_id)
-- after
--   Union key [_branch, _id]
--     Project region, 0 AS _branch (hidden), _id (hidden)
--       Project region, id AS _id (hidden)
--         Scan orders (id, region, amount, at)
--     Project msg AS region, 1 AS _branch (hidden), _row_id AS _id (hidden)
--       Project msg, _row_id (hidden)
--         Scan log (Id, msg, _row_id)

-- others are NULL where they are not the branch's
SELECT region FROM orders UNION ALL SELECT w FROM plain UNION ALL SELECT CAST(c AS TEXT) FROM pairs
-- before
--   Union
--     Project region
--       Scan orders (id, region, amount, at)
--     Project w
--       Scan plain (v, w, _row_id)
--     Project CAST(c AS VARCHAR) AS c
--       Scan pairs (a, b, c)
-- after
--   Union key [_branch, _id, _a, _b]
--     Project region, 0 AS _branch (hidden), _id (hidden), NULL AS _a (hidden), NULL AS _b (hidden)
--       Project region, id AS _id (hidden)
--         Scan orders (id, region, amount, at)
--     Project w AS region, 1 AS _branch (hidden), _row_id AS _id (hidden), NULL AS _a (hidden), NULL AS _b (hidden)
--       Project w, _row_id (hidden)
--         Scan plain (v, w, _row_id)
--     Project c AS region, 2 AS _branch (hidden), NULL AS _id (hidden), _a (hidden), _b (hidden)
--       Project CAST(c AS VARCHAR) AS c, a AS _a (hidden), b AS _b (hidden)
--         Scan pairs (a, b, c)

-- a key column that all branches show is not repeated
SELECT region, id FROM orders UNION ALL SELECT 'sold', id FROM shop.sold
-- before
--   Union
--     Project region, id
--       Scan orders (id, region, amount, at)
--     Project 'sold' AS region, id
--       Project 'sold' AS ?column?, id
--         Scan sold (id, price)
-- after
--   Union key [_branch, id]
--     Project region, id, 0 AS _branch (hidden)
--       Project region, id
--         Scan orders (id, region, amount, at)
--     Project region, id, 1 AS _branch (hidden)
--       Project 'sold' AS region, id
--         Project 'sold' AS ?column?, id
--           Scan sold (id, price)

-- nor added where another branch shows something else
SELECT id FROM orders UNION ALL SELECT id + 1 FROM shop.sold
-- before
--   Union
--     Project id
--       Scan orders (id, region, amount, at)
--     Project (id + 1) AS ?column?
--       Scan sold (id, price)
-- after
--   Union key [_branch, _id]
--     Project id, 0 AS _branch (hidden), id AS _id (hidden)
--       Project id
--         Scan orders (id, region, amount, at)
--     Project ?column? AS id, 1 AS _branch (hidden), _id (hidden)
--       Project (id + 1) AS ?column?, id AS _id (hidden)
--         Scan sold (id, price)

-- branches of one row have no other key than their number
SELECT count(*) FROM orders UNION ALL SELECT count(*) FROM plain
-- before
--   Union
--     Project count(*) AS count
--       Aggregate [] count(*)
--         Scan orders (id, region, amount, at)
--     Project count(*) AS count
--       Aggregate [] count(*)
--         Scan plain (v, w, _row_id)
-- after
--   Union key [_branch]
--     Project count, 0 AS _branch (hidden)
--       Project count(*) AS count
--         Aggregate [] count(*)
--           Scan orders (id, region, amount, at)
--     Project count, 1 AS _branch (hidden)
--       Project count(*) AS count
--         Aggregate [] count(*)
--           Scan plain (v, w, _row_id)

-- a union of unions
SELECT max(n) FROM (SELECT amount AS n FROM orders UNION ALL (SELECT v FROM plain UNION SELECT a FROM pairs)) AS x
-- before
--   Project max(n) AS max
--     Aggregate [] max(n)
--       Union
--         Project amount AS n
--           Scan orders (id, region, amount, at)
--         Project CAST(v AS NUMERIC(38, 10)) AS n
--           Aggregate [v]
--             Union
--               Project v
--                 Scan plain (v, w, _row_id)
--               Project a
--                 Scan pairs (a, b, c)
-- after
--   Project max(n) AS max
--     Aggregate [] max(n)
--       Union key [_branch, _id, _v]
--         Project n, 0 AS _branch (hidden), _id (hidden), NULL AS _v (hidden)
--           Project amount AS n, id AS _id (hidden)
--             Scan orders (id, region, amount, at)
--         Project n, 1 AS _branch (hidden), NULL AS _id (hidden), _v (hidden)
--           Project CAST(v AS NUMERIC(38, 10)) AS n, v AS _v (hidden)
--             Aggregate [v]
--               Union
--                 Project v
--                   Scan plain (v, w, _row_id)
--                 Project a
--                   Scan pairs (a, b, c)

-- distinct rows are their own key
SELECT region FROM orders UNION SELECT w FROM plain
-- before
--   Aggregate [region]
--     Union
--       Project region
--         Scan orders (id, region, amount, at)
--       Project w
--         Scan plain (v, w, _row_id)
-- after
--   Aggregate [region]
--     Union
--       Project region
--         Scan orders (id, region, amount, at)
--       Project w
--         Scan plain (v, w, _row_id)

-- a shared query has one key
WITH a AS (SELECT region, amount FROM orders WHERE id > 1) SELECT region FROM a UNION ALL SELECT CAST(amount AS TEXT) FROM a
-- before
--   Union
--     Project region
--       Share 0
--         Project region, amount
--           Filter (id > 1)
--             Scan orders (id, region, amount, at)
--     Project CAST(amount AS VARCHAR) AS amount
--       Share 0 (above)
-- after
--   Union key [_branch, _id]
--     Project region, 0 AS _branch (hidden), _id (hidden)
--       Project region, _id (hidden)
--         Share 0
--           Project region, amount, id AS _id (hidden)
--             Filter (id > 1)
--               Scan orders (id, region, amount, at)
--     Project amount AS region, 1 AS _branch (hidden), _id (hidden)
--       Project CAST(amount AS VARCHAR) AS amount, _id (hidden)
--         Share 0 (above)

-- but added where a branch shows something else there
SELECT id FROM orders UNION ALL SELECT id + 1 FROM shop.sold
-- before
--   Union
--     Project id
--       Scan orders (id, region, amount, at)
--     Project (id + 1) AS ?column?
--       Scan sold (id, price)
-- after
--   Union key [_branch, _id]
--     Project id, 0 AS _branch (hidden), id AS _id (hidden)
--       Project id
--         Scan orders (id, region, amount, at)
--     Project ?column? AS id, 1 AS _branch (hidden), _id (hidden)
--       Project (id + 1) AS ?column?, id AS _id (hidden)
--         Scan sold (id, price)

-- that of a join is made of those of both sides
SELECT amount, c FROM orders JOIN pairs ON amount < c
-- before
--   Project amount, c
--     Join inner on (amount < c)
--       Scan orders (id, region, amount, at)
--       Scan pairs (a, b, c)
-- after
--   Project amount, c, id AS _id (hidden), a AS _a (hidden), b AS _b (hidden)
--     Join inner on (amount < c)
--       Scan orders (id, region, amount, at)
--       Scan pairs (a, b, c)

-- also where the left side gets it
SELECT o.amount, p.c FROM (SELECT amount FROM orders) AS o LEFT JOIN pairs AS p ON o.amount < p.c
-- before
--   Project amount, c
--     Join left on (amount < c)
--       Project amount
--         Scan orders (id, region, amount, at)
--       Scan pairs (a, b, c)
-- after
--   Project amount, c, _id (hidden), a AS _a (hidden), b AS _b (hidden)
--     Project amount, a, b, c, _id (hidden)
--       Join left on (amount < c)
--         Project amount, id AS _id (hidden)
--           Scan orders (id, region, amount, at)
--         Scan pairs (a, b, c)

-- below numbers, which come before the key
SELECT row_number() OVER (PARTITION BY region ORDER BY amount) AS n, upper(region) AS u FROM (SELECT region, amount FROM orders) AS x
-- before
--   Project row_number AS n, upper(region) AS u
--     OverWindow row_number of [region] by [amount ASC NULLS LAST]
--       Project region, amount
--         Scan orders (id, region, amount, at)
-- after
--   Project row_number AS n, upper(region) AS u, _id (hidden), region AS _region (hidden)
--     Project region, amount, row_number, _id (hidden)
--       OverWindow row_number of [region] by [amount ASC NULLS LAST]
--         Project region, amount, id AS _id (hidden)
--           Scan orders (id, region, amount, at)

-- a top-n has the key of its input and its groups
SELECT amount FROM (SELECT amount, row_number() OVER (PARTITION BY region ORDER BY amount) AS n FROM orders) WHERE n < 3
-- before
--   Project amount
--     Project amount, row_number AS n
--       TopN row_number 1 to 2 AS row_number of [region] by [amount ASC NULLS LAST]
--         Scan orders (id, region, amount, at)
-- after
--   Project amount, _id (hidden), _region (hidden)
--     Project amount, row_number AS n, id AS _id (hidden), region AS _region (hidden)
--       TopN row_number 1 to 2 AS row_number of [region] by [amount ASC NULLS LAST]
--         Scan orders (id, region, amount, at)

-- the only row of a group has the groups as its key
SELECT amount FROM (SELECT amount, row_number() OVER (PARTITION BY region ORDER BY id) AS n FROM orders) WHERE n = 1
-- before
--   Project amount
--     Project amount, row_number AS n
--       TopN row_number 1 to 1 AS row_number of [region] by [id ASC NULLS LAST]
--         Scan orders (id, region, amount, at)
-- after
--   Project amount, _region (hidden)
--     Project amount, row_number AS n, region AS _region (hidden)
--       TopN row_number 1 to 1 AS row_number of [region] by [id ASC NULLS LAST]
--         Scan orders (id, region, amount, at)

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

-- grouping sets add their number to the key of their input
SELECT n FROM (SELECT region, id, count(*) AS n FROM orders GROUP BY GROUPING SETS (region, id))
-- before
--   Project n
--     Project region, id, count(*) AS n
--       Aggregate [region, id, grouping_set] count(*)
--         Expand (region), (id)
--           Scan orders (id, region, amount, at)
-- after
--   Project n, region AS _region (hidden), id AS _id (hidden), _grouping_set (hidden)
--     Project region, id, count(*) AS n, grouping_set AS _grouping_set (hidden)
--       Aggregate [region, id, grouping_set] count(*)
--         Expand (region), (id)
--           Scan orders (id, region, amount, at)

-- rows of a projection that are kept in an order
SELECT string_agg(r, ',') FROM (SELECT upper(region) AS r FROM orders)
-- before
--   Project string_agg(r, ',') AS string_agg
--     Aggregate [] string_agg(r, ',')
--       Project upper(region) AS r
--         Scan orders (id, region, amount, at)
-- after
--   Project string_agg(r, ',') AS string_agg
--     Aggregate [] string_agg(r, ',')
--       Project upper(region) AS r, id AS _id (hidden)
--         Scan orders (id, region, amount, at)

-- rows of functions have numbers, and the key of the row before
SELECT g FROM (SELECT id AS x, g FROM orders, generate_series(1, id) AS g)
-- before
--   Project g
--     Project id AS x, generate_series AS g
--       ProjectSet generate_series(1, id) AS generate_series beside [id, region, amount, at]
--         Scan orders (id, region, amount, at)
-- after
--   Project g, x AS _x (hidden), _projected_row_id (hidden)
--     Project id AS x, generate_series AS g, _projected_row_id (hidden)
--       ProjectSet generate_series(1, id) AS generate_series beside [id, region, amount, at]
--         Scan orders (id, region, amount, at)

-- a recursion has none
WITH RECURSIVE r(n) AS (SELECT a FROM pairs UNION SELECT n + 1 FROM r WHERE n < 9) SELECT n FROM r
-- before
--   Project a AS n
--     Recursive 0 UNION
--       Project a
--         Scan pairs (a, b, c)
--       Project (n + 1) AS ?column?
--         Filter (n < 9)
--           WorkingTable 0 (n)
-- after
--   Project a AS n
--     Recursive 0 UNION
--       Project a
--         Scan pairs (a, b, c)
--       Project (n + 1) AS ?column?
--         Filter (n < 9)
--           WorkingTable 0 (n)
