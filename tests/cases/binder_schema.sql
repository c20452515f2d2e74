-- What the statements of the binder and rule cases are bound to.
CREATE TABLE orders (id BIGINT PRIMARY KEY, region VARCHAR, amount NUMERIC, at TIMESTAMP);
CREATE TABLE pairs (a INT, b DOUBLE PRECISION, c NUMERIC(10, 2), PRIMARY KEY (a, b)) ON CONFLICT OVERWRITE;
CREATE TABLE plain (v INT, w VARCHAR);
CREATE TABLE log ("Id" INT, msg TEXT) APPEND ONLY;
CREATE TABLE fed (id INT PRIMARY KEY, x REAL) WITH (connector = 'files', path.glob = '*.csv');
CREATE MATERIALIZED VIEW revenue AS
SELECT region, SUM(amount) AS revenue, COUNT(*) AS orders FROM orders WHERE amount > 0 GROUP BY region;
CREATE SCHEMA shop;
CREATE TABLE shop.sold (id BIGINT PRIMARY KEY, price NUMERIC(8, 2) DEFAULT 1);
CREATE VIEW shop.cheap AS SELECT id, price FROM shop.sold WHERE price < 10 ORDER BY id;
CREATE TABLE visits (id BIGINT PRIMARY KEY, page VARCHAR) APPEND ONLY WITH (ttl = '1 hour');
CREATE VIEW recent AS SELECT id FROM visits;
CREATE SOURCE clicks (at TIMESTAMP, page VARCHAR, n INT, WATERMARK FOR at AS at - INTERVAL '5 seconds')
WITH (connector = 'ndjson', path = '/clicks');
CREATE TABLE gauges (day DATE, sensor INT, WATERMARK FOR day AS day - 1) APPEND ONLY
WITH (connector = 'csv', path = '/gauges');
