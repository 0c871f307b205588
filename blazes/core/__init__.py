"""The analysis core: how every stream of a dataflow gets its label.

In the order in which a dataflow meets them: `graph` joins its interfaces, states, paths and streams
to named nodes, and puts them in order. `propagation` carries labels along them, from the sources to
the sinks; what a path does to a label is asked of `effects`, which interprets the tables in
`rules` (what a rule is: `rule_kinds`), and how often records come of `deliveries`. For a plan
`limits` says, from the sinks to the sources, what each node may carry at most.

Around it: `blazes.analysis` makes labels and derivations of it; `blazes.repairs`, `blazes.seals`
and `blazes.coordination` the plan.
"""
