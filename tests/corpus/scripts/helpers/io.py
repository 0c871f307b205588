def read_events(spark, path):
    return spark.readStream.schema("kind STRING, at TIMESTAMP, valid BOOLEAN").json(path)


def write_console(df, name, mode="append"):
    return df.writeStream.outputMode(mode).format("console").queryName(name).start()
