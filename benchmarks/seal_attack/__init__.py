"""An attack on the seal layer: `python benchmarks/seal_faults.py`.

hostile     keys and names that are made to break things
traffic     endless input, made by a seed, and what must become of each record
accounts    where each record is, read off results, dead letters and ledgers
job         the job that is attacked, in a process of its own
driver      that process, seen from outside
damage      what can happen to a state folder
store       an object store that keeps the state, and answers badly
plants      mistakes to be planted in the job, to show that the attack finds them
"""
