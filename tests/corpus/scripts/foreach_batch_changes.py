import psycopg2
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
df = spark.readStream.schema("k INT, v DOUBLE").json("/a/df")
def truncates(batch, n):
    spark.sql("TRUNCATE TABLE x")
    batch.write.mode("append").saveAsTable("x")
def deletes(batch, n):
    DeltaTable.forName(spark, "y").delete("v > 1")
    batch.write.format("delta").mode("append").saveAsTable("y")
def executes(batch, n):
    with psycopg2.connect("x") as c:
        c.cursor().execute("DELETE FROM z")
    batch.write.format("jdbc").option("dbtable", "z").mode("append").save()
def removes(batch, n):
    dbutils.fs.rm("/w", True)
    batch.write.mode("append").parquet("/w")
def once(batch, n):
    batch.write.format("delta").option("txnAppId", "a").option("txnVersion", 7).mode("append").saveAsTable("once")
def numbered(batch, n):
    batch.write.format("delta").option("txnAppId", "a").option("txnVersion", n).mode("append").saveAsTable("numbered")
def modulo(batch, n):
    batch.write.format("delta").option("txnAppId", "a").option("txnVersion", n % 10).mode("append").saveAsTable("modulo")
def plain(batch, n):
    spark.sql("SET a = 1")
    batch.write.format("delta").mode("append").saveAsTable("plain")
for f in (truncates, deletes, executes, removes, once, numbered, modulo, plain):
    df.writeStream.foreachBatch(f).start()
