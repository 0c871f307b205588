"""Flux as pure state machines: events in, instructions out; no socket, clock, thread or chance.

Sources: the Flux thesis (chapters 3 to 5), the SIGMOD 2004 paper (fault tolerance) and the ICDE
2003 paper (load balancing). Every action of the protocol carries the id it has in
`docs/explanation/flux.md`, beside the line that implements it.

- `vocabulary`: names of copies, nodes, links, modes; `messages`: what travels between nodes, to the
  controller and through its log; `dataflow`: what is asked of operators.
- `buffer`: the redundant store of units in flight, with marks, cursors and eviction sets.
- `outlet`, `inlet`: what a producer knows of one consumer pair, a consumer of one producer pair
  (`neighbour`: what both know); `producer`, `consumer`: all of them; inputs are merged.
- `boundary`: what every node does with links and log; `ends`: ingress and egress; `segment`: a copy
  of a pair. Its `back` is the operator's state.
- `controller`: membership and placement; `orders`: what it orders; `replica_sets`: whole cluster
  pairs.
- `channels`: one connection per pair of sites.
- `balancer`, `balancing`, `collection`: rounds of balancing, policies, and how long to count;
  `worth`: which moves pay.
- `spill`: partitions that leave memory.
"""
