import json

import boto3
from pyspark.sql import SparkSession

ssm = boto3.client("ssm", region_name="eu-central-1")
bucket = ssm.get_parameter(Name="/lake/bucket", WithDecryption=True)["Parameter"]["Value"]
secret = json.loads(boto3.client("secretsmanager").get_secret_value(SecretId="db")["SecretString"])

spark = SparkSession.builder.getOrCreate()
df = spark.readStream.schema("id BIGINT, name STRING").parquet(f"s3a://{bucket}/people")
df.writeStream.format("parquet").option("path", f"s3a://{bucket}/copy").option(
    "checkpointLocation", f"s3a://{bucket}/chk").queryName("copy").start().awaitTermination()
