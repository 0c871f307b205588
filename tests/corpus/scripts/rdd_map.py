from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
lookup = spark.sparkContext.broadcast({"a": 1})
df = spark.readStream.schema("k STRING").json("/in/k")
mapped = df.rdd.map(lambda row: (row.k, lookup.value.get(row.k)))
mapped.toDF(["k", "n"]).writeStream.format("console").start()
