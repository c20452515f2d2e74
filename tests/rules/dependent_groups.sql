-- the end of a window
SELECT page, window_start, window_end, count(*) FROM TUMBLE(clicks, at, INTERVAL '10' SECOND) GROUP BY page, window_start, window_end
-- before
--   Project page, window_start, window_end, count(*) AS count
--     Aggregate [page, window_start, window_end] count(*) watermark [window_start]
--       Project at, page, n, _row_id (hidden), date_bin(INTERVAL '00:00:10', at, TIMESTAMP '1970-01-01 00:00:00') AS window_start, (date_bin(INTERVAL '00:00:10', at, TIMESTAMP '1970-01-01 00:00:00') + INTERVAL '00:00:10') AS window_end
--         Filter (at IS NOT NULL)
--           Scan clicks (at, page, n, _row_id) watermark [at]
-- after
--   Project page, window_start, window_end, count(*) AS count
--     Project page, window_start, (window_start + INTERVAL '00:00:10') AS window_end, count(*)
--       Aggregate [page, window_start] count(*) watermark [window_start]
--         Project at, page, n, _row_id (hidden), date_bin(INTERVAL '00:00:10', at, TIMESTAMP '1970-01-01 00:00:00') AS window_start, (date_bin(INTERVAL '00:00:10', at, TIMESTAMP '1970-01-01 00:00:00') + INTERVAL '00:00:10') AS window_end
--           Filter (at IS NOT NULL)
--             Scan clicks (at, page, n, _row_id) watermark [at]

-- one of several others
SELECT region || kind, region, kind, sum(amount) FROM sales GROUP BY region || kind, region, kind
-- before
--   Project (region || kind) AS ?column?, region, kind, sum(amount) AS sum
--     Aggregate [(region || kind), region, kind] sum(amount)
--       Project (region || kind), region, kind, amount
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
-- after
--   Project (region || kind) AS ?column?, region, kind, sum(amount) AS sum
--     Project (region || kind), region, kind, sum(amount)
--       Aggregate [region, kind] sum(amount)
--         Project (region || kind), region, kind, amount
--           Scan sales (id, region, kind, amount, price, weight, big, sold)

-- the same column twice
SELECT region, r, max(amount) FROM (SELECT region, region AS r, amount FROM sales) GROUP BY region, r
-- before
--   Project region, r, max(amount) AS max
--     Aggregate [region, r] max(amount)
--       Project region, region AS r, amount
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
-- after
--   Project region, r, max(amount) AS max
--     Project region, region AS r, max(amount)
--       Aggregate [region] max(amount)
--         Project region, region AS r, amount
--           Scan sales (id, region, kind, amount, price, weight, big, sold)

-- beside a group of another type
SELECT weight, region, r, max(amount) FROM (SELECT weight, region, region AS r, amount FROM sales) GROUP BY weight, region, r
-- before
--   Project weight, region, r, max(amount) AS max
--     Aggregate [weight, region, r] max(amount)
--       Project weight, region, region AS r, amount
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
-- after
--   Project weight, region, r, max(amount) AS max
--     Project weight, region, region AS r, max(amount)
--       Aggregate [weight, region] max(amount)
--         Project weight, region, region AS r, amount
--           Scan sales (id, region, kind, amount, price, weight, big, sold)

-- a column beside the other group
SELECT id + amount, id, count(*) FROM sales GROUP BY id + amount, id
-- before
--   Project (id + amount) AS ?column?, id, count(*) AS count
--     Aggregate [(id + amount), id] count(*)
--       Project (id + amount), id
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
-- after
--   Project (id + amount) AS ?column?, id, count(*) AS count
--     Aggregate [(id + amount), id] count(*)
--       Project (id + amount), id
--         Scan sales (id, region, kind, amount, price, weight, big, sold)

-- values that are equal and differ
SELECT weight, 1 / weight, count(*) FROM sales GROUP BY weight, 1 / weight
-- before
--   Project weight, (1.0 / weight) AS ?column?, count(*) AS count
--     Aggregate [weight, (1.0 / weight)] count(*)
--       Project weight, (1.0 / weight)
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
-- after
--   Project weight, (1.0 / weight) AS ?column?, count(*) AS count
--     Aggregate [weight, (1.0 / weight)] count(*)
--       Project weight, (1.0 / weight)
--         Scan sales (id, region, kind, amount, price, weight, big, sold)

-- a constant is no group of another
SELECT region, c, count(*) FROM (SELECT region, 'x' AS c FROM sales) GROUP BY region, c
-- before
--   Project region, c, count(*) AS count
--     Aggregate [region, c] count(*)
--       Project region, 'x' AS c
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
-- after
--   Project region, c, count(*) AS count
--     Aggregate [region, c] count(*)
--       Project region, 'x' AS c
--         Scan sales (id, region, kind, amount, price, weight, big, sold)
