import dlt
from pyspark.sql import functions as F

REGIONS = {"eu": "/landing/eu", "us": "/landing/us"}


def ingest(region, path):
    @dlt.table(name=f"bronze_{region}")
    def bronze():
        return (spark.readStream.schema("id STRING, amount BIGINT").json(path)
                .withColumn("region", F.lit(region)))


for region, path in REGIONS.items():
    ingest(region, path)

dlt.create_streaming_table(name="everything")

for region in REGIONS:
    @dlt.append_flow(target="everything", name=f"from_{region}")
    def flow(region=region):
        return dlt.read_stream(f"bronze_{region}")
