-- What the shop's people look at.

CREATE MATERIALIZED VIEW revenue COMMENT 'Cents for each day and channel' AS
SELECT day, channel, SUM(cents) AS cents, COUNT(*) AS orders
FROM distinct_orders
GROUP BY day, channel;

CREATE MATERIALIZED VIEW good_customers AS
SELECT customer_id
FROM distinct_orders
GROUP BY customer_id
HAVING COUNT(*) >= 10;

CREATE MATERIALIZED VIEW new_customers AS
SELECT customer_id
FROM distinct_orders
GROUP BY customer_id
HAVING COUNT(*) < 3;

CREATE STREAMING TABLE large_orders AS
SELECT order_id, customer_id, cents
FROM STREAM orders
WHERE cents > 50000;

CREATE FLOW phone_orders AS INSERT INTO orders BY NAME
SELECT order_id, customer_id, day, ts, cents, 'phone' AS channel
FROM STREAM phone_calls
WHERE order_id IS NOT NULL;

CREATE TEMPORARY VIEW phone_calls AS
SELECT * FROM STREAM call_center.calls;
