"""One order for all replicas, decided in ZooKeeper, and the recorded order of a single component.

- `places`: what a place in the order means; `proposals`: what a producer proposes and believes.
  Both are pure machines (OR-1 to OR-3).
- `scope`: where an order lives in ZooKeeper, and how far it may be forgotten; `proposer`:
  proposes a producer's batches there, each once (OR-2 to OR-7).
- `recorded`: the order of an unreplicated component, to which every replay comes (SE-11, OR-8).

Import the modules themselves; this package imports nothing.
"""
