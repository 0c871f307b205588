"""The traces of a run: the run folder, the metrics it holds, and reading it back.

- `run_folder`: what a job writes while it runs, in files that `thinned` keeps small; `metrics`:
  every metric that it writes; `ending`: what is left when it ends.
- `reader`: the folder read back, once or again and again; `stages`: its Flux stages;
  `exposition`: the newest values for Prometheus.
- `gates`: what sealed units wait for; `decisions`: what people decide about that; `dead_letters`:
  records that could not be processed.
- `state_copy`: a state in an object store as a folder that can be read; `audit`, `seal_audit`:
  whether what lies there is whole, while nothing runs.
"""
