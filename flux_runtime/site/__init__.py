"""Flux in operating-system processes: sites that host the machines, and their controller.

- `config`, `process`: what a site or controller is given, and how it starts as a process.
- `key`, `handshake`, `finding`: who may speak to a site of this job, and how it finds the leader.
- `wire`, `codec`, `connection`, `blocking`: frames on one TCP connection per pair of sites, and
  connections of clients; `units`: frames of the resume protocol.
- `control_messages`: what sites, leader and clients tell each other, as one table.
- `resume_host`: the copies of one site, without any I/O; `together`: one run of an operator for all
  partitions; `spilling`: partitions that take turns in memory.
- `hosting`: what processes are made of, which the laboratory puts another protocol in place of;
  `copies`: what others see of a copy.
- `moving`, `keeping`: the state of a copy on its way to another one, and in files.
- `ledger`: membership, layout and view changes as a function of the recorded events; `record`,
  `snapshot`: where the events are kept, and what takes their place. `resume_ledger`: that of jobs.
- `collector`, `journal`, `intake`: the two ends of the dataflow.
- `worker`: `run_site(config)`; `shell`: the connections around its host; `site_state`: what it
  decides of leader, view and neighbours, without I/O; `site_steps`: what happens to it, and what it
  does; `steps`: of such tables; `statistics`, `idle`, `latency`: what it measures.
- `controller`: `run_controller(config)`; `leader`: one term of leading.
- `leader_state`: its decisions, without I/O; `leader_steps`: what happens to it, and what it
  does, as two tables. Parts of the state: `view` (what sites are told), `client_service` (clients),
  `balance` (rounds). `stage_log` is what is written of the stage.
- `client`, `feeder`, `reader`: the outside.
"""
