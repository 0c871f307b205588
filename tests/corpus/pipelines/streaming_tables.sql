CREATE OR REFRESH STREAMING TABLE trips
AS SELECT * FROM STREAM read_files('/landing/trips', format => 'csv', schema => 'driver STRING, meters BIGINT, at TIMESTAMP');

CREATE OR REFRESH STREAMING TABLE long_trips (
  CONSTRAINT has_driver EXPECT (driver IS NOT NULL) ON VIOLATION DROP ROW
)
PARTITIONED BY (driver)
COMMENT 'over ten kilometers'
AS SELECT driver, meters FROM STREAM(trips) WHERE meters > 10000;

CREATE OR REFRESH MATERIALIZED VIEW meters_by_driver
AS SELECT driver, sum(meters) AS meters FROM long_trips GROUP BY driver;
