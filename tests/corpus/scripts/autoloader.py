# Bronze: whatever lands in the bucket, with the file that it came from
source = "abfss://landing@account.dfs.core.windows.net/invoices/"
checkpoint = "dbfs:/checkpoints/invoices"

invoices = (
    spark.readStream.format("cloudFiles")
    .option("cloudFiles.format", "json")
    .option("cloudFiles.inferColumnTypes", "true")
    .option("cloudFiles.schemaLocation", checkpoint)
    .load(source)
    .selectExpr("*", "_metadata.file_path AS source_file")
)

(
    invoices.writeStream.option("checkpointLocation", checkpoint)
    .option("mergeSchema", "true")
    .trigger(availableNow=True)
    .toTable("bronze.invoices")
)
