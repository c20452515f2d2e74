-- below a limit it decides
SELECT * FROM (SELECT id, region FROM orders ORDER BY region LIMIT 9) ORDER BY id
-- before
--   Sort id ASC NULLS LAST
--     Project id, region
--       Limit 9 offset 0
--         Sort region ASC NULLS LAST
--           Project id, region
--             Scan orders (id, region, amount, at)
-- after
--   Sort id ASC NULLS LAST
--     Project id, region
--       Limit 9 offset 0
--         Sort region ASC NULLS LAST
--           Project id, region
--             Scan orders (id, region, amount, at)

-- below another sort
SELECT * FROM (SELECT id, region FROM orders ORDER BY region) ORDER BY id
-- before
--   Sort id ASC NULLS LAST
--     Project id, region
--       Sort region ASC NULLS LAST
--         Project id, region
--           Scan orders (id, region, amount, at)
-- after
--   Sort id ASC NULLS LAST
--     Project id, region
--       Project id, region
--         Scan orders (id, region, amount, at)

-- below an aggregation
SELECT DISTINCT id, id FROM (SELECT a AS id FROM pairs ORDER BY b)
-- before
--   Project id, id
--     Aggregate [id]
--       Project id, id
--         Sort _order_2 ASC NULLS LAST
--           Project a AS id, b AS _order_2 (hidden)
--             Scan pairs (a, b, c)
-- after
--   Project id, id
--     Aggregate [id]
--       Project id, id
--         Project a AS id, b AS _order_2 (hidden)
--           Scan pairs (a, b, c)

-- in that order already
SELECT id FROM (SELECT id, region FROM orders ORDER BY region, id LIMIT 9) AS o ORDER BY region
-- before
--   Sort _order_2 ASC NULLS LAST
--     Project id, region AS _order_2 (hidden)
--       Limit 9 offset 0
--         Sort region ASC NULLS LAST, id ASC NULLS LAST
--           Project id, region
--             Scan orders (id, region, amount, at)
-- after
--   Project id, region AS _order_2 (hidden)
--     Limit 9 offset 0
--       Sort region ASC NULLS LAST, id ASC NULLS LAST
--         Project id, region
--           Scan orders (id, region, amount, at)

-- keys after a unique one
SELECT id FROM orders ORDER BY id, region, amount DESC
-- before
--   Sort id ASC NULLS LAST, _order_2 ASC NULLS LAST, _order_3 DESC NULLS FIRST
--     Project id, region AS _order_2 (hidden), amount AS _order_3 (hidden)
--       Scan orders (id, region, amount, at)
-- after
--   Sort id ASC NULLS LAST
--     Project id, region AS _order_2 (hidden), amount AS _order_3 (hidden)
--       Scan orders (id, region, amount, at)

-- constants and repetitions
SELECT id, region, amount FROM orders WHERE region = 'a' ORDER BY region, amount, amount DESC, id
-- before
--   Sort region ASC NULLS LAST, amount ASC NULLS LAST, amount DESC NULLS FIRST, id ASC NULLS LAST
--     Project id, region, amount
--       Filter (region = 'a')
--         Scan orders (id, region, amount, at)
-- after
--   Sort amount ASC NULLS LAST, id ASC NULLS LAST
--     Project id, region, amount
--       Filter (region = 'a')
--         Scan orders (id, region, amount, at)

-- one row
SELECT count(*) AS n FROM orders ORDER BY n
-- before
--   Sort n ASC NULLS LAST
--     Project count(*) AS n
--       Aggregate [] count(*)
--         Scan orders (id, region, amount, at)
-- after
--   Project count(*) AS n
--     Aggregate [] count(*)
--       Scan orders (id, region, amount, at)
