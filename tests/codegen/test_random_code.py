"""Random dataflows of SQL: what the analysis accepts compiles, and its job runs to the end."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from annotations.diagnostics import errors_among
from annotations.file import loads
from annotations.vocabulary import Key
from blazes.analysis import analyze
from blazes.coordination import plan
from codegen.emit import emit
from codegen.judge import refusals
from codegen.stages import stages
from tests.codegen.test_jobs_on_spark import rows, run, write_json

pytestmark = pytest.mark.slow

COUNT = 300
COLUMNS = "{k: BIGINT, n: BIGINT, p: STRING, done: BOOLEAN, cnt: BIGINT}"
ONE = (
    "SELECT k, n, n % 3 AS m FROM {0} WHERE n > 0",
    "SELECT k, n FROM {0}",
    "SELECT DISTINCT k, n FROM {0}",
    "SELECT k, count(*) AS n FROM {0} GROUP BY k",
    "SELECT k, max(n) AS n, min(n) AS least FROM {0} GROUP BY k",
    "SELECT k, n, count(*) AS c FROM {0} GROUP BY k, n",
    "SELECT k, max(n) AS n FROM {0} GROUP BY k HAVING count(*) > 1",
)
"""Components of one input."""
TWO = (
    "SELECT a.k, a.n, b.n AS other FROM {0} a JOIN {1} b ON a.k = b.k",
    "SELECT k, n FROM {0} UNION ALL SELECT k, n FROM {1}",
    "SELECT a.k, sum(b.n) AS n FROM {0} a JOIN {1} b ON a.k = b.k GROUP BY a.k",
    "SELECT a.k, a.n FROM {0} a LEFT JOIN {1} b ON a.k = b.k",
    "SELECT a.k, a.n, count(*) AS c FROM {0} a JOIN {1} b ON a.k = b.k AND a.n = b.n "
    "GROUP BY a.k, a.n",
    "SELECT n AS k, n FROM {0} UNION SELECT k, n FROM {1}",
)
"""Components of two inputs."""


SEALS: Final = ("[k]", "[n]", "[[k], [n]]", "[k, n]", "[[k], [k, n]]")
SINKS: Final = (
    "{format: json}",
    "{format: delta, path: /lake/t}",
    '{format: kafka, options: {topic: t, kafka.bootstrap.servers: "h:1"}}',
    '{format: jdbc, key: [k], options: {url: "jdbc:postgresql://h/d", dbtable: t}}',
)


def random_file(source: random.Random, *, seals: Sequence[str] = ("[k]",)) -> str:
    """A dataflow of a few components without annotations, over sources that may be sealed.

    Args:
        source: of chance.
        seals: the keys of sources; of more than one also several consumers, replicas, other sinks.
    """
    components, streams = [], []
    sealed, varied = source.random() < 0.7, len(seals) > 1
    open_ends: list[str] = []
    """Outputs that feed nothing yet."""
    for number in range(1 + source.randrange(4)):
        name = f"C{number}"
        inputs = ["a", "b"][: 1 + (source.random() < 0.5)]
        sql = source.choice(ONE if len(inputs) == 1 else TWO).format(*inputs)
        replicas = ", Rep: true, replicas: 2" if varied and source.random() < 0.1 else ""
        components.append(f"  {name}: {{sql: {json.dumps(sql)}{replicas}}}")
        for interface in inputs:
            end = f"{name}.{interface}"
            if open_ends and source.random() < 0.7:
                before = open_ends.pop(source.randrange(len(open_ends)))
                if varied and source.random() < 0.2:
                    open_ends.append(before)
                streams.append(f"  s{len(streams)}: {{from: {before}, to: {end}}}")
                continue
            lines = [f"  s{len(streams)}:", f"    to: {end}", f"    schema: {COLUMNS}"]
            lines.append(f"    source: {{format: json, path: data/s{len(streams)}}}")
            if sealed:
                seal = f"    seal: {source.choice(seals)}"
                lines += [seal, "    producer: p", "    producers: [x, y]"]
                lines.append("    punctuation: {when: done, count: cnt}")
            streams.append("\n".join(lines))
        open_ends.append(f"{name}.out")
    for end in open_ends:
        sink = source.choice(SINKS) if varied else SINKS[0]
        streams.append(f"  s{len(streams)}: {{from: {end}, sink: {sink}}}")
    return "\n".join(["name: some", "components:", *components, "streams:", *streams]) + "\n"


def files() -> list[str]:
    source = random.Random(5)
    return [random_file(source) for _ in range(COUNT)]


def test_what_the_analysis_accepts_compiles() -> None:
    outcomes: Counter[str] = Counter()
    for text in files():
        decided = plan(analyze(loads(text)[0]))
        refused = refusals(decided)
        outcomes.update({each.code.id for each in refused} or {"compiled"})
        if not refused:
            emit(stages(decided))
        # A join of sealed streams that does not split leaves no other way: see BLZ523.
        assert {each.code.id for each in refused} <= {"BLZ514", "BLZ523"}, text
    assert outcomes["compiled"] > 0.9 * COUNT, outcomes


def test_what_waits_for_seals_of_several_keys_compiles() -> None:
    source = random.Random(6)
    outcomes: Counter[str] = Counter()
    for _ in range(COUNT):
        text = random_file(source, seals=SEALS)
        decided = plan(analyze(loads(text)[0]))
        refused = errors_among(refusals(decided))
        outcomes.update({each.code.id for each in refused} or {"compiled"})
        waiting: dict[tuple[str, str], set[Key]] = {}
        for entry in decided.entries:
            outcomes[entry.strategy.value] += 1
            keys = waiting.setdefault((entry.component, entry.path.target), set())
            keys.update(entry.seals.values())
        assert all(len(keys) < 2 for keys in waiting.values()), text
        if not refused:
            emit(stages(decided))
        assert {each.code.id for each in refused} <= {"BLZ513", "BLZ514", "BLZ523"}, text
    assert outcomes["compiled"] > 0.9 * COUNT, outcomes
    assert min(outcomes["seal"], outcomes["order"]) > COUNT // 3, outcomes


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(3))
def test_a_job_runs_to_the_end(seed: int, tmp_path: Path) -> None:
    """Each key of each source has four records, and punctuations of both producers."""
    source = random.Random(100 + seed)
    text = random_file(source)
    while refusals(plan(analyze(loads(text)[0]))):
        text = random_file(source)
    file = tmp_path / "some.yaml"
    file.write_text(text)
    dataflow, _ = loads(text)
    for stream in dataflow.streams.values():
        if stream.producer is None:
            records = [
                {"k": k, "n": n, "p": p} for k in (1, 2, 3) for p in "xy" for n in (1, 2)
            ] + [{"k": k, "p": p, "done": True, "cnt": 2} for k in (1, 2, 3) for p in "xy"]
            source.shuffle(records)
            write_json(tmp_path / "data" / stream.name, [records[:7], records[7:]])
    project = run(file)
    results = [s.name for s in dataflow.streams.values() if s.consumer is None]
    assert all(rows(project / "results" / name) for name in results), text


JOINED = f"""\
name: joined
components:
  Join: {{sql: "SELECT a.k, a.n, b.n AS m FROM a JOIN b ON a.k = b.k"}}
  Sum: {{sql: "SELECT k, count(*) AS c, sum(n * m) AS s FROM pairs GROUP BY k"}}
streams:
  left: &sealed
    to: Join.a
    schema: {COLUMNS}
    source: {{format: json, path: data/left}}
    seal: [k]
    producer: p
    producers: [x, y]
    punctuation: {{when: done, count: cnt}}
  right: {{<<: *sealed, to: Join.b, source: {{format: json, path: data/right}}}}
  pairs: {{from: Join.out, to: Sum.pairs}}
  sums: {{from: Sum.sums, sink: {{format: json}}}}
"""


@pytest.mark.spark
def test_a_seal_goes_on_through_a_join_on_its_key(tmp_path: Path) -> None:
    """Nothing is put out for a key of which one side is not complete."""
    file = tmp_path / "joined.yaml"
    file.write_text(JOINED)
    for side, complete in (("left", (1, 2, 3)), ("right", (1, 2))):
        end = [{"k": k, "p": p, "done": True, "cnt": 2} for k in complete for p in "xy"]
        records = [{"k": k, "n": n * k, "p": p} for k in (1, 2, 3) for p in "xy" for n in (1, 2)]
        write_json(tmp_path / "data" / side, [end[:3], records[:5], end[3:], records[5:]])
    project = run(file)
    found = {(row["k"], row["c"], row["s"]) for row in rows(project / "results" / "sums")}
    assert found == {(1, 16, 36), (2, 16, 144)}
