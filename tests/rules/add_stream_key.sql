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
--   Project region AS _id, id AS _id_ (hidden)
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
