-- the root needs no key
SELECT region FROM orders
-- before
--   Project region
--     Scan orders (id, region, amount, at)
-- after
--   Project region
--     Scan orders (id, region, amount, at)

-- an extreme needs that of its input
SELECT max(amount) FROM (SELECT amount FROM orders)
-- before
--   Project max(amount) AS max
--     Aggregate [] max(amount)
--       Project amount
--         Scan orders (id, region, amount, at)
-- after
--   Project max(amount) AS max
--     Aggregate [] max(amount)
--       Project amount, id AS _id (hidden)
--         Scan orders (id, region, amount, at)

-- nor does a union at the root
SELECT region FROM orders UNION ALL SELECT w FROM plain
-- before
--   Union
--     Project region
--       Scan orders (id, region, amount, at)
--     Project w
--       Scan plain (v, w, _row_id)
-- after
--   Union
--     Project region
--       Scan orders (id, region, amount, at)
--     Project w
--       Scan plain (v, w, _row_id)

-- a union below an extreme does
SELECT max(region) FROM (SELECT region FROM orders UNION ALL SELECT w FROM plain) AS x
-- before
--   Project max(region) AS max
--     Aggregate [] max(region)
--       Union
--         Project region
--           Scan orders (id, region, amount, at)
--         Project w
--           Scan plain (v, w, _row_id)
-- after
--   Project max(region) AS max
--     Aggregate [] max(region)
--       Union key [_branch, _id]
--         Project region, 0 AS _branch (hidden), _id (hidden)
--           Project region, id AS _id (hidden)
--             Scan orders (id, region, amount, at)
--         Project w AS region, 1 AS _branch (hidden), _row_id AS _id (hidden)
--           Project w, _row_id (hidden)
--             Scan plain (v, w, _row_id)

-- a shared query with a key for one of its readers
WITH a AS (SELECT region AS r FROM orders WHERE id > 1) SELECT r FROM a UNION ALL SELECT max(r) FROM a
-- before
--   Union
--     Project r
--       Share 0
--         Project region AS r
--           Filter (id > 1)
--             Scan orders (id, region, amount, at)
--     Project max(r) AS max
--       Aggregate [] max(r)
--         Share 0 (above)
-- after
--   Union
--     Project r
--       Share 0
--         Project region AS r, id AS _id (hidden)
--           Filter (id > 1)
--             Scan orders (id, region, amount, at)
--     Project max(r) AS max
--       Aggregate [] max(r)
--         Share 0 (above)
