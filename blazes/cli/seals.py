"""See which partitions are open and why, decide about them, register producers.

    list        partitions that are not released: age, and what they wait for
    excuse      let a partition go on without a producer's punctuation; recorded with the reason
    release     release a partition in quarantine as it is; recorded with the reason
    discard     make the records of a partition in quarantine dead letters; recorded with the reason
    recount     take the newest punctuations of a partition in quarantine, and count again
    registered  producer sets in ZooKeeper
    register    register the producers of partitions, from the command line or a JSON file

Key values are given in the alphabetical order of the key's attributes. A decision is taken up
by the running job within a second or so, or by the next one when it starts; only a run with --fresh
undoes it.

exit status: 0; 2 where something does not exist or was refused, and for bad usage.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from annotations.diagnostics import did_you_mean
from blazes.cli import CommandError, one_of
from blazes.cli.projects import PLAN, add_project, add_state_dir, project_of, state_at
from blazes.document.plain import printable

if TYPE_CHECKING:
    from blazes.document.blocks import Words
    from flux_runtime.observe.gates import GateView, OpenPartition
    from flux_runtime.zookeeper.registry import ProducerRegistry

SHOWN: Final = 50
RESOLUTIONS: Final = ("release", "discard", "recount")
ACTIONS: Final = ("list", "excuse", *RESOLUTIONS, "registered", "register")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_project(parser)
    add_state_dir(parser)
    parser.add_argument(
        "action", type=one_of(*ACTIONS), nargs="?", default="list", metavar="|".join(ACTIONS)
    )
    add = parser.add_argument
    add("--unit", help="only this unit, such as Count.counts (decisions: default, all that apply)")
    add("--stream", help="excuse, registered, register: the sealed stream")
    add("--key", action="append", default=[], metavar="VALUE", help="a key value (repeatable)")
    add("--producer", action="append", default=[], metavar="NAME", help="a producer (repeatable)")
    add("--reason", help="excuse, release, discard, recount: why, for the record")
    add("--by", help="the same: who decided (default: you)")
    add("--from", dest="file_of_sets", metavar="JSON", help="register: key -> producers")
    add("--replace", action="store_true", help="register: overwrite sets not looked up yet")
    add("--zookeeper", metavar="HOSTS", help="host:port,... (default: what the job uses)")
    add("--limit", type=int, default=SHOWN, metavar="N", help=f"list N at most (default: {SHOWN})")
    add("--format", type=one_of("text", "json"), default="text", metavar="text|json")


def run(arguments: argparse.Namespace) -> int:
    """Do what the action says."""
    project = project_of(arguments)
    match arguments.action:
        case "registered":
            return _registered(arguments, project)
        case "register":
            return _register(arguments, project)
        case _:
            with state_at(arguments.state_dir or project / "state") as (state, place):
                return _of_partitions(arguments, state, place)


def _of_partitions(arguments: argparse.Namespace, state: Path, place: Path | str) -> int:
    match arguments.action:
        case "list":
            return _list(arguments, state)
        case "excuse":
            return _excuse(arguments, state, place)
        case _:
            return _resolve(arguments, state, place)


def _gates(arguments: argparse.Namespace, state: Path) -> tuple[GateView, ...]:
    from flux_runtime.observe.gates import read_gates

    gates = read_gates(state)
    if arguments.unit is None:
        return gates
    chosen = tuple(gate for gate in gates if gate.unit == arguments.unit)
    if not chosen:
        names = [gate.unit for gate in gates]
        known = f"sealed units: {', '.join(names)}" if names else "the job has no sealed unit yet"
        raise CommandError(
            f"no sealed unit {arguments.unit}{did_you_mean(arguments.unit, names)}", remedy=known
        )
    return chosen


# ---- list


def _list(arguments: argparse.Namespace, state: Path) -> int:
    gates = _gates(arguments, state)
    if arguments.format == "json":
        print(json.dumps({"schema_version": 1, "units": list(map(_gate_json, gates))}, indent=2))
        return 0
    shown = [line for gate in gates for line in _gate_lines(gate, arguments.limit)]
    return _show(arguments, shown or ["No sealed unit has run."])


def _show(arguments: argparse.Namespace, lines: Iterable[Words]) -> int:
    from blazes.cli.options import rendered, write
    from blazes.document.blocks import Document, paragraph

    write(arguments, rendered(Document("", (paragraph(*lines, form="verbatim"),)), arguments))
    return 0


def _gate_lines(gate: GateView, limit: int) -> Iterator[Words]:
    from blazes.document.blocks import Span

    number = len(gate.partitions)
    sealed = f", sealed on {', '.join(gate.key)}: {number} open, {gate.released} released"
    yield (Span(gate.unit, "strong"), sealed)
    for name, who in gate.inputs.items():
        yield f"  waits for {name}: {who}"
    for partition in gate.partitions[:limit]:
        yield from _partition_lines(partition, gate.seal_timeout_s)
    if number > limit:
        yield f"  and {number - limit} more (--limit)"


def _partition_lines(partition: OpenPartition, timeout_s: float) -> Iterator[Words]:
    from blazes.document.blocks import Span
    from blazes.report.progress import duration

    age = max(0.0, time.time() - partition.opened)
    late = age > timeout_s
    overdue = ", longer than seal_timeout" if late else ""
    bad = late or partition.status == "quarantined"
    status = Span(f"{partition.status} for {duration(age)}{overdue}", "warn" if bad else "")
    yield (f"  {_key(partition.key)}  ", status, f", {partition.records} records")
    for reason in partition.waits_for:
        yield f"      {reason}"
    for name, producers in partition.excused.items():
        yield f"      {name}: excused: {', '.join(producers)}"
    if partition.contradiction:
        yield Span(f"      {partition.contradiction} (SE-6)", "bad")


def _gate_json(gate: GateView) -> dict[str, object]:
    names = ("key", "status", "opened", "waits_for", "missing", "excused", "records")
    return {
        "unit": gate.unit,
        "key": gate.key,
        "inputs": gate.inputs,
        "seal_timeout_s": gate.seal_timeout_s,
        "released": gate.released,
        "partitions": [
            {name: getattr(partition, name) for name in names}
            | {"contradiction": partition.contradiction}
            for partition in gate.partitions
        ],
    }


# ---- excuse


def _excuse(arguments: argparse.Namespace, state: Path, place: Path | str) -> int:
    from flux_runtime.observe.decisions import Excuse, request

    _need(arguments, "key", "producer", "reason")
    key = tuple(arguments.key)
    choices = [
        (gate, stream, partition)
        for gate in _gates(arguments, state)
        for partition in gate.partitions
        if partition.key == key
        for stream in gate.inputs
        if arguments.stream in (None, stream)
    ]
    if not choices:
        raise CommandError(
            f"no open partition {_key(key)}", remedy=f"blazes seals {arguments.file} list"
        )
    by = arguments.by or getpass.getuser()
    requests = [
        (
            gate.unit,
            Excuse(
                stream=stream,
                key=key,
                producer=producer,
                by=by,
                reason=arguments.reason,
                time=round(time.time(), 3),
            ),
        )
        for gate, stream, partition in choices
        for producer in arguments.producer
        if _holds_back(partition, stream, producer)
    ]
    unneeded = set(arguments.producer) - {excuse.producer for _, excuse in requests}
    if unneeded:
        waits = sorted({reason for _, _, partition in choices for reason in partition.waits_for})
        raise CommandError(
            f"{_key(key)} does not wait for {', '.join(sorted(unneeded))}",
            remedy="it waits for: " + ("; ".join(waits) or "nothing"),
        )
    for unit, excuse in requests:
        request(place, unit, excuse)
        print(
            printable(
                f"{unit}: {_key(key)} no longer waits for {excuse.producer} ({excuse.stream})"
            )
        )
    return 0


def _holds_back(partition: OpenPartition, stream: str, producer: str) -> bool:
    """Whether its vote or the records that it promised are missing."""
    if producer in partition.excused.get(stream, ()):
        return False
    return producer in partition.missing.get(stream, ()) or any(
        reason.startswith(f"{stream}: ") and reason.endswith(f" of {producer}")
        for reason in partition.waits_for
    )


# ---- quarantine


def _resolve(arguments: argparse.Namespace, state: Path, place: Path | str) -> int:
    from flux_runtime.observe.decisions import Resolve, request
    from flux_runtime.sealing.events import Resolution

    _need(arguments, "key", "reason")
    key = tuple(arguments.key)
    resolution = Resolution(arguments.action)
    partitions = [
        (gate.unit, partition)
        for gate in _gates(arguments, state)
        for partition in gate.partitions
        if partition.key == key
    ]
    units = [unit for unit, partition in partitions if partition.status == "quarantined"]
    if not units:
        problem = "is not in quarantine" if partitions else "is not open"
        raise CommandError(
            f"partition {_key(key)} {problem}", remedy=f"blazes seals {arguments.file} list"
        )
    for unit in units:
        decision = Resolve(
            key=key,
            resolution=resolution,
            by=arguments.by or getpass.getuser(),
            reason=arguments.reason,
            time=round(time.time(), 3),
        )
        request(place, unit, decision)
        print(printable(f"{unit}: {_key(key)}: {resolution}"))
    return 0


# ---- ZooKeeper


def _registered(arguments: argparse.Namespace, project: Path) -> int:
    from flux_runtime.zookeeper.registry import Registration

    with _registry(arguments, project) as registry:
        streams = [arguments.stream] if arguments.stream else registry.streams()
        registered: dict[str, Sequence[Registration]] = {s: registry.registered(s) for s in streams}
    if arguments.format == "json":
        objects = {
            stream: [
                {
                    "key": registration.key,
                    "producers": sorted(registration.producers),
                    "frozen": registration.frozen
                    and {"by": registration.frozen.by, "time": registration.frozen.time},
                }
                for registration in registrations
            ]
            for stream, registrations in registered.items()
        }
        print(json.dumps({"schema_version": 1, "streams": objects}, indent=2))
        return 0
    lines: list[str] = []
    for stream, registrations in registered.items():
        lines.append(f"{stream}: {len(registrations)} partitions")
        for registration in registrations[: arguments.limit]:
            who = ", ".join(sorted(registration.producers))
            lines.append(
                f"  {_key(registration.key)}  {who}" + ("  (frozen)" if registration.frozen else "")
            )
        if len(registrations) > arguments.limit:
            lines.append(f"  and {len(registrations) - arguments.limit} more (--limit)")
    return _show(arguments, lines or ["Nothing is registered."])


def _register(arguments: argparse.Namespace, project: Path) -> int:
    from flux_runtime.zookeeper.errors import ZooKeeperProblem
    from flux_runtime.zookeeper.registrations_file import load_registrations

    _need(arguments, "stream")
    try:
        if arguments.file_of_sets:
            sets: Mapping[tuple[str | None, ...], frozenset[str]] = load_registrations(
                Path(arguments.file_of_sets)
            )
        else:
            _need(arguments, "key", "producer")
            sets = {tuple(arguments.key): frozenset(arguments.producer)}
        with _registry(arguments, project) as registry:
            count = registry.register_many(arguments.stream, sets, replace=arguments.replace)
    except ZooKeeperProblem as problem:
        raise CommandError(problem.message, remedy=problem.remedy) from None
    print(f"{count} registered, {len(sets) - count} were registered already.")
    return 0


@contextlib.contextmanager
def _registry(arguments: argparse.Namespace, project: Path) -> Iterator[ProducerRegistry]:
    """The registry of the job; its embedded server is started where it does not run."""
    from flux_runtime.zookeeper.access import Ensemble
    from flux_runtime.zookeeper.client import connect
    from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
    from flux_runtime.zookeeper.errors import ZooKeeperProblem
    from flux_runtime.zookeeper.process import running_server
    from flux_runtime.zookeeper.registry import ProducerRegistry

    data = project / "state" / "zookeeper"
    try:
        with contextlib.ExitStack() as stack:
            hosts, access, root = _zookeeper_of(arguments, project)
            hosts = arguments.zookeeper or hosts
            if hosts == "embedded":
                hosts = running_server(data) or stack.enter_context(EmbeddedZooKeeper(data)).hosts
                access = {}
            client = stack.enter_context(connect(Ensemble(hosts, access, root)))
            yield ProducerRegistry(client, _application(project), by="blazes seals")
    except ZooKeeperProblem as problem:
        raise CommandError(problem.message, remedy=problem.remedy) from None
    except ValueError as error:  # a reference of the access that leads nowhere
        raise CommandError(str(error)) from None


def _zookeeper_of(
    arguments: argparse.Namespace, project: Path
) -> tuple[str, Mapping[str, str], Path]:
    """Address and access of ZooKeeper, and what paths in it are relative to.

    As the file says, or the plan that was compiled where the folder of the project is given.
    """
    if not Path(arguments.file).is_dir():
        from blazes.cli.options import dataflow_of

        deployment = dataflow_of(arguments, None)[0].deployment
        root = Path(arguments.file).absolute().parent
        return deployment.zookeeper, deployment.zookeeper_access, root
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        plan = json.loads((project / PLAN).read_text(encoding="utf-8"))
        compiled, root = plan["deployment"], project / plan["root"]
        return str(compiled["zookeeper"]), dict(compiled.get("zookeeper_access", {})), root
    return "embedded", {}, project


def _application(project: Path) -> str:
    """The job's name, which is its application's in ZooKeeper."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((project / PLAN).read_text(encoding="utf-8"))["dataflow"])
    return project.resolve().name


def _need(arguments: argparse.Namespace, *options: str) -> None:
    missing = [f"--{option}" for option in options if not getattr(arguments, option)]
    if missing:
        raise CommandError(
            f"{arguments.action} needs {', '.join(missing)}",
            remedy="blazes seals --help shows the usage",
        )


def _key(key: Sequence[str | None]) -> str:
    return f"[{', '.join('null' if value is None else value for value in key)}]"
