"""Flux stages: components that run as pairs of copies on sites, which Spark hosts (`Job.flux`).

- `components`: what a stage consists of, as the job declares it and as sites are told.
- `stage`: the stage as a unit of the job; `sites`: its sites as tasks of Spark, spread over
  the executors, with controllers beside the driver; `site_task`: what such a task does; `warm_up`:
  new executors, made ready for micro-batches.
- `ordered_input`: an input's micro-batches, staged (`ingress_staging`) and given their place in the
  order; `ordered_channel`: that order, with the contents in files.
- `site_results`: commits what the sites put out; `order_checkpoint`: how far the order is kept as
  state instead.

The protocol itself is `flux_runtime.protocol`, the sites are `flux_runtime.site`.
"""
