"""PySpark code read without Spark: the Connect client's plans, taken before they would be sent.

Spark's Connect client turns every operation on a DataFrame into a protobuf plan and sends it over a
gRPC channel.

- `channel`: such a channel, which ends in this process; `answers`: its answers; `counts`: the
  numbers of records that a function of `foreachBatch` is called with.
- `reader`: the process in which user code runs (`annotations.whitebox.pyspark_code`); `reading`: a
  session of it. `functions`, `scripts` and `pipelines` answer what is asked of it: they run the
  code, with `standin` and `databricks` in place of the platform, or let `following` go through its
  text; `project`: the datasets and flows of a pipeline.
- `relations`: plans in the representation of `annotations.whitebox.ir`. `leaves` and `sources` are
  what they read, `rows`, `state`, `grouping` and `code` the operations; `expressions`, `datatypes`,
  `scope`: what these consist of, `texts`: SQL inside of them.
- `carrying`: the text of a query in PySpark again: `frame_text` of its DataFrames,
  `expression_text` of what they compute, `definitions` of the functions of the user.

Nothing else of this package may be imported before that process has said how (`channel.prepare`).
"""
