-- the rows of the only partner that are not wanted come as well
SELECT s.id, s.amount, l.kind, l.reserve FROM sales s JOIN lots l ON s.amount = l.id WHERE l.kind = 'a'
-- before
--   Project id, amount, kind, reserve
--     Join inner on (amount = id)
--       Scan sales (id, amount)
--       Filter (kind = 'a')
--         Scan lots (id, kind, reserve)
-- after
--   Project id, amount, kind, reserve
--     Project id, amount, id, kind, reserve
--       Join inner on ((amount = id) AND _flag)
--         Scan sales (id, amount)
--         Project id, CASE WHEN _flag THEN kind ELSE NULL END AS kind, CASE WHEN _flag THEN reserve ELSE NULL END AS reserve, _flag (hidden)
--           Project id, kind, reserve, (kind = 'a') AS _flag (hidden)
--             Scan lots (id, kind, reserve)

-- columns computed of the filtered rows, on the left side; a further condition of both sides
SELECT s.id, l.top FROM (SELECT id, 100 / reserve AS top FROM lots WHERE reserve > 0) l JOIN sales s ON s.amount = l.id AND s.id < l.top
-- before
--   Project id, top
--     Join inner on ((amount = id) AND (id < top))
--       Project id, (100 / reserve) AS top
--         Filter (reserve > 0)
--           Scan lots (id, reserve)
--       Scan sales (id, amount)
-- after
--   Project id, top
--     Project id, top, id, amount
--       Join inner on ((amount = id) AND (id < top) AND _flag)
--         Project id, CASE WHEN _flag THEN (100 / reserve) ELSE NULL END AS top, _flag (hidden)
--           Project id, reserve, (reserve > 0) AS _flag (hidden)
--             Scan lots (id, reserve)
--         Scan sales (id, amount)

-- a partner that is unique only where the filter holds
SELECT s.id, p.kind FROM sales s JOIN parts p ON s.amount = p.lot WHERE p.part = 1
-- before
--   Project id, kind
--     Join inner on (amount = lot)
--       Scan sales (id, amount)
--       Filter (part = 1)
--         Scan parts (lot, part, kind)
-- after
--   Project id, kind
--     Join inner on (amount = lot)
--       Scan sales (id, amount)
--       Filter (part = 1)
--         Scan parts (lot, part, kind)

-- partners that may go
SELECT l.id, s.kind FROM lots l JOIN sales s ON l.reserve = s.id WHERE s.kind = 'a'
-- before
--   Project id, kind
--     Join inner on (reserve = id)
--       Scan lots (id, reserve)
--       Filter (kind = 'a')
--         Scan sales (id, kind)
-- after
--   Project id, kind
--     Join inner on (reserve = id)
--       Scan lots (id, reserve)
--       Filter (kind = 'a')
--         Scan sales (id, kind)

-- rows that are shown without a partner
SELECT s.id, l.kind FROM sales s LEFT JOIN (SELECT * FROM lots WHERE kind = 'a') l ON s.amount = l.id
-- before
--   Project id, kind
--     Join left on (amount = id)
--       Scan sales (id, amount)
--       Filter (kind = 'a')
--         Scan lots (id, kind)
-- after
--   Project id, kind
--     Join left on (amount = id)
--       Scan sales (id, amount)
--       Filter (kind = 'a')
--         Scan lots (id, kind)
