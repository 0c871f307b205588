"""The report of a run as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from blazes.report.page import bullets, document, scrolling, shown, table
from blazes.report.progress import amount
from blazes.report.run_report import RunReport, counts, headline, what
from blazes.report.run_report import table as unit_table


class Picture(Protocol):
    """A drawing with its title."""

    @property
    def title(self) -> str:
        """Above it."""

    @property
    def svg(self) -> str:
        """Itself."""


class Stage(Protocol):
    """A Flux stage at the end of the run; see `flux_runtime.observe.stages.Stage`."""

    @property
    def values(self) -> Mapping[str, float]:
        """Numbers of the controller's last line."""

    @property
    def failures(self) -> int:
        """Sites that failed."""

    @property
    def recoveries(self) -> int:
        """How often all pairs were made whole again."""

    @property
    def recoveries_s(self) -> Sequence[float]:
        """How long each took."""

    @property
    def moves(self) -> int:
        """Ordered."""

    @property
    def losses(self) -> int:
        """Partitions without any copy."""


def page(
    report: RunReport,
    *,
    pictures: Sequence[Picture] = (),
    stages: Mapping[str, Stage] | None = None,
    dead_letters: Mapping[str, Mapping[str, int]] | None = None,
) -> str:
    """The whole page.

    Args:
        report: of the run.
        pictures: of the run.
        stages: its Flux stages at the end, by name.
        dead_letters: unit -> reason -> how many.
    """
    title = f"{report.name}: {report.folder.name}"
    return document(title, _body(report, pictures, stages or {}, dead_letters or {}))


def _body(
    report: RunReport,
    pictures: Sequence[Picture],
    stages: Mapping[str, Stage],
    dead_letters: Mapping[str, Mapping[str, int]],
) -> Iterator[str]:
    yield f"<h1>{shown(report.name)}</h1>"
    yield f'<p class="about">{shown(report.folder.name)}: {shown(headline(report))}</p>'
    if report.error:
        yield f"<h2>Error</h2><pre>{shown(report.error)}</pre>"
    for hint in report.hints:
        yield f"<dl><dt>{shown(what(hint))}<dd>{shown(f'{hint.means} {hint.remedy}')}</dl>"
    if stages:
        yield from _stages(stages)
    for picture in pictures:
        yield f"<h2>{shown(picture.title)}</h2>\n{scrolling(picture.svg, picture.title)}"
    if report.units:
        yield "<h2>Results of the units</h2>"
        yield _table("Results of the units", unit_table(report))
    if report.coordination:
        yield "<h2>Coordination</h2>"
        yield bullets(report.coordination)
    if dead_letters:
        yield "<h2>Dead letters</h2>"
        rows = [
            [unit, reason, amount(number)]
            for unit, reasons in dead_letters.items()
            for reason, number in reasons.items()
        ]
        yield _table("Dead letters", [["unit", "reason", "records"], *rows])
    if report.events:
        yield f"<h2>Events</h2>\n<p>{shown(counts(report))}.</p>"
        if report.telling:
            lines = "\n".join(map(shown, report.telling))
            yield f"<pre>{lines}</pre>"


def _stages(stages: Mapping[str, Stage]) -> Iterator[str]:
    yield "<h2>Flux stages</h2>"
    heading = ["stage", "rows", "batches", "failures", "recoveries", "longest", "moves", "lost"]
    rows = []
    for name, stage in stages.items():
        longest = f"{max(stage.recoveries_s) * 1000:,.0f} ms" if stage.recoveries_s else ""
        numbers: list[Any] = [
            f"{stage.values.get('rows', 0):,.0f}",
            f"{stage.values.get('batches', 0):,.0f}",
            stage.failures,
            stage.recoveries,
            longest,
            stage.moves,
            stage.losses,
        ]
        rows.append([name, *map(str, numbers)])
    yield _table("Flux stages", [heading, *rows])


def _table(name: str, rows: Sequence[Sequence[str]]) -> str:
    head, *others = rows
    return table(name, head, [list(map(shown, row)) for row in others], numbers=True)
