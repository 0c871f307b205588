"""Two streams are joined within an hour, by a class with settings of its own."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


@dataclass
class Settings:
    minutes: int = 60
    out: str = "lake/matched"


class Matching:
    def __init__(self, settings: Settings):
        self.settings = settings
        self.spark = SparkSession.builder.appName(type(self).__name__).getOrCreate()

    def read(self, name: str, schema: str) -> DataFrame:
        frame = self.spark.readStream.schema(schema).json(f"data/{name}")
        return frame.withWatermark("at", f"{self.settings.minutes} minutes")

    def run(self):
        orders = self.read("orders", "id BIGINT, at TIMESTAMP, cents BIGINT")
        payments = self.read("payments", "order_id BIGINT, at TIMESTAMP, method STRING")
        within = F.expr(f"INTERVAL {self.settings.minutes} MINUTES")
        paid = orders.join(
            payments,
            (orders.id == payments.order_id)
            & (payments.at >= orders.at)
            & (payments.at <= orders.at + within),
        ).select(
            orders["id"], "cents", payments["at"].alias("paid_at"), F.upper("method").alias("by")
        )
        return (
            paid.writeStream.format("json")
            .outputMode("append")
            .option("checkpointLocation", "lake/_matched")
            .trigger(availableNow=True)
            .start(self.settings.out)
        )


if __name__ == "__main__":
    Matching(Settings()).run().awaitTermination()
