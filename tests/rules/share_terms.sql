-- the common terms of all branches
SELECT id FROM orders WHERE (id = 1 AND region = 'a' AND amount > 2) OR (amount > 2 AND id = 1 AND region = 'b')
-- before
--   Project id
--     Filter (((id = 1) AND (region = 'a') AND (amount > 2)) OR ((amount > 2) AND (id = 1) AND (region = 'b')))
--       Scan orders (id, region, amount, at)
-- after
--   Project id
--     Filter ((id = 1) AND (amount > 2) AND ((region = 'a') OR (region = 'b')))
--       Scan orders (id, region, amount, at)

-- a branch with nothing else
SELECT id FROM orders WHERE (id = 1 AND region = 'a') OR id = 1
-- before
--   Project id
--     Filter (((id = 1) AND (region = 'a')) OR (id = 1))
--       Scan orders (id, region, amount, at)
-- after
--   Project id
--     Filter (id = 1)
--       Scan orders (id, region, amount, at)

-- nothing in common
SELECT id FROM orders WHERE (id = 1 AND region = 'a') OR region = 'b'
-- before
--   Project id
--     Filter (((id = 1) AND (region = 'a')) OR (region = 'b'))
--       Scan orders (id, region, amount, at)
-- after
--   Project id
--     Filter (((id = 1) AND (region = 'a')) OR (region = 'b'))
--       Scan orders (id, region, amount, at)

-- within an expression
SELECT id FROM orders WHERE NOT ((id = 1 AND region = 'a') OR (id = 1 AND region = 'b'))
-- before
--   Project id
--     Filter (NOT (((id = 1) AND (region = 'a')) OR ((id = 1) AND (region = 'b'))))
--       Scan orders (id, region, amount, at)
-- after
--   Project id
--     Filter (NOT ((id = 1) AND ((region = 'a') OR (region = 'b'))))
--       Scan orders (id, region, amount, at)
