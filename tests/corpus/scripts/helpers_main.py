from helpers.io import read_events, write_console
from helpers.transforms import with_day, only_valid

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
events = read_events(spark, "/in/events")
daily = only_valid(with_day(events)).groupBy("day", "kind").count()
write_console(daily, "daily", mode="complete").awaitTermination()
