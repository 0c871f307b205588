"""The analysis core: how every stream of a dataflow gets its label.

- `graph`: interfaces, states, paths and streams of a dataflow as named nodes, in order.
- `propagation`: labels carried along them, from the sources to the sinks.
- `effects`: what a path does to a label, by the tables in `rules`; `rule_kinds`: what a rule is.
- `deliveries`: how often records come.
- `limits`: what each node may carry at most, from the sinks to the sources.

Around it: `blazes.analysis` makes labels and derivations of it; `blazes.repairs`, `blazes.seals`
and `blazes.coordination` the plan.
"""
