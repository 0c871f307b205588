"""The ends of a job: what it reads, and what it puts out.

- `source`: any Spark format, with its punctuations; `kafka_source`: Kafka without its jar;
  `avro`: values of messages in Avro; `unreadable`: records that cannot be read; `watermark`:
  records that Spark's watermark keeps out; `dead_letters`: where all of these go.
- `sinks`: what takes the commits of a unit; `commit`: as a folder that gets its place in one step;
  `tables`, `delta`, `topics`: as rows of a database's or a Delta table, messages of Kafka, in one
  transaction with their number; `driver_rows`: rows that the driver holds, written without a job
  of Spark; `outputs`: the sinks and channels of a unit.
- `retention`: channels are checked when they are read, and lose what all readers are done with.
"""
