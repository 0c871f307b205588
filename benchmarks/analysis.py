"""How fast the analysis is, beside what it cannot be faster than.

    python benchmarks/analysis.py [large] [shapes] [sweep] [start] [--repeat 5] [--json FILE]

large    100,000 components: libyaml's parse of the file (events, nothing is built of them), then
         our decoder, the analysis, and the plan, one after the other in one process.
shapes   20 diamonds in a row (a million ways through 60 components) and a chain of 60 components.
sweep    1,000 to 100,000 components, with the exponent of the growth.
start    `blazes analyze` of word count, and `python -c pass`, both with compiled modules.

All times are CPU time of the process, medians of the repeats.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from annotations.file import loads
from blazes.analysis import analyze
from blazes.coordination import Strategy, plan

ROOT: Final = Path(__file__).parent.parent
LARGE: Final = 100_000
SWEEP: Final = (1_000, 3_000, 10_000, 30_000, 100_000)
KINDS: Final = ("CR", "CR", "CW", "OW, subscript: [user, day]", "OR, subscript: [day]")


def random_file(components: int, *, seed: int = 14) -> str:
    """A dataflow file: each component reads one or two of those shortly before it.

    One in five has a state that one path writes and another reads; one in ten streams comes from
    outside, half of these sealed. What nobody reads is a sink.
    """
    source = random.Random(seed)
    unread = set(range(components))
    parts = ["name: large", "components:"]
    streams = ["streams:"]
    for number in range(components):
        name = f"component_{number}"
        inputs = ["in"]
        kind = source.choice(KINDS)
        if source.random() < 0.2:
            inputs.append("ask")
            parts.append(
                f"  {name}:\n    annotation:\n"
                "      - {from: in, to: out, label: CW}\n"
                "      - {from: ask, to: out, label: OR, subscript: [user, day]}"
            )
        else:
            parts.append(f"  {name}: {{annotation: {{from: in, to: out, label: {kind}}}}}")
        for interface in inputs:
            feed = f"stream_{number}_{interface}"
            if number == 0 or source.random() < 0.1:
                seal = ", seal: [day]" if source.random() < 0.5 else ""
                streams.append(f"  {feed}: {{to: {name}.{interface}{seal}}}")
            else:
                before = source.randrange(max(0, number - 20), number)
                unread.discard(before)
                streams.append(
                    f"  {feed}: {{from: component_{before}.out, to: {name}.{interface}}}"
                )
    parts += streams
    parts += [f"  result_{number}: {{from: component_{number}.out}}" for number in sorted(unread)]
    return "\n".join(parts) + "\n"


def chain_file(components: int) -> str:
    """Components in a row."""
    return _joined(
        [f"c{n}" for n in range(components)],
        [("", "c0"), *((f"c{n}", f"c{n + 1}") for n in range(components - 1))],
        f"c{components - 1}",
    )


def diamonds_file(diamonds: int) -> str:
    """Diamonds in a row, three components each; both sides of one lead into the next."""
    names = [f"{part}{n}" for n in range(diamonds) for part in ("top", "left", "right")]
    streams = [("", "top0")]
    for n in range(diamonds):
        streams += [(f"top{n}", f"left{n}"), (f"top{n}", f"right{n}")]
        if n + 1 < diamonds:
            streams += [(f"left{n}", f"top{n + 1}"), (f"right{n}", f"top{n + 1}")]
    return _joined(names, streams, f"left{diamonds - 1}")


def _joined(names: Iterable[str], streams: Iterable[tuple[str, str]], last: str) -> str:
    lines = ["components:"]
    lines += [f"  {n}: {{annotation: {{from: in, to: out, label: CW}}}}" for n in names]
    lines.append("streams:")
    for number, (producer, consumer) in enumerate(streams):
        origin = f"from: {producer}.out, " if producer else ""
        lines.append(f"  s{number}: {{{origin}to: {consumer}.in}}")
    lines.append(f"  result: {{from: {last}.out}}")
    return "\n".join(lines) + "\n"


def libyaml(text: str) -> int:
    """The number of events in the text, by libyaml's parser."""
    return sum(1 for _ in yaml.parse(text, Loader=yaml.CSafeLoader))


def seconds(work: Callable[[Any], Any], argument: Any) -> tuple[float, Any]:
    """CPU time, and the result."""
    started = time.process_time()
    result = work(argument)
    return time.process_time() - started, result


def one_file(text: str, repeat: int) -> dict[str, float]:
    """Median seconds of every step on the way from the text to the plan."""
    steps: dict[str, Callable[[Any], Any]] = {
        "libyaml": lambda _: libyaml(text),
        "decode": lambda _: loads(text),
        "analysis": lambda decoded: analyze(decoded[0]),
        "plan": plan,
    }
    times: dict[str, list[float]] = {step: [] for step in steps}
    for _ in range(repeat):
        result: Any = None
        for step, work in steps.items():
            taken, result = seconds(work, result)
            times[step].append(taken)
    return {step: statistics.median(each) for step, each in times.items()}


def large(repeat: int) -> dict[str, Any]:
    """The largest file, step by step."""
    text = random_file(LARGE)
    times = one_file(text, repeat)
    found = plan(analyze(loads(text)[0]))
    strategies = [entry.strategy for entry in found.entries]
    return {
        "components": LARGE,
        "bytes": len(text),
        "verdict": str(found.analysis.verdict),
        "entries": {each.value: strategies.count(each) for each in Strategy},
        "seconds": times,
        "analysis / libyaml": times["analysis"] / times["libyaml"],
        "(analysis + plan) / libyaml": (times["analysis"] + times["plan"]) / times["libyaml"],
    }


def shapes(repeat: int) -> dict[str, Any]:
    """Microseconds of one analysis and plan."""
    flows = {"20 diamonds": loads(diamonds_file(20))[0], "chain of 60": loads(chain_file(60))[0]}
    times: dict[str, list[float]] = {name: [] for name in flows}
    for _ in range(100 * repeat):
        for name, flow in flows.items():
            times[name].append(seconds(lambda each: plan(analyze(each)), flow)[0])
    return {name: 1e6 * statistics.median(each) for name, each in times.items()}


def sweep(repeat: int) -> dict[str, Any]:
    """Seconds by size, and the exponent that fits them best."""
    rows = {size: one_file(random_file(size), repeat) for size in SWEEP}
    exponents = {
        step: exponent([(size, row[step]) for size, row in rows.items()])
        for step in next(iter(rows.values()))
    }
    return {"seconds": rows, "exponent": exponents}


def exponent(points: Iterable[tuple[float, float]]) -> float:
    """The slope of the least-squares line through the logarithms."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    xs, ys = [x for x, _ in logs], [y for _, y in logs]
    return statistics.linear_regression(xs, ys).slope


def start(repeat: int) -> dict[str, Any]:
    """Milliseconds of CPU time of whole processes."""
    file = ROOT / "examples" / "wordcount" / "wordcount.yaml"
    commands = {
        "python -c pass": ["-c", "pass"],
        "blazes analyze": ["-m", "blazes", "analyze", str(file)],
        "blazes analyze --format json": ["-m", "blazes", "analyze", str(file), "--format", "json"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    with TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(3 * repeat + 1):
            for name, arguments in commands.items():
                taken = process([sys.executable, *arguments], environment)
                if number:
                    times[name].append(1e3 * taken)
    return {name: statistics.median(each) for name, each in times.items()}


def process(command: list[str], environment: dict[str, str]) -> float:
    """CPU time of a process, its own and the system's."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=environment, timeout=60
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


PARTS: Final[dict[str, Callable[[int], dict[str, Any]]]] = {
    "large": large,
    "shapes": shapes,
    "sweep": sweep,
    "start": start,
}


def lines(part: str, found: dict[str, Any]) -> Iterator[str]:
    """The result of one part as text."""
    yield part
    if part == "large":
        size = found["bytes"] / 1e6
        yield f"  {found['components']:,} components, {size:.1f} MB, verdict {found['verdict']}"
        told = ", ".join(f"{name} {count:,}" for name, count in found["entries"].items())
        yield f"  order-sensitive paths: {told}"
        for step, taken in found["seconds"].items():
            yield f"  {step:<28} {taken:8.3f} s"
        for ratio in ("analysis / libyaml", "(analysis + plan) / libyaml"):
            yield f"  {ratio:<28} {found[ratio]:8.2f}"
    elif part == "sweep":
        steps = list(found["exponent"])
        yield "  " + "components".rjust(12) + "".join(step.rjust(12) for step in steps)
        for size, row in found["seconds"].items():
            yield f"  {size:>12,}" + "".join(f"{row[step]:>10.3f} s" for step in steps)
        yield f"  {'exponent':>12}" + "".join(f"{found['exponent'][s]:>12.2f}" for s in steps)
    else:
        unit = "us" if part == "shapes" else "ms"
        for name, taken in found.items():
            yield f"  {name:<28} {taken:8.0f} {unit}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the results there")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts if part not in PARTS]
    if unknown or arguments.repeat < 1:
        parser.error(f"the parts are {', '.join(PARTS)}, and --repeat is at least 1")
    results = {}
    for part in arguments.parts or PARTS:
        results[part] = PARTS[part](arguments.repeat)
        print("\n".join(lines(part, results[part])), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
