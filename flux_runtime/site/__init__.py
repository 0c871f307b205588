"""Flux in operating-system processes: sites that host the machines, and their controller.

- `config`, `process`: what a site or controller is given, and how it starts as a process.
- `key`, `handshake`, `finding`: who may speak to a site of this job, and how it finds the leader.
- `wire`, `codec`, `connection`, `blocking`: frames on one TCP connection per pair of sites, and
  connections of clients; `units`: frames of the resume protocol.
- `control_messages`: what sites, leader and clients tell each other, as one table.
- `host`: the machines of one site and what lies on their channels, without any I/O; `admission`:
  which frames of other sites it takes; `together`: one run of an operator for all partitions;
  `spilling`: partitions that take turns in memory.
- `resume_host`: the same under the resume protocol, which no job runs yet; `resume_ledger` and
  `resume_intake` go with it. `hosting`: what both hosts are asked; `copies`: what of a copy.
- `moving`, `keeping`: the state of a segment on its way to a standby, and in files.
- `ledger`: membership, layout and view changes as a function of the recorded events; `record`,
  `snapshot`: where the events are kept, and what takes their place.
- `collector`, `journal`, `intake`: the two ends of the dataflow.
- `worker`: `run_site(config)`; `shell`: the connections around its host; `site_state`: what it
  decides of leader, view and neighbours, without I/O; `site_steps`: what happens to it, and what it
  does; `steps`: of such tables; `statistics`, `idle`, `latency`: what it measures.
- `controller`: `run_controller(config)`; `leader`: one term of leading.
- `leader_state`: its decisions, without I/O; `leader_steps`: what happens to it, and what it
  does, as two tables. Parts of the state: `view` (what sites are told), `client_service` (clients),
  `balance` (rounds). `stage_log` and `reports` are what is written of the stage.
- `client`, `feeder`, `reader`: the outside.
"""
