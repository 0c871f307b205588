"""Run the constructs on real Spark under permuted arrivals, and write down what came out.

    python -m tests.constructs.observe [NAME ...]    all of them, or these; updates evidence.json

For each construct: `permuted`, how many different sets of records were put out over arrivals in
different orders and batches, and how many different bags; `sealed`, the same where each gate
partition arrives whole. The label claims: a confluent path has one set in `permuted`, and a path
with a known gate has one set in `sealed`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tests.constructs.arrivals import (
    ADS,
    PERMUTED,
    SEALED,
    Arrival,
    permuted,
    records,
    sealed,
)
from tests.constructs.catalogue import CONSTRUCTS, REPLAY, SCHEMAS, Construct

EVIDENCE: Final = Path(__file__).with_name("evidence.json")
TOGETHER: Final = 3
"""Streaming queries that run at the same time: most of a tiny batch is waiting."""


def ddl(stream: str) -> str:
    """The schema of a stream as Spark reads it."""
    return ", ".join(f"{name} {type_}" for name, type_ in SCHEMAS[stream].items())


def session() -> Any:
    """A Spark for many tiny queries: one partition, no generated code, checkpoints on disk."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.crossJoin.enabled": "true",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": tempfile.gettempdir() + "/warehouse",
    }
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the setting alone is for spark-submit
    builder = SparkSession.builder.master("local[2]").appName("constructs")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def computed(construct: Construct, spark: Any, frames: Mapping[str, Any]) -> Any:
    """The DataFrame of a construct over these inputs."""
    from pyspark.sql import Window, functions
    from pyspark.sql.streaming.state import GroupStateTimeout

    from tests.constructs.opaque import newest

    names = {"F": functions, "W": Window, "spark": spark, "newest": newest, **frames}
    return eval(construct.python, names | {"GroupStateTimeout": GroupStateTimeout})


def observe(construct: Construct, spark: Any) -> dict[str, Any]:
    """What the construct put out over all arrivals; see the head of this module."""
    given = records(construct.data)
    timed = construct.data == "timed"
    found: dict[str, Any] = {"permuted": [], "sealed": []}
    for seed in range(PERMUTED):
        found["permuted"].append(_run(construct, spark, permuted(given, seed=seed, timed=timed)))
    gates = gates_of(construct)
    for seed in range(SEALED if gates is not None else 0):
        ordered = "sequence" in construct.label
        arrival = sealed(given, gates or {}, seed=seed, ordered=ordered, timed=timed)
        found["sealed"].append(_run(construct, spark, arrival, whole=True))
    return {
        "label": construct.label,
        **({"other": construct.other} if construct.other else {}),
        **{kind: _distinct(outputs) for kind, outputs in found.items() if outputs},
    }


def gates_of(construct: Construct) -> dict[str, list[str]] | None:
    """Stream -> gate attributes as the arrivals partition by; None where nothing is claimed."""
    gates: dict[str, list[str]] = {}
    for stream, label in (("clicks", construct.label), ("answers", construct.other)):
        if label is None or not label.startswith("O"):
            continue
        inside = label[label.index("[") + 1 : label.index("]")]
        if inside == "*":
            return None
        gates[stream] = [name.strip() for name in inside.split(",") if name.strip()]
    if construct.partition is not None:
        gates = {stream: construct.partition.split(",") for stream in gates}
    return gates or None


def _distinct(outputs: Sequence[Sequence[str]]) -> dict[str, int]:
    return {
        "runs": len(outputs),
        "sets": len({frozenset(rows) for rows in outputs}),
        "bags": len({tuple(sorted(rows)) for rows in outputs}),
    }


def _run(construct: Construct, spark: Any, arrival: Arrival, *, whole: bool = False) -> list[str]:
    """Everything that is put out over the arrival, as text, one entry a record."""
    # A watermark without a promise drops records of partitions that come late: what a seal means
    # there is the computation on whole partitions, as a sealed component runs it.
    dropping = whole and construct.data == "timed" and not construct.promise
    run = _replay if construct.engine == REPLAY or dropping else _stream
    return run(construct, spark, arrival, whole)


def _replay(construct: Construct, spark: Any, arrival: Arrival, whole: bool) -> list[str]:
    """Batch runs over what has arrived so far, or, sealed, over each partition alone."""
    out: list[str] = []
    for last in range(len(arrival)):
        taken = arrival[last : last + 1] if whole else arrival[: last + 1]
        frames = {
            stream: _frame(spark, stream, [row for batch in taken for row in batch[stream]])
            for stream in ("clicks", "answers")
        }
        rows = computed(construct, spark, frames | {"ads": _frame(spark, "ads", ADS)}).collect()
        new = [_text(row) for row in rows]
        out += new if whole else [row for row in new if row not in out]
    return out


def _frame(spark: Any, stream: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    """A batch DataFrame of these records, in this order, in one partition."""
    folder = Path(tempfile.mkdtemp(prefix="rows"))
    _write(folder, [rows])
    return spark.read.schema(ddl(stream)).json(str(folder)).coalesce(1)


def _stream(construct: Construct, spark: Any, arrival: Arrival, whole: bool) -> list[str]:
    """One streaming query that takes one batch of the arrival after the other."""
    folder = Path(tempfile.mkdtemp(prefix="construct"))
    try:
        session = spark.newSession()
        frames = {}
        for stream in ("clicks", "answers"):
            _write(folder / stream, [batch[stream] for batch in arrival])
            reader = session.readStream.schema(ddl(stream)).option("maxFilesPerTrigger", 1)
            frames[stream] = reader.json(str(folder / stream))
        frames["ads"] = _frame(session, "ads", ADS)
        writer = computed(construct, session, frames).writeStream.outputMode(construct.mode)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        out: list[str] = []

        def keep(batch: Any, number: int) -> None:
            out.extend(_text(row) for row in batch.collect())

        query = writer.foreachBatch(keep).trigger(availableNow=True).start()
        query.awaitTermination()
        return out
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(folder: Path, batches: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """One JSON file for each batch, an empty one too, so that all streams are in step."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, batch in enumerate(batches):
        file = folder / f"{number:03d}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in batch))
        os.utime(file, (1e9 + number, 1e9 + number))


def _text(row: Any) -> str:
    return str(row.asDict(recursive=True))


def contradictions(name: str, seen: Mapping[str, Any]) -> Iterator[str]:
    """Where what was seen contradicts the label."""
    labels = [seen["label"], *([seen["other"]] if "other" in seen else [])]
    if any("nondeterministic" in label for label in labels):
        return  # neither claim is made: no order of the input repairs it
    confluent = all(label.startswith("C") for label in labels)
    if confluent and seen["permuted"]["sets"] > 1:
        yield f"{name}: {seen['label']}, but {seen['permuted']['sets']} different sets"
    if seen.get("sealed", {}).get("sets", 1) > 1:
        yield f"{name}: {seen['label']}, but {seen['sealed']['sets']} different sets when sealed"


def main(names: Sequence[str]) -> int:
    """Observe the constructs of these names, all where there are none; 1 on a contradiction."""
    chosen = [c for c in CONSTRUCTS if not names or c.name in names]
    evidence = json.loads(EVIDENCE.read_text()) if EVIDENCE.exists() else {}
    spark = session()
    begin = time.monotonic()
    wrong: list[str] = []
    with ThreadPoolExecutor(TOGETHER) as pool:
        futures = [(c, pool.submit(observe, c, spark)) for c in chosen]
        for construct, future in futures:
            try:
                seen = future.result()
            except Exception as failed:
                print(f"{construct.name}: FAILED {failed}", flush=True)
                wrong.append(construct.name)
                continue
            evidence[construct.name] = seen
            wrong += (found := list(contradictions(construct.name, seen)))
            print(construct.name, seen, *found, flush=True)
    order = [c.name for c in CONSTRUCTS if c.name in evidence]
    text = ",\n".join(f"  {json.dumps(n)}: {json.dumps(evidence[n])}" for n in order)
    EVIDENCE.write_text(f"{{\n{text}\n}}\n")
    print(f"{len(chosen)} constructs, {time.monotonic() - begin:.0f} s, {len(wrong)} wrong")
    spark.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
