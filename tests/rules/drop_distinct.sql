-- a key makes rows distinct
SELECT DISTINCT region, id FROM orders
-- before
--   Aggregate [region, id]
--     Project region, id
--       Scan orders (id, region, amount, at)
-- after
--   Project region, id
--     Project region, id
--       Scan orders (id, region, amount, at)

-- groups are distinct
SELECT DISTINCT region, n FROM (SELECT region, count(*) AS n FROM orders GROUP BY region)
-- before
--   Aggregate [region, n]
--     Project region, n
--       Project region, count(*) AS n
--         Aggregate [region] count(*)
--           Scan orders (id, region, amount, at)
-- after
--   Project region, n
--     Project region, n
--       Project region, count(*) AS n
--         Aggregate [region] count(*)
--           Scan orders (id, region, amount, at)

-- part of a key does not
SELECT DISTINCT a FROM pairs
-- before
--   Aggregate [a]
--     Project a
--       Scan pairs (a, b, c)
-- after
--   Aggregate [a]
--     Project a
--       Scan pairs (a, b, c)

-- unless the rest is constant
SELECT DISTINCT a FROM pairs WHERE b = 1
-- before
--   Aggregate [a]
--     Project a
--       Filter (b = 1.0)
--         Scan pairs (a, b, c)
-- after
--   Project a
--     Project a
--       Filter (b = 1.0)
--         Scan pairs (a, b, c)

-- nor does a key of one branch
SELECT id FROM orders UNION SELECT id FROM orders
-- before
--   Aggregate [id]
--     Union
--       Project id
--         Scan orders (id, region, amount, at)
--       Project id
--         Scan orders (id, region, amount, at)
-- after
--   Aggregate [id]
--     Union
--       Project id
--         Scan orders (id, region, amount, at)
--       Project id
--         Scan orders (id, region, amount, at)

-- with a call it groups
SELECT id, count(*) FROM orders GROUP BY id
-- before
--   Project id, count(*) AS count
--     Aggregate [id] count(*)
--       Scan orders (id, region, amount, at)
-- after
--   Project id, count(*) AS count
--     Aggregate [id] count(*)
--       Scan orders (id, region, amount, at)
