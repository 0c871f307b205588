from abc import ABC, abstractmethod
from pyspark.sql import SparkSession, DataFrame

class StreamJob(ABC):
    name: str
    schema: str
    mode = "append"

    def __init__(self):
        self.spark = SparkSession.builder.appName(self.name).getOrCreate()

    @abstractmethod
    def transform(self, frame: DataFrame) -> DataFrame: ...

    def read(self) -> DataFrame:
        return self.spark.readStream.schema(self.schema).json(f"/in/{self.name}")

    def run(self):
        return (self.transform(self.read()).writeStream.outputMode(self.mode).queryName(self.name)
            .format("delta").option("checkpointLocation", f"/cp/{self.name}").start(f"/out/{self.name}"))
