from typing import Any, Iterator, Tuple

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

spark = SparkSession.builder.appName("sessions").getOrCreate()


def count_events(key: Tuple[Any], pdfs: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    if state.hasTimedOut:
        (count,) = state.get
        state.remove()
        yield pd.DataFrame({"user": [key[0]], "events": [count]})
    else:
        n = sum(len(pdf) for pdf in pdfs)
        (old,) = state.get if state.exists else (0,)
        state.update((old + n,))
        state.setTimeoutDuration(10 * 60 * 1000)
        yield pd.DataFrame()


events = spark.readStream.schema("user STRING, at TIMESTAMP").json("/in/events")
sessions = events.groupBy("user").applyInPandasWithState(
    count_events,
    outputStructType="user STRING, events LONG",
    stateStructType="count LONG",
    outputMode="update",
    timeoutConf=GroupStateTimeout.ProcessingTimeTimeout,
)
sessions.writeStream.outputMode("update").format("console").start().awaitTermination()
