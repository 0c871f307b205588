from pyspark import pipelines as dp

dp.create_sink("to_kafka", "kafka", {"kafka.bootstrap.servers": "b:9092", "topic": "alerts"})


@dp.append_flow(target="to_kafka")
def alerts():
    return spark.readStream.table("monitoring.metrics").selectExpr("to_json(struct(*)) AS value")
