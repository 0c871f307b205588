"""The seal protocol: whole partitions, released once, after every producer has voted.

- `events`: what happens to a gate, and what follows; `keys`: key values as text.
- `tracker`: the protocol, pure and without I/O; `partition`: one of its partitions; `report`:
  what people are told about it.
- `ledger`: the tracker with every change on disk; `batch_log`: its changes as files, where they are
  kept elsewhere; `storage`, `manifest`: files that are checked
  before they are believed; `digest`: the order-independent digest that a punctuation may carry.

`flux_runtime.spark.sealed.gate` drives them.
"""
