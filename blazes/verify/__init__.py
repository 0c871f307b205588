"""Annotations put to the test: the real code on small inputs, in many orders and batchings.

- `operators`: the code that an output runs; `claims`: what the annotations claim of it, with
  `weights`, the heaviest first.
- `values`, `constants`, `recorded`: inputs for it, random, near its constants, and seen in files;
  `records`: their form.
- `experiment`: a claim as two `ways` of running the same records that must come to the same.
- `search`: looks for records with which they do not; `shrink`: makes them few.
- `duckdb_engine`, `spark`: run the code. The first is fast and refuses what it is not known to
  compute as Spark does, the second is the judge of every refutation.
- `verify`: all claims of a dataflow; `findings`: a verdict for each; `show`: for people.
"""
