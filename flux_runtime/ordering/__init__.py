"""Ordering: one order for all replicas, decided in ZooKeeper (OR-1 to OR-7, OR-9), and the recorded
order of an unreplicated component (OR-8).

Import the modules themselves; this package imports nothing.
"""
