"""A deterministic world for the protocol: same seed, same trace, byte for byte.

- `workload`: small dataflows whose operators notice every loss, repetition and reorder.
- `reference`: what a failure-free sequential run delivers to every partition and emits.
- `world`: nodes, links, controller and faults; it lists the possible next steps and performs one.
- `checks`: one checker per concern, always on.
- `sweep`: random schedules and faults from a seed.
- `explore`: all schedules of a small configuration.
- `timed`: the same machines under a virtual clock, with the cost of work, links and moves.
"""
