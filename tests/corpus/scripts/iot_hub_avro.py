from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.functions import col, expr

schema = """{"type":"record","name":"m","fields":[{"name":"device","type":"string"},{"name":"kwh","type":"long"}]}"""
spark = SparkSession.builder.getOrCreate()
raw = (spark.readStream.format("kafka").option("kafka.bootstrap.servers", "b:9092")
       .option("subscribePattern", "meters-.*").load())
# five bytes of the schema registry's header
meters = raw.select(from_avro(expr("substring(value, 6)"), schema).alias("m")).select("m.device", "m.kwh")
meters.groupBy("device").sum("kwh").writeStream.outputMode("complete").queryName("kwh").format("console").start().awaitTermination()
