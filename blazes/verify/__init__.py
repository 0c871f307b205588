"""Annotations put to the test: the real code on small inputs, in many orders and batchings.

`operators` says what code an output runs, `values` makes inputs for it, `claims` lists what the
annotations claim, `experiment` turns a claim into two ways of running the same records that must
come to the same outcome, `search` looks for records with which they do not, `shrink` makes them
few. `duck` and `spark` run the code: the first is fast and refuses what it is not known to compute
as Spark does, the second is the judge of every refutation.
"""
