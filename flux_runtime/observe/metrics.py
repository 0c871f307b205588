"""Every metric of a running job, as one table: name, unit, meaning, and what to do about it.

The live view, the run's report, `blazes report --format prometheus` and the reference pages read
this table; `RunFolder.metrics` refuses names that are not in it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Value: TypeAlias = float | Mapping[str, float]
"""A number, or for a metric with a label one number for each value of the label."""


class Kind(enum.Enum):
    """How a metric moves."""

    COUNTER = "counter"
    """Only upwards while a job runs; over restarts as far as its state remembers."""
    GAUGE = "gauge"
    """Up and down."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One line of the table."""

    name: str
    kind: Kind
    unit: str
    help: str
    runbook: str
    """What an operator does when the value is not as it should be."""
    label: str | None = None
    """What the values are told apart by; None for a single number."""


def _table(*metrics: Metric) -> Mapping[str, Metric]:
    return {metric.name: metric for metric in metrics}


METRICS: Final = _table(
    Metric(
        "batches",
        Kind.COUNTER,
        "micro-batches",
        "Micro-batches that the unit has finished.",
        "Standing still while rows arrive: look at the end of log.txt for a batch that fails and "
        "is tried again.",
    ),
    Metric(
        "rows_in",
        Kind.COUNTER,
        "records",
        "Records read, punctuations included.",
        "Zero for a source that has data: check its path and format with `blazes compile "
        "--explain`.",
    ),
    Metric(
        "source_lag",
        Kind.GAUGE,
        "messages",
        "Messages of a topic's partition that are there and not yet in a finished micro-batch; "
        "of Kafka.",
        "Growing: the job is slower than its producers; give it more cores, or fewer messages "
        "for each micro-batch (`maxOffsetsPerTrigger`) if it is the memory that lacks.",
        label="partition",
    ),
    Metric(
        "rows_out",
        Kind.COUNTER,
        "records",
        "Records written for the next unit or the sink.",
        "Zero while rows come in: partitions are waiting; see open_partitions.",
    ),
    Metric(
        "sink_rows",
        Kind.COUNTER,
        "records",
        "Rows that each sink has taken since the start.",
        "Less than rows_out: the sink had the rest before the start.",
        label="sink",
    ),
    Metric(
        "rows_may_repeat",
        Kind.COUNTER,
        "records",
        "Those that went to sinks which only append: after a crash the newest commit of them may "
        "be there twice.",
        "`blazes analyze` says which sinks, and what would take each row once.",
    ),
    Metric(
        "rows_per_s",
        Kind.GAUGE,
        "records/s",
        "Records read per second in the newest micro-batch.",
        "Lower than the sources produce: give the job more cores (--master), or look at which "
        "unit is slowest.",
    ),
    Metric(
        "open_partitions",
        Kind.GAUGE,
        "partitions",
        "Partitions with records or votes that are not complete yet (SE-4).",
        "Growing without end: producers do not punctuate; `blazes seals FILE list` names them.",
    ),
    Metric(
        "oldest_open_partition_s",
        Kind.GAUGE,
        "s",
        "Age of the partition that has been open for longest.",
        "Above the stream's seal_timeout: a producer died or did not punctuate (SE-8). Restart "
        "it, or excuse it with `blazes seals FILE excuse`.",
    ),
    Metric(
        "released_partitions",
        Kind.COUNTER,
        "partitions",
        "Complete partitions that were processed, each once (SE-3).",
        "Standing still while punctuations arrive: counts do not agree yet; see votes_missing.",
    ),
    Metric(
        "votes_missing",
        Kind.GAUGE,
        "partitions",
        "Open partitions that wait for this producer's punctuation, or for records that its "
        "punctuation counted.",
        "The producer with the highest number holds the others back: restart it or excuse it.",
        label="producer",
    ),
    Metric(
        "seal_wait_s",
        Kind.GAUGE,
        "s",
        "Time from the last record of the newest released partition to its release.",
        "Long: punctuations come late, or micro-batches take long; compare with rows_per_s.",
    ),
    Metric(
        "waiting_requests",
        Kind.GAUGE,
        "records",
        "Requests that wait for the partition they read (SE-12).",
        "Growing: the partitions they ask for are not released; see oldest_open_partition_s.",
    ),
    Metric(
        "late_records",
        Kind.COUNTER,
        "records",
        "Records and punctuations that came after the release of their partition (SE-5).",
        "Above zero: a producer punctuates before it has sent everything, or sends twice. "
        "`blazes dead-letters FILE list` shows them.",
    ),
    Metric(
        "repeated_records",
        Kind.COUNTER,
        "records",
        "Records of released partitions that came more than once and count once, by their id (D6).",
        "High: a producer or its broker sends again what had arrived; nothing is wrong with the "
        "result.",
    ),
    Metric(
        "dropped_by_watermark",
        Kind.COUNTER,
        "rows",
        "Rows that a watermark kept out of the state, since they came later than `lateness:` "
        "promises; an aggregation of Spark's counts one for each group of a micro-batch and task.",
        "Above zero: a source breaks its promise. `blazes dead-letters FILE list` has the records "
        "as behind_watermark, where they can be told; an event says how many of a micro-batch. "
        "Give `lateness:` more time and start afresh, or seal the stream with punctuations.",
    ),
    Metric(
        "dead_letters",
        Kind.COUNTER,
        "records",
        "Records and punctuations that could not be processed, kept with the reason.",
        "Above zero: `blazes dead-letters FILE list` counts them by reason, `show` prints them, "
        "`export` writes them for a re-run.",
    ),
    Metric(
        "quarantined_partitions",
        Kind.GAUGE,
        "partitions",
        "Partitions whose counts, digests or punctuations contradict each other (SE-6).",
        "Above zero: events.jsonl has both values. Find out what the producer really sent; the "
        "records are kept and nothing of them was released. Then `blazes seals FILE release`, "
        "`discard` or `recount`.",
    ),
    Metric(
        "order_places",
        Kind.COUNTER,
        "places",
        "Places that were given in the order (OR-2).",
        "Standing still while records arrive: the ZooKeeper session is lost or a proposer hangs.",
    ),
    Metric(
        "order_lag",
        Kind.GAUGE,
        "places",
        "Places that were given and not yet consumed (OR-4).",
        "Growing: a place's batch cannot be read (events.jsonl names it), or the consumer is slow.",
    ),
    Metric(
        "zookeeper_session_losses",
        Kind.COUNTER,
        "sessions",
        "How often the session with ZooKeeper was lost and opened again (OR-7).",
        "Above zero: long pauses of the process or the network; nothing was decided meanwhile. "
        "Look at the ensemble and at the machine's load.",
    ),
)
"""Metric name -> its description, in the order in which people should read them."""


def check(values: Mapping[str, Value]) -> None:
    """Return if all names are known and have the form that the table says.

    Raises:
        ValueError: naming every value that is not so.
    """
    problems = [name for name in values if name not in METRICS]
    problems += [
        f"{name} (expected {'a number for each ' + metric.label if metric.label else 'a number'})"
        for name, metric in METRICS.items()
        if name in values and isinstance(values[name], Mapping) != (metric.label is not None)
    ]
    if problems:
        raise ValueError(f"not in the table of metrics: {', '.join(problems)}")


def prometheus_text(units: Mapping[str, Mapping[str, Value]]) -> str:
    """The newest values of all units in Prometheus' text format.

    >>> print(prometheus_text({"Count.counts": {"open_partitions": 3}}), end="")
    # HELP blazes_open_partitions Partitions with records or votes that are not complete yet (SE-4).
    # TYPE blazes_open_partitions gauge
    blazes_open_partitions{unit="Count.counts"} 3
    """
    return "".join(f"{line}\n" for line in _prometheus_lines(units))


def _prometheus_lines(units: Mapping[str, Mapping[str, Value]]) -> Iterator[str]:
    for metric in METRICS.values():
        having = {
            unit: values[metric.name] for unit, values in units.items() if metric.name in values
        }
        if having:
            yield f"# HELP blazes_{metric.name} {metric.help}"
            yield f"# TYPE blazes_{metric.name} {metric.kind.value}"
        for unit, value in having.items():
            if not isinstance(value, Mapping):
                yield f'blazes_{metric.name}{{unit="{escaped(unit)}"}} {value}'
                continue
            for label, number in value.items():
                labels = f'unit="{escaped(unit)}",{metric.label}="{escaped(label)}"'
                yield f"blazes_{metric.name}{{{labels}}} {number}"


def escaped(text: str) -> str:
    """The text as the value of a label."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
