"""PySpark code read without Spark: the Connect client's plans, taken before they would be sent.

Spark's Connect client turns every operation on a DataFrame into a protobuf plan and sends it over a
gRPC channel. `channel` is such a channel that ends in this process, `answers` what it answers, and
`relations` turns the plans into the representation of `annotations.whitebox.ir`. `scripts` runs a
script or notebook, whose text `program` gives; `project` plans a pipeline; what only their place
knows has stand-ins in `outside` and `databricks`; the text of functions that Spark calls is looked
through by `user_functions`, as a `module_text`: what they do with whole `batches`, or record by
record in `frame_loops`, and with `failures` of a write. `interpreter` follows the statements of a
script that is not run, `evaluation` its expressions and `calls` its calls, `branches` what it has
set where its ways part; beside them its `script_functions` and `classes`, what is `permitted`, the
`standard` library and the `configuration`; `values` says what is known of what they make. `counts`
are the numbers of records that a function of `foreachBatch` is called with. `carrying` gives the
text of a query in PySpark again: `frame_text` of its DataFrames, `expression_text` of what they
compute, `definitions` of the functions of the user. User code runs, so all of this happens in a
process of its own (`annotations.whitebox.pyspark_code`); nothing else of this package may be
imported before that process has said how (`channel.prepare`).
"""
