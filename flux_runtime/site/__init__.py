"""Flux in operating-system processes: sites that host the machines, and their controller.

- `key`, `handshake`: who may speak to a site of this job.
- `wire`, `codec`, `connection`: frames on one TCP connection per pair of sites.
- `control_messages`: what sites, leader and clients tell each other, as one table.
- `moving`: the state of a segment on its way to a standby.
- `host`: the machines of one site and what lies on their channels, without any I/O.
- `ledger`: membership, layout and view changes as a function of the recorded events.
- `collector`, `journal`, `intake`: the two ends of the dataflow.
- `worker`: `run_site(config)`; `site_state`: what it decides of leader, view and neighbours,
  without I/O; `site_steps`: what happens to it, and what it does; `steps`: of such tables.
- `controller`: `run_controller(config)`; `leader`: one term of leading.
- `leader_state`: its decisions, without I/O; `leader_steps`: what happens to it, and what it
  does, as two tables. Parts of the state: `view` (what sites are told), `client_service` (clients),
  `balance` (rounds). `stage_log` and `reports` are what is written of the stage.
- `client`, `feeder`, `reader`: the outside.
"""
