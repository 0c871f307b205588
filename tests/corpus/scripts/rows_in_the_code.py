from datetime import timedelta

from pyspark.sql import Row, SparkSession

spark = SparkSession.builder.getOrCreate()
limits = spark.createDataFrame([Row(kind="a", most=3), Row(kind="b", most=5)])
codes = spark.createDataFrame([("a", "Alpha"), ("b", "Beta")], ["kind", "title"])
seen = spark.readStream.schema("kind STRING, n BIGINT").json("/in/seen")
over = seen.join(limits, "kind").where(seen.n > limits.most).join(codes, "kind").select("title", "n")
over.writeStream.queryName("over").format("console").start().awaitTermination(int(timedelta(hours=1).total_seconds()))
