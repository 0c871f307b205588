"""The vocabulary of coordination analysis, the dataflow, and every way of reading one.

- `vocabulary`: annotations, gates, keys, labels; `dependencies`: what attributes determine;
  `delivery`: how often a record comes.
- `dataflow`: the value that every way of reading gives, and that all later stages read.
- `diagnostics`: mistakes and warnings, with place and remedy; `phrases`: names in their
  sentences.
- `positions`, `syntax_errors`: YAML as a tree that knows its places, and what a parser complains
  of.
- `type_names`: the names of Spark SQL's types.
- `gc_pause`: Python's cycle collector, off while a large result is built.
- Packages: `whitebox` reads annotations off code, `file` reads and writes the dataflow file.
"""
