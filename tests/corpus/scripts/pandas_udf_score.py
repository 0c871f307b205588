import mlflow
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf, struct

spark = SparkSession.builder.getOrCreate()
model = mlflow.pyfunc.spark_udf(spark, model_uri="models:/fraud/Production", result_type="double")


@pandas_udf("double")
def to_fahrenheit(celsius: pd.Series) -> pd.Series:
    return celsius * 9 / 5 + 32


weather = spark.readStream.schema("city STRING, celsius DOUBLE").json("/in/weather")
hot = weather.withColumn("fahrenheit", to_fahrenheit("celsius")).where("fahrenheit > 100")
hot.writeStream.queryName("hot").format("console").start()

cards = spark.readStream.schema("card STRING, amount DOUBLE, country STRING").json("/in/cards")
scored = cards.withColumn("score", model(struct("amount", "country")))
scored.writeStream.queryName("scored").format("console").start().awaitTermination()
