import logging
import signal
import sys
import time

from pyspark.sql import SparkSession

logging.basicConfig(level=logging.INFO)
log = logging.getLogger(__name__)
spark = SparkSession.builder.getOrCreate()
q = (spark.readStream.schema("a INT, b INT").csv("/in/numbers").where("a > b").writeStream
     .format("csv").option("checkpointLocation", "/c").queryName("greater").start("/out"))


def stop(*_):
    log.info("stopping")
    q.stop()
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
while q.isActive:
    log.info("status %s, progress %s", q.status, q.lastProgress)
    time.sleep(30)
