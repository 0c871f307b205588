from abc import ABC, abstractmethod
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
import pyspark.sql.functions as F


@dataclass
class Settings:
    input: str = "/in/trips"
    output: str = "/lake/trips"
    minutes: int = 10


class StreamingJob(ABC):
    def __init__(self, settings: Settings):
        self.settings = settings
        self.spark = SparkSession.builder.appName(type(self).__name__).getOrCreate()

    @abstractmethod
    def transform(self, df: DataFrame) -> DataFrame: ...

    def read(self) -> DataFrame:
        return self.spark.readStream.schema("taxi STRING, started TIMESTAMP, meters BIGINT").json(self.settings.input)

    def run(self):
        df = self.read().transform(self.transform)
        return df.writeStream.outputMode("update").format("console").queryName("trips").start()


class MetersByTaxi(StreamingJob):
    def transform(self, df):
        return df.groupBy("taxi", F.window("started", f"{self.settings.minutes} minutes")).agg(F.sum("meters"))


if __name__ == "__main__":
    MetersByTaxi(Settings()).run().awaitTermination()
