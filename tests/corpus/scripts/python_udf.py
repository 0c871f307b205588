import hashlib

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf
from pyspark.sql.types import StringType


@udf(returnType=StringType())
def pseudonym(email):
    return None if email is None else hashlib.sha256(email.lower().encode()).hexdigest()


@udf("int")
def domain_length(email):
    return len(email.split("@")[-1])


spark = SparkSession.builder.getOrCreate()
users = spark.readStream.schema("email STRING, country STRING").json("/in/users")
masked = users.select(pseudonym("email").alias("id"), domain_length(col("email")).alias("n"), "country")
masked.writeStream.format("parquet").start("/lake/users", checkpointLocation="/chk/users").awaitTermination()
