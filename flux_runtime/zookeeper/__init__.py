"""ZooKeeper for coordination: a server for those who have none, a client, the producer registry.

Import the modules themselves; this package imports nothing, so that a job that needs no ZooKeeper
does not pay for it.
"""
