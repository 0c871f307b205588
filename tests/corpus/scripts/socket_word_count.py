r"""
 Counts words in UTF8 encoded, '\n' delimited text received from the network.
 Usage: socket_word_count.py <hostname> <port>
"""
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import explode, split

if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("Usage: socket_word_count.py <hostname> <port>", file=sys.stderr)
        sys.exit(-1)

    host = sys.argv[1]
    port = int(sys.argv[2])

    spark = SparkSession.builder.appName("SocketWordCount").getOrCreate()

    lines = spark.readStream.format("socket").option("host", host).option("port", port).load()
    words = lines.select(explode(split(lines.value, " ")).alias("word"))
    totals = words.groupBy("word").count()

    query = totals.writeStream.outputMode("complete").format("console").start()
    query.awaitTermination()
