from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.readStream.schema("a STRING").json("/in/a").limit(100).writeStream.queryName("first").format("console").start()
