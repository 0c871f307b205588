from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
blocked = spark.read.schema("user STRING").csv("/ref/blocked.csv")
posts = spark.readStream.schema("user STRING, text STRING").json("/in/posts")
posts.join(blocked, "user", "left_anti").writeStream.format("json").option("checkpointLocation", "/c").start(
    "/out/allowed").awaitTermination()
