from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
best = spark.read.schema("a STRING, points INT").csv("/ref/points.csv").orderBy("points").limit(10)
landed = spark.readStream.schema("a STRING").json("/in/b")
landed.join(best, "a").writeStream.queryName("best_ten").format("console").start()
landed.select("a", "_metadata.file_name").writeStream.queryName("files").format("console").start()
landed.select("a", "_metadata.file_block_start").writeStream.queryName("blocks").format("console").start()
spark.readStream.schema("a STRING").json("/in/a").limit(100).writeStream.queryName("first").format("console").start()
