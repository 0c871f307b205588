"""Flux as pure state machines: events in, instructions out; no socket, clock, thread or chance.

Sources: the Flux thesis (chapters 3 to 5), the SIGMOD 2004 paper (fault tolerance) and the ICDE
2003 paper (load balancing). Every action of the protocol carries the id it has in
`docs/explanation/flux.md`, beside the line that implements it.

- `vocabulary`: names of copies, nodes, links, modes.
- `messages`: what travels over links, to the controller and through its log.
- `buffer`: the redundant store of units in flight with marks, cursors and eviction sets.
- `outlet`, `inlet`: what a producer knows of one consumer pair, a consumer of one producer pair.
- `ingress`, `segment`, `egress`: the three kinds of nodes of a dataflow.
- `controller`: membership, placement, the order of recovery.
"""
