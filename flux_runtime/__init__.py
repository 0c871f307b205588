"""The runtime of a compiled job, which installs this package and nothing else of Blazes.

- `spark`: the job itself, a graph of sources, units and sinks.
- `sealing`, `ordering`, `protocol`: seals, orders and Flux as state machines; `resume`: a smaller
  protocol of pairs; `operators`: what Flux stages compute.
- `site`: Flux in processes.
- `secrets`: options whose value is elsewhere; `past_range`: what a range beside a job is asked for.
- `zookeeper`, `commits`: agreement, on a cluster and on disk; `observe`: traces of a run.
"""
