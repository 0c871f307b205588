"""What an experiment is: a declaration, a run, and rows that set the paper's number beside ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

from blazes.document.charts import Chart, Mark, Series

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

    def shape(self, *, quick: bool) -> str:
        """What the shape check says, in a word; empty if there is none."""
        if self.holds is None:
            return ""
        if quick and not self.quick:
            return "(full size only)"
        return "ok" if self.holds else "differs" if self.differs else "FAILS"


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


def to_json(
    experiment: Experiment, result: Result, seconds: float, *, quick: bool
) -> Mapping[str, Any]:
    """All that the table and the figures show; `seconds` is processor time."""
    rows = [{**asdict(row), "shape": row.shape(quick=quick)} for row in result.rows]
    return {
        "id": experiment.id,
        "title": experiment.title,
        "source": experiment.source,
        "setup": experiment.setup,
        "derived": list(experiment.derived),
        "quick": quick,
        "seconds": round(seconds, 1),
        "rows": rows,
        "remarks": list(result.remarks),
        "charts": [_rounded(asdict(chart)) for chart in result.charts],
    }


def _rounded(held: Any) -> Any:
    """The same with numbers of five digits, which is more than a picture shows."""
    if isinstance(held, float):
        return float(f"{held:.5g}") if isfinite(held) else None
    if isinstance(held, dict):
        return {key: _rounded(value) for key, value in held.items()}
    return [_rounded(value) for value in held] if isinstance(held, list | tuple) else held


def shown(value: float | str | None) -> str:
    """A number as people write it, with three or four digits; words as they are."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isfinite(value):
        return "never" if value > 0 else "-"
    if abs(value) < 1e-9:
        return "0"
    if value == int(value) and abs(value) < 1e9:
        return f"{value:,.0f}"
    if abs(value) >= 1000:
        return f"{float(f'{value:.4g}'):,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.4g}"


def published(name: str, at: float, vertical: bool = False) -> Mark:
    """A number of the papers, in a chart."""
    return Mark(f"paper: {name}" if name else "", at, vertical)


def curve(name: str, xs: Sequence[float], ys: Sequence[float]) -> Series:
    """Measured points and the line through them, for a chart.

    Raises:
        ValueError: there are not as many of one as of the other.
    """
    return Series(name, tuple(zip(map(float, xs), ys, strict=True)), True)


def ratio(a: float, b: float) -> float:
    """a / b; infinite for b = 0."""
    return a / b if b else float("inf")


def mean(values: Sequence[float]) -> float:
    """Their mean; 0 for none."""
    return sum(values) / len(values) if values else 0.0
