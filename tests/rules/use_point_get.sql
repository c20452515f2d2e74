-- a whole key
SELECT * FROM revenue WHERE region = 'EUROPE'
-- before
--   Filter (region = 'EUROPE')
--     Scan revenue (region, revenue, orders)
-- after
--   PointGet revenue [region = 'EUROPE'] (region, revenue, orders)

-- what the key does not decide stays
SELECT c FROM pairs WHERE a = 1 AND 2.5 = b AND c > 1
-- before
--   Project c
--     Filter ((a = 1) AND (2.5 = b) AND (c > 1))
--       Scan pairs (a, b, c)
-- after
--   Project c
--     Filter (c > 1)
--       PointGet pairs [a = 1, b = 2.5] (a, b, c)

-- part of a key is no point
SELECT * FROM pairs WHERE a = 1
-- before
--   Filter (a = 1)
--     Scan pairs (a, b, c)
-- after
--   Filter (a = 1)
--     Scan pairs (a, b, c)

-- nor is a range
SELECT * FROM orders WHERE id >= 1
-- before
--   Filter (id >= 1)
--     Scan orders (id, region, amount, at)
-- after
--   Filter (id >= 1)
--     Scan orders (id, region, amount, at)

-- nor NULL
SELECT * FROM orders WHERE id = NULL
-- before
--   Filter (id = NULL)
--     Scan orders (id, region, amount, at)
-- after
--   Filter (id = NULL)
--     Scan orders (id, region, amount, at)

-- two values for one column: the second is checked
SELECT * FROM orders WHERE id = 1 AND id = 2
-- before
--   Filter ((id = 1) AND (id = 2))
--     Scan orders (id, region, amount, at)
-- after
--   Filter (id = 2)
--     PointGet orders [id = 1] (id, region, amount, at)
