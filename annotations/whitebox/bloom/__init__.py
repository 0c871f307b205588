"""The front end for Bloom: modules of rules, and the annotations that follow from them.

    program = read(text, file="report.bloom")
    program.outputs("POOR") -> what was derived of each output of a module

Bloom is the language of section VII of the Blazes paper: collections that persist or do not, and
rules over them, so that whether a path is confluent and what it keeps can be read off the text. The
grammar is `bloom.lark`; docs/reference/bloom.md says what each construct means and gives.

- `program`: the entry, and the module that a component of a dataflow file names.
- `tokens`, `parser`, `shaping`: text becomes the `tree`.
- `modules`, `library`: collections and rules by their full names, with what modules include.
- `scope`, `relations`, `joins`, `groups`, `lattices`: the right side of a rule as a relation;
  `blocks`, `expressions`, `rows`: what a block makes of a row.
- `cycles`, `plans`: the rules of a module put together; `text`: the result as a dataflow file.
"""

from annotations.whitebox.bloom.program import Program, read, read_file

__all__ = ["Program", "read", "read_file"]
