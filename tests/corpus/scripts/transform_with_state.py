from typing import Iterator

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, StructField, StructType

out = StructType([StructField("device", StringType()), StructField("total", LongType())])
state_schema = StructType([StructField("total", LongType())])


class RunningTotal(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", state_schema)

    def handleInputRows(self, key, rows, timerValues) -> Iterator[pd.DataFrame]:
        total = self._total.get()[0] if self._total.exists() else 0
        for frame in rows:
            total += int(frame["value"].sum())
        self._total.update((total,))
        yield pd.DataFrame({"device": [key[0]], "total": [total]})

    def close(self) -> None:
        pass


spark = SparkSession.builder.config(
    "spark.sql.streaming.stateStore.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
).getOrCreate()
readings = spark.readStream.schema("device STRING, value BIGINT").json("/in/readings")
totals = readings.groupBy("device").transformWithStateInPandas(
    statefulProcessor=RunningTotal(), outputStructType=out, outputMode="Update", timeMode="None"
)
totals.writeStream.outputMode("update").format("memory").queryName("totals").start().awaitTermination()
