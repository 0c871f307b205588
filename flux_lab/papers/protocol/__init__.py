"""The papers' protocol as pure state machines, without socket, clock, thread or chance.

Sources: the Flux thesis (chapters 3 to 5) and the SIGMOD 2004 paper. Every action of the protocol
carries the id it has in `docs/explanation/flux.md`, beside the line that implements it. Jobs run a
smaller one (`flux_runtime.resume`).

- `messages`: what travels between nodes, to the controller and through its log.
- `buffer`: the redundant store of units in flight, with marks, cursors and eviction sets.
- `outlet`, `inlet`: what a producer knows of one consumer pair, a consumer of one producer pair
  (`neighbour`: what both know); `producer`, `consumer`: all of them; inputs are merged.
- `boundary`: what every node does with links and log; `ends`: ingress and egress; `segment`: a copy
  of a pair. Its `back` is the operator's state.
- `controller`: membership and placement, also of whole cluster pairs.
- `channels`: one connection per pair of sites.
"""
