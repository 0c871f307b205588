"""What an experiment is: a declaration, a run, and rows that set the paper's number beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from flux_runtime.observe.charts import Chart, Mark

Bounds = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number.

    Attributes:
        what: what is measured, with its unit.
        paper: the published number, as published; None where the papers have none.
        ours: what this run gave.
        within: the shape check, if the row has one: `ours` lies between these two.
        differs: why ours is known to be better or worse. With a shape check it says that the
            paper's shape is known not to be reproduced; the row is then reported, not failed.
        quick: whether the check also means something at the small size.
    """

    what: str
    paper: float | str | None = None
    ours: float
    within: Bounds | None = None
    differs: str = ""
    quick: bool = True

    @property
    def holds(self) -> bool | None:
        """Whether the shape check holds; None if there is none."""
        return None if self.within is None else self.within[0] <= self.ours <= self.within[1]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run gave."""

    rows: tuple[Row, ...]
    charts: tuple[Chart, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One entry of the catalogue.

    Attributes:
        id: as in the specification.
        title: what it shows, in a line.
        source: figures and tables of the papers.
        setup: the specification's own parameters.
        derived: parameters that the sources leave open, what was chosen, and why.
        run: performs it; the argument says whether at the small size.
    """

    id: str
    title: str
    source: str
    setup: str
    derived: tuple[str, ...] = ()
    run: Callable[[bool], Result] = field(repr=False)


def failed(result: Result, *, quick: bool) -> list[Row]:
    """Rows whose shape check fails and that are not known to differ."""
    return [
        row
        for row in result.rows
        if row.holds is False and not row.differs and (row.quick or not quick)
    ]


def to_json(experiment: Experiment, result: Result, seconds: float) -> Mapping[str, Any]:
    """All that the table and the figures show."""
    return {
        "id": experiment.id,
        "title": experiment.title,
        "source": experiment.source,
        "setup": experiment.setup,
        "derived": list(experiment.derived),
        "seconds": round(seconds, 2),
        "rows": [{**asdict(row), "holds": row.holds} for row in result.rows],
        "remarks": list(result.remarks),
        "charts": [asdict(chart) for chart in result.charts],
    }


def published(name: str, at: float, vertical: bool = False) -> Mark:
    """A number of the papers, in a chart."""
    return Mark(f"paper: {name}" if name else "", at, vertical)


def ratio(a: float, b: float) -> float:
    """a / b; infinite for b = 0."""
    return a / b if b else float("inf")


def mean(values: Sequence[float]) -> float:
    """Their mean; 0 for none."""
    return sum(values) / len(values) if values else 0.0
