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
