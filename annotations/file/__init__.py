"""The dataflow file: read with all its mistakes at once, and written to without losing its layout.

- `reader`: `load(path)` and `loads(text)`; every other module is a part of it or writes files.
- `shapes`, `records`: what a value of YAML may look like; `keys`: every key of the file, with its
  shape; `notation`, `compact`, `formats`: how values are written; `avro`: the
  columns of messages. `schema`, `reference` and `python_reference` are made from the keys.
- `components`, `unannotated`, `streams`, `connect`: what is built of them; `checks`: what has to
  hold between them.
- `python_module`: the same from a module in Python, whose declarations (`python_declarations`,
  `python_values`, `python_streams`) become the tree that a file gives.
- `splits`: questions to the code behind a path, asked by the analysis; `completion`: what the
  code adds to a path that is written in part.
- `insertions`, `writing`, `additions`: what commands write into a file; `importing`: a file made
  of a Spark project, and `import_code` the functions beside it.
"""

from annotations.file.reader import load, loads

__all__ = ["load", "loads"]
