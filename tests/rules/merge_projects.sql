-- two become one
SELECT r || '!' AS s FROM (SELECT lower(region) AS r FROM orders)
-- before
--   Project (r || '!') AS s
--     Project lower(region) AS r
--       Scan orders (region)
-- after
--   Project (lower(region) || '!') AS s
--     Scan orders (region)

-- what is used twice is computed once
SELECT d + d AS e FROM (SELECT amount * 2 AS d FROM orders)
-- before
--   Project (d + d) AS e
--     Project (amount * 2) AS d
--       Scan orders (amount)
-- after
--   Project (d + d) AS e
--     Project (amount * 2) AS d
--       Scan orders (amount)

-- one that changes nothing goes
SELECT id, region, amount, at FROM orders
-- before
--   Project id, region, amount, at
--     Scan orders (id, region, amount, at)
-- after
--   Scan orders (id, region, amount, at)

-- names count
SELECT id AS number, region, amount, at FROM orders
-- before
--   Project id AS number, region, amount, at
--     Scan orders (id, region, amount, at)
-- after
--   Project id AS number, region, amount, at
--     Scan orders (id, region, amount, at)

-- hidden columns stay hidden
SELECT * FROM plain
-- before
--   Project v, w
--     Scan plain (v, w)
-- after
--   Scan plain (v, w)

-- branch by branch
SELECT n + 1 FROM (SELECT id + 1 AS n FROM orders UNION ALL SELECT n FROM (SELECT a AS n FROM pairs)) AS x
-- before
--   Project (n + 1) AS ?column?
--     Union
--       Project (id + 1) AS n
--         Scan orders (id)
--       Project CAST(n AS BIGINT) AS n
--         Project n
--           Project a AS n
--             Scan pairs (a)
-- after
--   Project (n + 1) AS ?column?
--     Union
--       Project (id + 1) AS n
--         Scan orders (id)
--       Project CAST(a AS BIGINT) AS n
--         Scan pairs (a)
