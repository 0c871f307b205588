"""Python code followed without being run: a script by its syntax tree, functions by their text.

- `interpreter`: a script that is not run. It follows the statements, `evaluation` the expressions
  and `calls` the calls; `branches` keeps what may have been set where ways part and meet again.
- `script_functions`, `classes`: functions and classes of the script, and objects of these;
  `values`: what is known of a value.
- `permitted`: the part of PySpark that is called for real; `standard`: the parts of Python's own
  library that are worked out here; `outside`: stand-ins for what only the place knows where a
  script runs; `configuration`: files of settings beside it.
- `program`: the Python text of a script or notebook, `statements`: the SQL files of a pipeline,
  `module_text`: functions, classes and names of a module, `places`: where in them a plan was made.
- `user_functions`: what the text of a function shows that Spark calls: what it does with whole
  `batches`, or record by record in `frame_loops`, and which `failures` of a write it hides.

Nothing of PySpark may be imported before the process has been prepared for that
(`annotations.whitebox.connect.channel`).
"""
