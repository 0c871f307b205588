"""The parts of Flux beside a pair protocol, without socket, clock, thread or chance.

Sources: the Flux thesis (chapters 3 to 5), the SIGMOD 2004 paper (fault tolerance) and the ICDE
2003 paper (load balancing). Every action carries the id it has in `docs/explanation/flux.md`,
beside the line that implements it. `flux_runtime.resume` is the pair protocol of jobs; that of the
papers is in the laboratory (`flux_lab.papers.protocol`).

- `vocabulary`: names of copies, nodes and pairs, and the shape of a dataflow; `dataflow`: what is
  asked of operators; `orders`: what a controller knows of copies, and orders.
- `balancer`, `balancing`, `collection`: rounds of balancing, policies, and how long to count;
  `worth`: which moves pay.
- `spill`: partitions that leave memory.
"""
