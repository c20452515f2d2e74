-- unread columns are not scanned
SELECT region FROM orders WHERE id > 1
-- before
--   Project region
--     Filter (id > 1)
--       Scan orders (id, region, amount, at)
-- after
--   Project region
--     Filter (id > 1)
--       Scan orders (id, region)

-- rows can still be counted
SELECT count(*) FROM orders
-- before
--   Project count(*) AS count
--     Aggregate [] count(*)
--       Scan orders (id, region, amount, at)
-- after
--   Project count(*) AS count
--     Aggregate [] count(*)
--       Scan orders (id)

-- unread aggregates go
SELECT r FROM (SELECT region AS r, count(*) AS n, sum(amount) AS s FROM orders GROUP BY region HAVING count(*) > 1)
-- before
--   Project r
--     Project region AS r, count(*) AS n, sum(amount) AS s
--       Filter (count(*) > 1)
--         Aggregate [region] count(*), sum(amount)
--           Scan orders (id, region, amount, at)
-- after
--   Project r
--     Project region AS r
--       Filter (count(*) > 1)
--         Aggregate [region] count(*)
--           Scan orders (region)

-- sort keys are read
SELECT id FROM orders ORDER BY at DESC
-- before
--   Sort _order_2 DESC NULLS FIRST
--     Project id, at AS _order_2 (hidden)
--       Scan orders (id, region, amount, at)
-- after
--   Sort _order_2 DESC NULLS FIRST
--     Project id, at AS _order_2 (hidden)
--       Scan orders (id, at)

-- an extreme that can be retracted keeps the key
SELECT region, max(amount) FROM orders GROUP BY region
-- before
--   Project region, max(amount) AS max
--     Aggregate [region] max(amount)
--       Scan orders (id, region, amount, at)
-- after
--   Project region, max(amount) AS max
--     Aggregate [region] max(amount)
--       Scan orders (id, region, amount)

-- on append-only input it does not
SELECT msg, max("Id") FROM log GROUP BY msg
-- before
--   Project msg, max(Id) AS max
--     Aggregate [msg] max(Id)
--       Scan log (Id, msg, _row_id)
-- after
--   Project msg, max(Id) AS max
--     Aggregate [msg] max(Id)
--       Scan log (Id, msg)
