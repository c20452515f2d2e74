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
