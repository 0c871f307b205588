-- the syntax of the first years
CREATE OR REFRESH STREAMING LIVE TABLE customers_raw
COMMENT "as they land"
TBLPROPERTIES ("quality" = "bronze")
AS SELECT * FROM cloud_files("/landing/customers", "json", map("schema", "id BIGINT, name STRING, city STRING"));

CREATE OR REFRESH STREAMING LIVE TABLE customers_clean (
  CONSTRAINT valid_id EXPECT (id IS NOT NULL) ON VIOLATION DROP ROW,
  CONSTRAINT valid_name EXPECT (name IS NOT NULL) ON VIOLATION FAIL UPDATE
)
AS SELECT id, name, city FROM STREAM(LIVE.customers_raw);

CREATE LIVE TABLE customers_by_city
AS SELECT city, count(*) AS n FROM LIVE.customers_clean GROUP BY city;
