"""Units whose records accumulate durably and are read again (`Job.stateful`).

- `unit`: the unit; `catalogue`: what it has kept and done, in one file that is the truth.
- `records`: what is kept of each input, as `parts`: sorted `runs` or folders of Parquet files.
- `logical_plan`, `relevance`: which kept records a micro-batch can need, worked out from the
  component's plan; `access`: how the unit gets at them.
- `emitted`: what was put out, so that only what is new is put out.
"""
