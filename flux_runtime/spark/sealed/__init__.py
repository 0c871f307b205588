"""Sealed units: records wait until their partition is complete, and go on once, whole.

In the order in which records meet them:

- `planning`: what a unit needs of its inputs; `gate`: the unit itself.
- `coverage`: what a micro-batch covers; `intake`: takes it; `chunks`: the buffer, one chunk for
  each micro-batch, `requests`: that of a requesting input; `undecided`: records of producers that
  may turn out to be outsiders.
- `counting`: rows of a chunk by key and producer; `recounting`: without repeats, or with digests.
- `releases`: the thread that releases what is complete.

The protocol itself is `flux_runtime.sealing`.
"""
