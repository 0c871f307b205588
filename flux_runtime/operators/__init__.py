"""Operators for Flux segments, vectorised over Arrow record batches.

Every operator has `process(batch)`, `get_state()`, `install_state(state)` and `state_size()`
(`flux_runtime.protocol.dataflow.Operator`). It is a deterministic function of the sequence of its
input: no wall clock, no randomness, no iteration over unordered sets (DET-1 to DET-4).

- `rows`: sequence numbers as columns, merging, stable partitioning; `grouping`: keys as dense
  numbers.
- `stateless`: filter, map.
- `window`: windowed group-by (history and slide, by count or by time).
- `session`: sessions from start and end events.
- `join`: symmetric hash join with a window; requests answered from what has accumulated.
- `query`: a component's SQL, in DuckDB's `evaluation`, over `kept_rows` and windows of
  `event_time`.
- `batch_function`: a function of the user's on batches.
- `processor`: PySpark's `StatefulProcessor`, with its handle in `processor_handle`, variables and
  timers in `processor_state`, values in `processor_values`.
- `unprocessable`: records that an operator cannot process, as dead letters among its results.
- `partitioned`: one run of an operator over several partitions; `packing`: states as
  bytes that hold data and no code; `state_file`: states in files;
  `components`: what every site makes for itself of a job's components.
"""

from flux_runtime.operators.join import Answer, SymmetricHashJoin
from flux_runtime.operators.session import Sessions
from flux_runtime.operators.stateless import Filter, Map
from flux_runtime.operators.window import CountWindow, TimeWindow

__all__ = [
    "Answer",
    "CountWindow",
    "Filter",
    "Map",
    "Sessions",
    "SymmetricHashJoin",
    "TimeWindow",
]
