-- a bounded number is a top-n
SELECT id, n FROM (SELECT id, row_number() OVER (PARTITION BY region ORDER BY amount DESC) AS n FROM orders) WHERE n <= 3
-- before
--   Project id, n
--     Project id, row_number AS n
--       Filter (row_number <= 3)
--         OverWindow row_number of [region] by [amount DESC NULLS FIRST]
--           Scan orders (id, region, amount, at)
-- after
--   Project id, n
--     Project id, row_number AS n
--       TopN row_number 1 to 3 AS row_number of [region] by [amount DESC NULLS FIRST]
--         Scan orders (id, region, amount, at)

-- bounds on both sides, in any form
SELECT id FROM (SELECT id, rank() OVER (ORDER BY amount) AS n FROM orders) WHERE 2 < n AND n BETWEEN 1 AND 7 AND id > 4 AND n < 9.0
-- before
--   Project id
--     Project id, rank AS n
--       Filter ((2 < rank) AND (rank >= 1) AND (rank <= 7) AND (id > 4) AND (CAST(rank AS NUMERIC(19, 0)) < 9.0))
--         OverWindow rank of [] by [amount ASC NULLS LAST]
--           Scan orders (id, region, amount, at)
-- after
--   Project id
--     Project id, rank AS n
--       Filter ((id > 4) AND (CAST(rank AS NUMERIC(19, 0)) < 9.0))
--         TopN rank 3 to 7 AS rank of [] by [amount ASC NULLS LAST]
--           Scan orders (id, region, amount, at)

-- only one row
SELECT id FROM (SELECT id, dense_rank() OVER (PARTITION BY region ORDER BY amount) AS n FROM orders) WHERE n = 1
-- before
--   Project id
--     Project id, dense_rank AS n
--       Filter (dense_rank = 1)
--         OverWindow dense_rank of [region] by [amount ASC NULLS LAST]
--           Scan orders (id, region, amount, at)
-- after
--   Project id
--     Project id, dense_rank AS n
--       TopN dense_rank 1 to 1 AS dense_rank of [region] by [amount ASC NULLS LAST]
--         Scan orders (id, region, amount, at)

-- none
SELECT id FROM (SELECT id, row_number() OVER (ORDER BY amount) AS n FROM orders) WHERE n < 1
-- before
--   Project id
--     Project id, row_number AS n
--       Filter (row_number < 1)
--         OverWindow row_number of [] by [amount ASC NULLS LAST]
--           Scan orders (id, region, amount, at)
-- after
--   Project id
--     Project id, row_number AS n
--       TopN row_number 1 to 0 AS row_number of [] by [amount ASC NULLS LAST]
--         Scan orders (id, region, amount, at)

-- a number that is compared with a column has no bound
SELECT id FROM (SELECT id, row_number() OVER (ORDER BY amount) AS n FROM orders) WHERE n <= 3 AND n > id
-- before
--   Project id
--     Project id, row_number AS n
--       Filter ((row_number <= 3) AND (row_number > id))
--         OverWindow row_number of [] by [amount ASC NULLS LAST]
--           Scan orders (id, region, amount, at)
-- after
--   Project id
--     Project id, row_number AS n
--       Filter (row_number > id)
--         TopN row_number 1 to 3 AS row_number of [] by [amount ASC NULLS LAST]
--           Scan orders (id, region, amount, at)

-- two numbers stay
SELECT * FROM (SELECT row_number() OVER (ORDER BY id) AS a, rank() OVER (ORDER BY id) AS b FROM orders) WHERE a <= 3
-- before
--   Project a, b
--     Project row_number AS a, rank AS b
--       Filter (row_number <= 3)
--         OverWindow row_number, rank of [] by [id ASC NULLS LAST]
--           Scan orders (id, region, amount, at)
-- after
--   Project a, b
--     Project row_number AS a, rank AS b
--       Filter (row_number <= 3)
--         OverWindow row_number, rank of [] by [id ASC NULLS LAST]
--           Scan orders (id, region, amount, at)

-- a limit, with and without an order
SELECT v FROM (SELECT v FROM plain ORDER BY w DESC LIMIT 3 OFFSET 1) UNION ALL SELECT a FROM (SELECT a FROM pairs LIMIT 2)
-- before
--   Union
--     Project v
--       Limit 3 offset 1
--         Sort _order_2 DESC NULLS FIRST
--           Project v, w AS _order_2 (hidden)
--             Scan plain (v, w, _row_id)
--     Project a
--       Limit 2 offset 0
--         Project a
--           Scan pairs (a, b, c)
-- after
--   Union
--     Project v
--       TopN row_number 2 to 4 of [] by [_order_2 DESC NULLS FIRST]
--         Project v, w AS _order_2 (hidden)
--           Scan plain (v, w, _row_id)
--     Project a
--       TopN row_number 1 to 2 of [] by []
--         Project a
--           Scan pairs (a, b, c)

-- an offset alone
SELECT id FROM orders ORDER BY amount OFFSET 2
-- before
--   Limit all offset 2
--     Sort _order_2 ASC NULLS LAST
--       Project id, amount AS _order_2 (hidden)
--         Scan orders (id, region, amount, at)
-- after
--   TopN row_number from 3 of [] by [_order_2 ASC NULLS LAST]
--     Project id, amount AS _order_2 (hidden)
--       Scan orders (id, region, amount, at)

-- a sort that nothing limits
SELECT region FROM orders ORDER BY amount
-- before
--   Sort _order_2 ASC NULLS LAST
--     Project region, amount AS _order_2 (hidden)
--       Scan orders (id, region, amount, at)
-- after
--   Project region, amount AS _order_2 (hidden)
--     Scan orders (id, region, amount, at)
