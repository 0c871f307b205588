"""Coordination analysis of dataflows: labels, the plan, reports and the command line.

After Alvaro, Conway, Hellerstein and Maier, "Blazes: Coordination Analysis for Distributed
Programs" (ICDE 2014). A dataflow of `annotations` becomes:

- `analysis`: labels and derivations of every stream, made by the package `core`;
  `delivery_checks`: assumptions about repeats, and dangers.
- `coordination`: the plan, a seal, an order or nothing for every path. `seals` finds keys to wait
  on, `repairs` what to do about records that come again, `choice` how much of the plan a job gets.
- `advice`, `advice_text`: changes of the dataflow that would make coordination needless.

`report` says it in words and data, `document` shows it. `verify` tries annotations out, `simulate`
whole dataflows, `demo` shows what goes wrong without coordination; `cli` is the command line.
"""
