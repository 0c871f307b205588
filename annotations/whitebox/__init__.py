"""White box: annotations derived from code instead of written by hand (Blazes section VII).

Front ends read the code of a component into one relational representation, and one pass says from
it what each input does to the output. Nothing is imported here: a front end costs something only
where it is used.

- `sql`: text over named `inputs` becomes a plan, without a JVM: `sql_dialect` parses it,
  `sql_tables`, `sql_select`, `sql_items`, `sql_expressions` and `sql_scope` read the tree;
  `settings`: those under which a query would mean something else.
- `pyspark_code`: functions and scripts, by the packages `connect` and, where they are not run,
  `following`, in a `sandbox` behind the walls of `confinement`, watched by a `supervisor`;
  `plan_json` carries the plans out of it, and `answer_cache` keeps them; `python_chance`: clocks,
  dice and services that Python asks. The package `bloom` reads rules in Bloom.
- `ir`: the representation; `datatypes`, `type_text`, `result_types`: its types; `functions`: all of
  Spark's, and what is claimed of each; `file_metadata`: the column that files have besides.
- `derive`: the pass, `annotate(plan)`, which gives a `derivation`. `facts` about rows go through
  the rules of `grouping` and `joining`, in one `context`, and are condensed by `sharing` where rows
  are used again; `keys`, `monotone`, `traits`: what these ask of expressions and sources; `words`:
  expressions as reasons show them.
- `splitting`, `repeats`: whether a query splits by a key, and what it does with repeats.
- `reducing`: the query without what its result does not use, which is asked for splitting.
- `code`: the derived outputs of a whole dataflow, each once; `components`, `deriving`: annotations
  out of them, written as `path_text`; `claims`: written annotations held against them.
- `checking`, `placement`, `code_checks`: mistakes in SQL, with their `places` in the file.
- `existing`: whole projects and scripts as graphs of datasets; `foreign_sql`: files of SQL that it
  names and does not read.
"""
