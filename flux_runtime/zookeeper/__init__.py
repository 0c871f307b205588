"""ZooKeeper for coordination: a server for those who have none, a client, the producer registry.

- `java`, `process`, `watchdog`, `embedded`, `keeper`: a server from the jars that PySpark ships:
  found, started, ended with its starter, started again when it dies. `errors`: what can go wrong.
- `access`: an ensemble, and how it lets a client in; `client`: a session; `nodes`: requests that
  may be repeated; `znode_names`: keys as names; `watcher`, `tail`: what changes, and numbered
  znodes without gaps.
- `registry`: the producers of partitions; `registrations_file` fills it, `registration_sweep`
  empties it.
- `epoch`: the newest driver of a job; `membership`, `election`, `control`: the sites of a Flux
  stage, who leads them, and what the leader has decided.

Import the modules themselves; this package imports nothing, so that a job that needs no ZooKeeper
does not pay for it.
"""
