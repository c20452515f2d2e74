-- the greatest value of the rows of a group
SELECT region, top, count(*) FROM (SELECT region, max(amount) OVER (PARTITION BY region) AS top FROM orders) GROUP BY region, top
-- before
--   Project region, top, count(*) AS count
--     Aggregate [region, top] count(*)
--       Project region, max AS top
--         OverWindow max(amount) ROWS UNBOUNDED PRECEDING TO UNBOUNDED FOLLOWING AS max of [region] by []
--           Scan orders (id, region, amount, at)
-- after
--   Project region, top, count(*) AS count
--     Project region, _extreme AS top, count(*)
--       Aggregate [region] count(*), max(_extreme)
--         Project region, NULL AS top, amount AS _extreme (hidden)
--           Scan orders (id, region, amount, at)

-- an expression of it
SELECT region, top, sum(id) FROM (SELECT id, region, min(amount) OVER (PARTITION BY region) + 1 AS top FROM orders) GROUP BY region, top
-- before
--   Project region, top, sum(id) AS sum
--     Aggregate [region, top] sum(id)
--       Project id, region, (min + 1) AS top
--         OverWindow min(amount) ROWS UNBOUNDED PRECEDING TO UNBOUNDED FOLLOWING AS min of [region] by []
--           Scan orders (id, region, amount, at)
-- after
--   Project region, top, sum(id) AS sum
--     Project region, (_extreme + 1) AS top, sum(id)
--       Aggregate [region] sum(id), min(_extreme)
--         Project id, region, NULL AS top, amount AS _extreme (hidden)
--           Scan orders (id, region, amount, at)

-- groups of parts of a partition do not have all of its rows
SELECT region, id, top, count(*) FROM (SELECT region, id, max(amount) OVER (PARTITION BY region) AS top FROM orders) GROUP BY region, id, top
-- before
--   Project region, id, top, count(*) AS count
--     Aggregate [region, id, top] count(*)
--       Project region, id, max AS top
--         OverWindow max(amount) ROWS UNBOUNDED PRECEDING TO UNBOUNDED FOLLOWING AS max of [region] by []
--           Scan orders (id, region, amount, at)
-- after
--   Project region, id, top, count(*) AS count
--     Aggregate [region, id, top] count(*)
--       Project region, id, max AS top
--         OverWindow max(amount) ROWS UNBOUNDED PRECEDING TO UNBOUNDED FOLLOWING AS max of [region] by []
--           Scan orders (id, region, amount, at)

-- a frame that ends at the row
SELECT region, top, count(*) FROM (SELECT region, max(amount) OVER (PARTITION BY region ORDER BY id) AS top FROM orders) GROUP BY region, top
-- before
--   Project region, top, count(*) AS count
--     Aggregate [region, top] count(*)
--       Project region, max AS top
--         OverWindow max(amount) RANGE UNBOUNDED PRECEDING TO CURRENT ROW AS max of [region] by [id ASC NULLS LAST]
--           Scan orders (id, region, amount, at)
-- after
--   Project region, top, count(*) AS count
--     Aggregate [region, top] count(*)
--       Project region, max AS top
--         OverWindow max(amount) RANGE UNBOUNDED PRECEDING TO CURRENT ROW AS max of [region] by [id ASC NULLS LAST]
--           Scan orders (id, region, amount, at)

-- the extreme is the argument of an aggregate
SELECT region, top, sum(top) FROM (SELECT region, max(amount) OVER (PARTITION BY region) AS top FROM orders) GROUP BY region, top
-- before
--   Project region, top, sum(top) AS sum
--     Aggregate [region, top] sum(top)
--       Project region, max AS top
--         OverWindow max(amount) ROWS UNBOUNDED PRECEDING TO UNBOUNDED FOLLOWING AS max of [region] by []
--           Scan orders (id, region, amount, at)
-- after
--   Project region, top, sum(top) AS sum
--     Aggregate [region, top] sum(top)
--       Project region, max AS top
--         OverWindow max(amount) ROWS UNBOUNDED PRECEDING TO UNBOUNDED FOLLOWING AS max of [region] by []
--           Scan orders (id, region, amount, at)

-- all rows are one partition
SELECT top, count(*) FROM (SELECT max(amount) OVER () AS top FROM orders) GROUP BY top
-- before
--   Project top, count(*) AS count
--     Aggregate [top] count(*)
--       Project max AS top
--         OverWindow max(amount) ROWS UNBOUNDED PRECEDING TO UNBOUNDED FOLLOWING AS max of [] by []
--           Scan orders (id, region, amount, at)
-- after
--   Project top, count(*) AS count
--     Aggregate [top] count(*)
--       Project max AS top
--         OverWindow max(amount) ROWS UNBOUNDED PRECEDING TO UNBOUNDED FOLLOWING AS max of [] by []
--           Scan orders (id, region, amount, at)
