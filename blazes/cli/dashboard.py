"""A dashboard for Grafana over the metrics of jobs: a panel for each, made of their tables.

Panels ask Prometheus for what `--metrics-port` serves. Counters are shown as rates per second, and
each panel says what its metric means and what to do when it is not as it should be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from flux_runtime.observe.exposition import SITE_METRICS, STAGE_METRICS
from flux_runtime.observe.metrics import METRICS, Kind

WIDTH: Final = 8
HEIGHT: Final = 7
COLUMNS: Final = 24
"""Of Grafana's grid; a panel is `WIDTH` wide and `HEIGHT` high."""
SELECTED: Final = 'job=~"$job",instance=~"$instance"'
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """A metric as a line for each of its labels' values.

    Attributes:
        title: above it.
        metric: its name in Prometheus.
        labels: what its lines are told apart by.
        help: what it means.
        rate: it is a counter, and shown per second.
        quantity: what it counts.
    """

    title: str
    metric: str
    labels: tuple[str, ...]
    help: str
    rate: bool = False
    quantity: str = ""

    @property
    def expression(self) -> str:
        """In Prometheus' query language; a line for each value of the labels."""
        by = ", ".join(("job", "instance", *self.labels))
        selected = f"{self.metric}{{{SELECTED}}}"
        return f"sum by ({by}) ({f'rate({selected}[$__rate_interval])' if self.rate else selected})"

    def to_json(self, number: int, x: int, y: int) -> dict[str, Any]:
        """As Grafana has it, at a place of its grid."""
        legend = " ".join(f"{{{{{label}}}}}" for label in self.labels)
        quantity = {"s": "s", "bytes": "bytes"}.get(self.quantity, "short")
        return {
            "id": number,
            "type": "timeseries",
            "title": f"{self.title} per second" if self.rate else self.title,
            "description": self.help,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
            "fieldConfig": {"defaults": {"unit": quantity, "min": 0}, "overrides": []},
            "targets": [
                {"refId": "A", "datasource": DATASOURCE, "expr": self.expression,
                 "legendFormat": legend}
            ],
        }  # fmt: skip


def panels() -> Iterator[tuple[str, list[Panel]]]:
    """(title of a row, its panels)."""
    yield (
        "Units",
        [
            Panel(
                title=_title(metric.name),
                metric=f"blazes_{metric.name}",
                labels=("unit",) if metric.label is None else ("unit", metric.label),
                help=f"{metric.help}\n\n{metric.runbook}",
                rate=metric.kind is Kind.COUNTER,
                quantity=metric.unit,
            )
            for metric in METRICS.values()
        ],
    )
    stages = _panels("blazes_flux_", STAGE_METRICS, ("stage",))
    latency = Panel(
        title="Latency in ms",
        metric="blazes_flux_latency_ms",
        labels=("stage", "quantile"),
        help="From numbering a batch to committing its results.",
    )
    yield "Flux stages", [*stages, latency]
    yield "Flux sites", list(_panels("blazes_flux_site_", SITE_METRICS, ("stage", "site")))


def _panels(prefix: str, metrics: Iterable[Any], labels: tuple[str, ...]) -> Iterator[Panel]:
    for metric in metrics:
        yield Panel(
            title=_title(metric.name.removesuffix("_total")),
            metric=f"{prefix}{metric.name}",
            labels=labels,
            help=metric.help,
            rate=metric.kind == "counter",
            quantity="bytes" if "bytes" in metric.name else "",
        )


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize().replace("zookeeper", "ZooKeeper")


def dashboard() -> dict[str, Any]:
    """The dashboard, as Grafana imports it."""
    placed: list[dict[str, Any]] = []
    y = 0
    for title, row in panels():
        placed.append(
            {"id": len(placed) + 1, "type": "row", "title": title, "collapsed": False,
             "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}, "panels": []}
        )  # fmt: skip
        y += 1
        for place, panel in enumerate(row):
            across, down = place * WIDTH % COLUMNS, place * WIDTH // COLUMNS
            placed.append(panel.to_json(len(placed) + 1, across, y + HEIGHT * down))
        y += HEIGHT * -(-len(row) * WIDTH // COLUMNS)
    return {
        "title": "Blazes jobs",
        "uid": "blazes-jobs",
        "tags": ["blazes", "spark"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource(), _variable("job"), _variable("instance")]},
        "panels": placed,
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource",
            "query": "prometheus"}  # fmt: skip


def _variable(label: str) -> dict[str, Any]:
    """A choice among the values of a label that scraped jobs have."""
    return {
        "name": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": f"label_values(blazes_batches, {label})",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
