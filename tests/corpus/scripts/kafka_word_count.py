import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import explode, split

if len(sys.argv) != 4:
    print("""
    Usage: kafka_word_count.py <bootstrap-servers> <subscribe-type> <topics>
    """, file=sys.stderr)
    sys.exit(-1)

bootstrapServers = sys.argv[1]
subscribeType = sys.argv[2]
topics = sys.argv[3]

spark = SparkSession.builder.appName("KafkaWords").getOrCreate()

lines = (spark.readStream.format("kafka")
         .option("kafka.bootstrap.servers", bootstrapServers)
         .option(subscribeType, topics)
         .load()
         .selectExpr("CAST(value AS STRING)"))

words = lines.select(explode(split(lines.value, " ")).alias("word"))
wordCounts = words.groupBy("word").count()
wordCounts.writeStream.outputMode("complete").format("console").start().awaitTermination()
