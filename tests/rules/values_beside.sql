-- a join with written rows
SELECT id, v.n FROM orders JOIN (VALUES ('a', 1), (NULL, 2)) AS v(r, n) ON r = region
-- before
--   Project id, column2 AS n
--     Join inner on (column1 = region)
--       Scan orders (id, region, amount, at)
--       Values 2 rows (column1, column2)
-- after
--   Project id, column2 AS n
--     Filter (column1 = region)
--       Project id, region, amount, at, column1, column2
--         ProjectSet unnest(VARCHAR[] '['a', None]') AS column1, unnest(INT[] '[1, 2]') AS column2 beside [id, region, amount, at]
--           Scan orders (id, region, amount, at)

-- written rows on the left
SELECT id, v.n FROM (VALUES ('a', 1), ('b', 2)) AS v(r, n), orders WHERE r = region
-- before
--   Project id, column2 AS n
--     Filter (column1 = region)
--       Join inner
--         Values 2 rows (column1, column2)
--         Scan orders (id, region, amount, at)
-- after
--   Project id, column2 AS n
--     Filter (column1 = region)
--       Project column1, column2, id, region, amount, at
--         Project id, region, amount, at, column1, column2
--           ProjectSet unnest(VARCHAR[] '['a', 'b']') AS column1, unnest(INT[] '[1, 2]') AS column2 beside [id, region, amount, at]
--             Scan orders (id, region, amount, at)

-- IN of written rows
SELECT id FROM orders WHERE (id, region) IN (VALUES (1, 'a'), (2, 'b'))
-- before
--   Project id
--     Join semi on ((id = CAST(column1 AS BIGINT)) AND (region = column2))
--       Scan orders (id, region, amount, at)
--       Values 2 rows (column1, column2)
-- after
--   Project id
--     Filter (((id = CAST(1 AS BIGINT)) AND (region = 'a')) OR ((id = CAST(2 AS BIGINT)) AND (region = 'b')))
--       Scan orders (id, region, amount, at)

-- and no such row
SELECT id FROM orders WHERE NOT EXISTS (SELECT 1 FROM (VALUES ('a'), (NULL)) AS v(r) WHERE r = region)
-- before
--   Project id
--     Join anti on (column1 = region)
--       Scan orders (id, region, amount, at)
--       Values 2 rows (column1)
-- after
--   Project id
--     Filter (NOT coalesce((('a' = region) OR (NULL = region)), FALSE))
--       Scan orders (id, region, amount, at)

-- an outer join stays, which no view has
SELECT id, v.n FROM orders LEFT JOIN (VALUES ('a', 1)) AS v(r, n) ON r = region
-- before
--   Project id, column2 AS n
--     Join left on (column1 = region)
--       Scan orders (id, region, amount, at)
--       Values 1 rows (column1, column2)
-- after
--   Project id, column2 AS n
--     Join left on (column1 = region)
--       Scan orders (id, region, amount, at)
--       Values 1 rows (column1, column2)
