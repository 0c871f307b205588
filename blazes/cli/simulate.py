"""Run the whole dataflow under many schedules, with replicas and replays, and show what differs.

First without coordination: the anomalies that the labels predict are looked for, and shown as a
schedule to read. Then under the plan: none may be found. There, outputs that wait for complete
partitions have the gates of the compiled job, which count and vote as in a running one, while
producers punctuate, records come late and twice, and gates crash. Inputs are generated from the
sources' schemas; small ones are run in every interleaving where there are no gates, others under
schedules from a seed. SQL runs on DuckDB where that is known to mean the same, everything else on
local Spark: Python functions run, with the rights and the environment of whoever starts this.

exit status: 0 where nothing worse than the labels was seen; 1 where something was (it is written
to a file, and --replay shows it again); 2 for a bad file or bad usage.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from annotations.vocabulary import Label
from blazes.cli import CommandError, one_of, options
from blazes.cli.execution import limits_for
from blazes.cli.verify import positive, session
from blazes.verify.experiment import Engine

FORMATS = ("text", "json")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_file(parser)
    parser.add_argument(
        "--target",
        type=one_of(*options.TARGETS),
        default="async",
        metavar="|".join(options.TARGETS),
        help="the worst label that the plan tolerates at the sinks (default: async)",
    )
    parser.add_argument(
        "--inputs", type=positive, default=200, metavar="N", help="to run, each way (default: 200)"
    )
    parser.add_argument(
        "--time",
        type=positive,
        default=60,
        metavar="SECONDS",
        help="for everything, Spark's start aside (default: 60)",
    )
    parser.add_argument(
        "--replicas",
        type=positive,
        default=2,
        metavar="N",
        help="instances of each replicated component (default: 2)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of all choices (default: 1)"
    )
    parser.add_argument("--save", metavar="PATH", help="write the worst witness to PATH")
    parser.add_argument("--replay", metavar="PATH", help="run a written witness again, and stop")
    options.add_output(parser, *FORMATS)


def run(arguments: argparse.Namespace) -> int:
    """Simulate FILE and print what was seen."""
    arguments.format = options.format_of(arguments)
    dataflow, _ = options.dataflow_of(arguments, limits_for(arguments.file))
    from blazes.document.screen import bar
    from blazes.simulate import repro, show
    from blazes.simulate.network import Refused
    from blazes.simulate.simulation import Simulation
    from blazes.verify.spark import Spark

    with contextlib.ExitStack() as stack:

        def spark() -> Engine:
            return Spark(stack.enter_context(session()))

        try:
            simulation = Simulation(
                dataflow,
                spark=spark,
                target=Label.parse(arguments.target),
                replicas=arguments.replicas,
            )
            if arguments.replay:
                return _replay(arguments, simulation)
            progress = stack.enter_context(bar())
            result = simulation.simulate(
                inputs=arguments.inputs,
                time_s=float(arguments.time),
                seed=arguments.seed,
                progress=progress,
            )
        except Refused as reason:
            raise CommandError(
                f"{arguments.file} cannot be simulated: {reason}",
                remedy="blazes verify tests its components one by one",
            ) from None
        if arguments.format == "json":
            from blazes.report.json_result import dumps

            text = dumps(show.to_json(result))
        else:
            networks = {False: simulation.network(coordinated=False)}
            if result.planned is not None:
                networks[True] = simulation.network(coordinated=True)
            text = options.rendered(show.document(result, networks), arguments)
    options.write(arguments, text)
    witnesses = [*result.unexpected, *reversed(show.stories(result))]
    target = arguments.save
    if result.unexpected and not target:
        target = f"blazes-simulate-{dataflow.name}-{arguments.seed}.json"
    if target and witnesses:
        repro.save(witnesses[0], Path(target))
        if arguments.format == "text":
            print(f"\nwritten to {target}; blazes simulate FILE --replay {target} shows it again")
    return int(bool(result.unexpected))


def _replay(arguments: argparse.Namespace, simulation: object) -> int:
    """Run a witness again; 0 where it still shows what it showed, 1 where it no longer does."""
    from blazes.document.blocks import Document
    from blazes.simulate import repro, show
    from blazes.simulate.anomalies import between, within
    from blazes.simulate.simulation import Simulation

    assert isinstance(simulation, Simulation)
    networks = {planned: simulation.network(coordinated=planned) for planned in (False, True)}
    try:
        witness = repro.load(Path(arguments.replay), networks)
    except OSError as unreadable:
        reason = unreadable.strerror or str(unreadable)
        raise CommandError(f"cannot read {arguments.replay}: {reason}") from None
    except repro.NotAWitness as error:
        raise CommandError(f"{arguments.replay}: {error}") from None
    first, last = witness.runs[0].end, witness.runs[-1].end
    there = witness.anomaly in (*within(last), *(between(first, last)))
    if arguments.format == "json":
        from blazes.report.json_result import dumps

        text = dumps({**repro.to_json(witness), "shown": there})
    else:
        story = show.story(witness, networks[witness.coordinated])
        text = options.rendered(Document("", tuple(story)), arguments)
        if not there:
            text += (
                "\nThis run no longer shows the anomaly: the dataflow or its code has changed.\n"
            )
    options.write(arguments, text)
    return int(not there)
