"""The vocabulary of coordination analysis, the dataflow, and every way of reading one."""
