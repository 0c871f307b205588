"""The laboratory: Flux in a deterministic world. Same seed, same trace, byte for byte.

Jobs never import it, and it is installed by itself (`pip install ./flux_lab`). `testing` is for
those who write an operator; the rest proves the protocol.

- `testing`: tries an operator of one's own.
- `workload`, `bulk`, `example`: small dataflows whose operators notice every loss, repetition and
  reorder; rows that only count; the papers' running example.
- `reference`: what a failure-free sequential run delivers to every partition and emits.
- `world_state`: nodes, links, controller and faults; `world`: its possible `steps`, and one
  performed; `reaction`: what one node does by itself. Links lie in a `network`, over multiplexed
  `connections` if wanted; disks lie in memory and may be full
  (`memory_storage`).
- `checks`: one checker per concern, always on; `seal_invariants`: those of the seal tracker.
- `sweep`: random schedules (`plans`) and `faults` from a seed, and files of what failed.
- `bad_records`: random runs with records that cannot be processed; `query_states`: of SQL that
  keeps less than its records; `processors`: of programs for `StatefulProcessor`; `balance_loads`:
  of the balancer against loads.
- `explore`: all schedules of a small one of the `configurations`, by a `search` over `product`
  states, which are made of `components` and `reactions`; `reduction` and `persistent` say what need
  not be tried.
- `timed`: the same machines under a virtual `clock`, with the `costs` of work, links and moves,
  `disks` that are slow, and `rounds` of balancing; `share`, `stage`: models of the papers' cluster.
- `scenario`, `report`: one run under the clock from a seed or file, on one screen and in
  `pictures`; `spacetime`: who sent whom what and when.
- `actions`: the list of the protocol's actions, held to code, tests and mutations.
- `resume`: the world of the smaller pair protocol, which jobs run.
- `papers`: the papers' protocol in the sites of whole jobs, beside the one that jobs run.
- `shell`: whole jobs, leader, sites and clients, on a simulated system that fails.
- `control_fuzz`: attacks with control messages on a leader and sites that run.
- `local_sites`, `ensemble`: sites and ZooKeeper servers as processes of this machine.
"""
