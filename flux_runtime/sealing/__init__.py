"""The seal protocol: whole partitions, released once, after every producer has voted.

`tracker` is the protocol itself, pure and without I/O; `journal` makes it durable; `digest` is the
order-independent digest that a punctuation may carry. `flux_runtime.spark.sealed.gate` drives them.
"""
