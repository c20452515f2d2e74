-- one reader
WITH big AS (SELECT region, amount FROM orders WHERE amount > 9) SELECT region FROM big
-- before
--   Project region
--     Share 0
--       Project region, amount
--         Filter (amount > 9)
--           Scan orders (id, region, amount, at)
-- after
--   Project region
--     Project region, amount
--       Filter (amount > 9)
--         Scan orders (id, region, amount, at)

-- two readers
WITH big AS (SELECT region, amount FROM orders WHERE amount > 9) SELECT region FROM big UNION ALL SELECT 'x' FROM big
-- before
--   Union
--     Project region
--       Share 0
--         Project region, amount
--           Filter (amount > 9)
--             Scan orders (id, region, amount, at)
--     Project 'x' AS region
--       Project 'x' AS ?column?
--         Share 0 (above)
-- after
--   Union
--     Project region
--       Share 0
--         Project region, amount
--           Filter (amount > 9)
--             Scan orders (id, region, amount, at)
--     Project 'x' AS region
--       Project 'x' AS ?column?
--         Share 0 (above)

-- a reader that nobody reads does not count
WITH a AS (SELECT id FROM orders), b AS (SELECT id FROM a) SELECT id FROM a
-- before
--   Project id
--     Share 0
--       Project id
--         Scan orders (id, region, amount, at)
-- after
--   Project id
--     Project id
--       Scan orders (id, region, amount, at)

-- one reader, itself with two
WITH a AS (SELECT id FROM orders), b AS (SELECT id FROM a UNION ALL SELECT id FROM a) SELECT id FROM b
-- before
--   Project id
--     Share 1
--       Union
--         Project id
--           Share 0
--             Project id
--               Scan orders (id, region, amount, at)
--         Project id
--           Share 0 (above)
-- after
--   Project id
--     Union
--       Project id
--         Share 0
--           Project id
--             Scan orders (id, region, amount, at)
--       Project id
--         Share 0 (above)
