"""Bookings, watched in four ways that only a function in Python can say."""

import json
import os
from collections.abc import Iterator

import pandas as pd
import pyspark.sql.functions as F
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StatefulProcessor

LAKE = "lake/watched"

ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark = SparkSession.builder.getOrCreate()
spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)


def known_kinds():
    return spark.createDataFrame([("debit", -1), ("credit", 1)], "kind STRING, sign INT")


def add_up(batch, number):
    """Sums of a micro-batch, which only its number tells from those of another one."""
    sums = batch.join(known_kinds(), "kind").groupBy("account").agg(F.expr("sum(cents * sign) AS cents"))
    sums.withColumn("batch", F.lit(number)).write.mode("append").json(f"{LAKE}/sums")


class Notes:
    def open(self, partition_id, epoch_id):
        os.makedirs(f"{LAKE}/notes", exist_ok=True)
        self.file = open(f"{LAKE}/notes/{epoch_id}-{partition_id}.json", "w")
        return True

    def process(self, row):
        self.file.write(json.dumps({"note": f"{row.account} {row.cents}"}) + "\n")

    def close(self, error):
        self.file.close()


class Highest(StatefulProcessor):
    def init(self, handle):
        self.highest = handle.getValueState("highest", "cents BIGINT")

    def handleInputRows(self, key, rows, timerValues) -> Iterator[pd.DataFrame]:
        before = self.highest.get()[0] if self.highest.exists() else 0
        cents = max(before, *(int(frame["cents"].max()) for frame in rows))
        self.highest.update((cents,))
        yield pd.DataFrame({"account": [key[0]], "highest": [cents]})

    def close(self):
        pass


def count(key, frames, state):
    number = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
    state.update((number,))
    yield pd.DataFrame({"account": [key[0]], "number": [number]})


def append(batch, number):
    batch.write.mode("append").json(f"{LAKE}/highest")


bookings = (
    spark.readStream.schema("account STRING, cents BIGINT, kind STRING")
    .option("maxFilesPerTrigger", 1)
    .json("data/bookings")
)
debits = bookings.where("kind = 'debit'")
highest = bookings.groupBy("account").transformWithStateInPandas(
    statefulProcessor=Highest(),
    outputStructType="account STRING, highest BIGINT",
    outputMode="Update",
    timeMode="None",
)
counted = bookings.groupBy("account").applyInPandasWithState(
    count, "account STRING, number LONG", "number LONG", "append", "NoTimeout"
)
queries = {
    "sums": bookings.writeStream.foreachBatch(add_up),
    "notes": debits.writeStream.foreach(Notes()),
    "highest": highest.writeStream.outputMode("update").foreachBatch(append),
    "counted": counted.writeStream.format("json").option("path", f"{LAKE}/counted"),
}
for name, query in queries.items():
    query = query.queryName(name).option("checkpointLocation", f"checkpoints/{name}")
    query.trigger(availableNow=True).start().awaitTermination()
