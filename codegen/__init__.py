"""From a coordination plan to a PySpark project: stages, the text of the job, the folder.

In the order in which a plan meets them:

- `judge`: what can be compiled, by all that follow; `codes`: what is refused.
- `deduplication`: what is done about repeats, as components; `drafts`: what each output becomes,
  with the Python functions that `operators` looks up; `network`: who feeds whom; `cycles`: in
  which order; `streaming`: which SQL Spark does not run over a stream.
- `gates`, `seals`: which outputs wait, and how punctuations reach them; `sites`: what runs on
  Flux sites, as far as `duckdb_sql` can evaluate it there and `site_python` asks for no more;
  `ends`: sources and sinks.
- `stages`, `lowering`: drafts become stages, whose classes are in `model`; `partial`,
  `summaries`: aggregates in place of records; `site_sql`: what Flux sites evaluate as Spark does;
  `site_state`: what they keep for it, by `deltas` of new records and `windows` of event time;
  `wording`: what each stage does, in words.
- `emit`, `build`: the text of the job, with `names`, `literals`, `sql_text`; `explain`, `readme`:
  the stages for people; `needs`: what else the job takes; `settings`: those of Spark that it holds
  to; `project`: the folder; `bundle`, `deployment`: all that a machine with Spark alone needs, and
  how the job is started there.
"""
