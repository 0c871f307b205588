from jobs.base import StreamJob
from pyspark.sql import DataFrame, functions as F

class Fraud(StreamJob):
    name = "fraud"
    schema = "card STRING, amount DECIMAL(10,2), at TIMESTAMP"

    def transform(self, frame: DataFrame) -> DataFrame:
        return frame.where(F.col("amount") > 1000)

class Totals(StreamJob):
    name = "totals"
    schema = "card STRING, amount DECIMAL(10,2), at TIMESTAMP"
    mode = "update"

    def transform(self, frame):
        return frame.groupBy("card").agg(F.sum("amount").alias("total"))

JOBS = {job.name: job for job in (Fraud, Totals)}
for name, job in JOBS.items():
    job().run()
