"""A simulator of whole Flux jobs: leader, followers, sites, clients, as they run in processes.

- `kernel`: virtual time, processes, threads; `loop`: asyncio on it.
- `network`, `disk`, `zookeeper` and its `kazoo_client`: what processes speak to, and how it fails.
- `cluster`: a job; `faults`: what strikes it; `checks`: what has to hold all the same; `sweep`:
  many of them, each from a seed; `explore`: small ones, with faults at every moment.
- `mistakes`: planted in the product, to see that the sweep finds them; `mutations`: drawn ones.
"""
