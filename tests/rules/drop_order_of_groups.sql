-- the order of DISTINCT ON
SELECT DISTINCT ON (region) id, region FROM orders ORDER BY region, amount DESC
-- before
--   Sort region ASC NULLS LAST, _order_3 DESC NULLS FIRST
--     TopN row_number 1 to 1 of [region] by [_order_3 DESC NULLS FIRST]
--       Project id, region, amount AS _order_3 (hidden)
--         Scan orders (id, region, amount, at)
-- after
--   TopN row_number 1 to 1 of [region] by [_order_3 DESC NULLS FIRST]
--     Project id, region, amount AS _order_3 (hidden)
--       Scan orders (id, region, amount, at)

-- a limit is a TopN of it already
SELECT DISTINCT ON (region) id, region FROM orders ORDER BY region, amount DESC LIMIT 3
-- before
--   TopN row_number 1 to 3 of [] by [region ASC NULLS LAST, _order_3 DESC NULLS FIRST]
--     TopN row_number 1 to 1 of [region] by [_order_3 DESC NULLS FIRST]
--       Project id, region, amount AS _order_3 (hidden)
--         Scan orders (id, region, amount, at)
-- after
--   TopN row_number 1 to 3 of [] by [region ASC NULLS LAST, _order_3 DESC NULLS FIRST]
--     TopN row_number 1 to 1 of [region] by [_order_3 DESC NULLS FIRST]
--       Project id, region, amount AS _order_3 (hidden)
--         Scan orders (id, region, amount, at)

-- another sort stays, which no view has
SELECT id FROM orders ORDER BY amount
-- before
--   Sort _order_2 ASC NULLS LAST
--     Project id, amount AS _order_2 (hidden)
--       Scan orders (id, region, amount, at)
-- after
--   Sort _order_2 ASC NULLS LAST
--     Project id, amount AS _order_2 (hidden)
--       Scan orders (id, region, amount, at)
