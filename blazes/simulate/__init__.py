"""A whole dataflow under many schedules, with replicas and replays, uncoordinated and coordinated.

`compiled` says which gates the compiler puts where, `gate` is one at work, with the tracker and the
census of a running job, and `messages` is what comes to it beside records. `network` is what runs,
`world` one run of it, step by step, with every choice made by the caller; `drive` makes the
choices, all of them or some from a seed; `anomalies` compares runs and replicas; `hunt` looks for
what the labels predict, and for what the plan must exclude; `kept` writes a witness to a file and
reads it again; `show` tells its story.
"""
