import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import explode, split, window

if len(sys.argv) < 4 or len(sys.argv) > 5:
    sys.exit("Usage: socket_windowed.py <host> <port> <window seconds> [<slide seconds>]")
host, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
slide = int(sys.argv[4]) if len(sys.argv) == 5 else size
if slide > size:
    print("<slide seconds> must be at most <window seconds>", file=sys.stderr)

spark = SparkSession.builder.appName("windowed words").getOrCreate()
lines = (
    spark.readStream.format("socket")
    .option("host", host)
    .option("port", port)
    .option("includeTimestamp", "true")
    .load()
)
words = lines.select(explode(split(lines.value, " ")).alias("word"), lines.timestamp)
counts = (
    words.groupBy(window(words.timestamp, f"{size} seconds", f"{slide} seconds"), words.word)
    .count()
    .orderBy("window")
)
counts.writeStream.outputMode("complete").format("console").option("truncate", "false").start().awaitTermination()
