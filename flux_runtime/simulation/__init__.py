"""A deterministic world for the protocol: same seed, same trace, byte for byte.

- `workload`: small dataflows whose operators notice every loss, repetition and reorder.
- `reference`: what a failure-free sequential run delivers to every partition and emits.
- `world`: nodes, links, controller and faults; `choices`: its possible steps, and one performed.
  Links lie in a `network`, over multiplexed `connections` if wanted; disks may be full.
- `checks`: one checker per concern, always on.
- `sweep`: random schedules (`plans`) and `faults` from a seed; what failed is `kept`.
- `explore`: all schedules of a small one of the `configurations`, over `product` states, which are
  made of `components` and `reactions`; `reduction` and `persistent` say what need not be tried.
- `timed`: the same machines under a virtual clock, with the cost of work, links and moves.
- `scenario`, `report`: one run under the clock from a seed or file, on one screen and in pictures.
- `pooled`: copies that work when their site's pooler calls them.
"""
