"""The report of a run as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from blazes.report.markup import escape
from blazes.report.plain import printable
from blazes.report.progress import amount
from blazes.report.run_report import RunReport, counts, headline, table, what

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #57606a; --line: #d9dce0; --back: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --soft: #a3acb8; --line: #3a424d; --back: #12161c } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--back) }
h1 { margin-bottom: 0 } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line) }
.about { color: var(--soft); margin-top: .2rem }
.scroll { overflow-x: auto } svg { max-width: 100%; height: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th { text-align: right; color: var(--soft); font-weight: 400 }
td { text-align: right } th:first-child, td:first-child { text-align: left }
th, td { padding: .15rem 1.4rem .15rem 0; border-bottom: 1px solid var(--line) }
dt { font-weight: 600; margin-top: .7rem } dd { margin: 0 }
pre { overflow-x: auto; font-size: 13px; line-height: 1.45 }
"""


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
    title = _shown(f"{report.name}: {report.folder.name}")
    body = "\n".join(_body(report, pictures, stages or {}, dead_letters or {}))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _body(
    report: RunReport,
    pictures: Sequence[Picture],
    stages: Mapping[str, Stage],
    dead_letters: Mapping[str, Mapping[str, int]],
) -> Iterator[str]:
    yield f"<h1>{_shown(report.name)}</h1>"
    yield f'<p class="about">{_shown(report.folder.name)}: {_shown(headline(report))}</p>'
    if report.error:
        yield f"<h2>Error</h2><pre>{_shown(report.error)}</pre>"
    for hint in report.hints:
        yield f"<dl><dt>{_shown(what(hint))}<dd>{_shown(f'{hint.means} {hint.remedy}')}</dl>"
    if stages:
        yield from _stages(stages)
    for picture in pictures:
        yield f'<h2>{_shown(picture.title)}</h2>\n<div class="scroll">{picture.svg}</div>'
    if report.units:
        yield "<h2>Results of the units</h2>"
        yield _table(table(report))
    if report.coordination:
        yield "<h2>Coordination</h2>"
        yield _list(report.coordination)
    if dead_letters:
        yield "<h2>Dead letters</h2>"
        rows = [
            [unit, reason, amount(number)]
            for unit, reasons in dead_letters.items()
            for reason, number in reasons.items()
        ]
        yield _table([["unit", "reason", "records"], *rows])
    if report.events:
        yield f"<h2>Events</h2>\n<p>{_shown(counts(report))}.</p>"
        if report.telling:
            yield f"<pre>{_shown_lines(report.telling)}</pre>"


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
    yield _table([heading, *rows])


def _table(rows: Sequence[Sequence[str]]) -> str:
    first, *others = rows
    head = "".join(f"<th>{_shown(cell)}" for cell in first)
    lines = ["".join(f"<td>{_shown(cell)}" for cell in row) for row in others]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>'


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{_shown(line)}' for line in lines)}</ul>"


def _shown_lines(lines: Iterable[str]) -> str:
    return "\n".join(map(_shown, lines))


def _shown(text: str) -> str:
    return escape(printable(text))
