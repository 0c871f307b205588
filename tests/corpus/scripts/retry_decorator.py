import time
from functools import wraps
from pyspark.sql import SparkSession

def retry(times, wait=1.0):
    def decorate(function):
        @wraps(function)
        def inner(*args, **kwargs):
            for attempt in range(times):
                try:
                    return function(*args, **kwargs)
                except Exception as error:
                    if attempt == times - 1:
                        raise
                    time.sleep(wait * 2 ** attempt)
        return inner
    return decorate

spark = SparkSession.builder.getOrCreate()

@retry(times=3)
def read(path):
    return spark.readStream.schema("user STRING, page STRING").json(path)

@retry(3)
def save(batch, number):
    batch.write.mode("append").parquet("/lake/clicks")

read("/in/clicks").filter("page IS NOT NULL").writeStream.foreachBatch(save).option("checkpointLocation", "/cp").start().awaitTermination()
