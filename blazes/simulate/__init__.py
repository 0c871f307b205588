"""A whole dataflow under many schedules, with replicas and replays, uncoordinated and coordinated.

- `compiled`: which gates the compiler puts where; `gate`: one at work, with the tracker and the
  census of a running job; `messages`: what comes to it beside records.
- `network`: the components' code, wired; `world`: one run of it, step by step, with every choice
  made by the caller.
- `drive`: makes the choices, all of them or some from a seed.
- `anomalies`: compares runs and replicas; `hunt`: looks for those that the labels predict, and for
  those that the plan must exclude; `simulation`: both, one after the other.
- `repro`: a witness in a file, to be run again; `show`: its story.
"""
