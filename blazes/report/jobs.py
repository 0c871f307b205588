"""The streaming jobs of a repository, a line each, the worst first: as a document and as SARIF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from annotations.dataflow import Position
from annotations.diagnostics import Diagnostic
from annotations.vocabulary import Delivery, Label
from blazes.coordination import Plan
from blazes.document import blocks as b
from blazes.report.results import WHAT, Result, results
from blazes.report.sarif import LEVELS, code_of, dumps, location, log_of

IN_PART: Final = "BLZ081"
"""Code that was read in part."""


@dataclass(frozen=True)
class Job:
    """A job that was found: what it may do when it is replayed, or why that is not known."""

    file: Path
    plan: Plan | None
    diagnostics: tuple[Diagnostic, ...] = ()
    """Warnings; where there is no plan, why not."""

    @property
    def worst(self) -> Result | None:
        """The result of which least can be said."""
        if self.plan is None:
            return None
        return max(results(self.plan), key=_badness, default=None)

    @property
    def in_part(self) -> Diagnostic | None:
        """The first place that was not read as it runs; something may be missing."""
        return next((d for d in self.diagnostics if d.code.id == IN_PART and d.position), None)

    @property
    def same(self) -> bool:
        """Whether all of its code was read, and gives the same rows, once, in every run."""
        return self.worst is not None and self.worst.plain and self.in_part is None

    @property
    def label(self) -> Label:
        """The label of its worst result."""
        assert self.plan is not None
        return self.plan.analysis.verdict

    @property
    def position(self) -> Position:
        """Where the worst result comes from, else the beginning of the file."""
        worst = self.worst
        if self.plan is not None and worst is not None:
            stream = self.plan.analysis.dataflow.streams[worst.name]
            if stream.position is not None:
                return stream.position
        first = next(
            (diagnostic.position for diagnostic in self.diagnostics if diagnostic.position), None
        )
        return first or Position(str(self.file), 1, 1)

    @property
    def text(self) -> str:
        """The sentence about its worst result."""
        if self.plan is None:
            first = self.diagnostics[0]
            remedy = f". {first.remedy.rstrip('.')}" if first.remedy else ""
            return f"not known: {first.message}{remedy}"
        worst = self.worst
        text = WHAT[self.label] if worst is None else worst.sentence
        if (left := self.in_part) is None or left.position is None:
            return text
        return f"{text} Read in part (line {left.position.line}): {left.message}."


def _badness(result: Result) -> tuple[Label, bool]:
    return result.label, result.delivery is not Delivery.ONCE


def worst_first(jobs: Iterable[Job]) -> list[Job]:
    """The jobs by what they may do: those of which nothing is known stand behind the bad ones."""

    def rank(job: Job) -> tuple[float, bool, str]:
        if job.plan is None:
            return -(Label.ASYNC + 0.5), False, str(job.file)
        return -job.label, job.same, str(job.file)

    return sorted(jobs, key=rank)


def document(jobs: Sequence[Job], folder: Path, others: int) -> b.Document:
    """A line for each job.

    Args:
        jobs: the worst first.
        folder: which was looked through.
        others: files that speak of streams and start nothing by themselves.
    """
    counts = Counter(WHAT[j.label] if j.plan else "not known" for j in jobs)
    summary = "; ".join(f"{text}: {count}" for text, count in counts.items())
    lead = f"{summary[0].upper()}{summary[1:]}." if summary else ""
    blocks: list[b.Block] = [
        b.Table(("Job", "On replay", "Why and what repairs it"), tuple(_rows(jobs, folder)))
    ]
    if others:
        blocks.append(
            b.paragraph(
                "1 further file speaks of streams and starts no query by itself."
                if others == 1
                else f"{others} further files speak of streams and start no query by themselves.",
                form="aside",
            )
        )
    title = f"{len(jobs)} streaming job{'s' * (len(jobs) != 1)}"
    return b.Document(title, tuple(blocks), b.code(folder), lead)


_ALIKE: Final = 5
"""So many more files are named of which nothing is known for the same reason."""


def _rows(jobs: Iterable[Job], folder: Path) -> Iterator[tuple[b.Words, ...]]:
    """A row for each job; one for all of which nothing is known for the same reason."""
    alike: dict[str, list[Job]] = {}
    for job in jobs:
        reason = job.text.replace(str(job.file), "it").replace(job.file.name, "it")
        alike.setdefault(str(job.file) if job.plan else reason, []).append(job)
    for first, *others in alike.values():
        place = b.Span(_place(first, folder), "code", first.file.resolve().as_uri())
        if first.plan is not None:
            label = b.Span(str(first.label), first.label.name.lower())
            yield place, label, b.Span(first.text, "prose")
            continue
        rest = "".join(f"; so is {_place(job, folder)}" for job in others[:_ALIKE])
        if len(others) > _ALIKE:
            rest += f"; so are {len(others) - _ALIKE} more"
        yield place, b.Span("not known", "soft"), f"{first.text}{rest}"


def _place(job: Job, folder: Path) -> str:
    """Where a job may give other rows; of one of which nothing is known, its own file."""
    at = Path(job.position.file)
    if job.plan is None and at.resolve() != job.file.resolve():
        return f"{shown(job.file, folder)}:1"
    return f"{shown(at, folder)}:{job.position.line}"


def shown(file: Path, folder: Path) -> str:
    """The file as it is called from the folder, where it lies below."""
    file, folder = file.resolve(), folder.resolve()
    return str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file)


def sarif(jobs: Iterable[Job], folder: Path) -> str:
    """A result for each job that may give different answers, or of which nothing is known."""
    rules: dict[str, dict[str, Any]] = {}
    results = []
    for job in jobs:
        if job.plan is None:
            diagnostic = job.diagnostics[0]
            rule, level = code_of(diagnostic), LEVELS[diagnostic.code.severity]
        elif job.same or job.worst is None:
            continue
        elif job.worst.plain and job.in_part is not None:
            rule, level = code_of(job.in_part), "note"
        else:
            rule = {
                "id": f"replay-{job.label.name.lower()}",
                "shortDescription": {"text": f"On replay: {WHAT[job.label]}"},
            }
            level = "warning" if job.label > Label.ASYNC else "note"
        rules[rule["id"]] = rule
        place = job.position
        file = shown(Path(place.file), folder)
        results.append(
            {
                "ruleId": rule["id"],
                "level": level,
                "message": {"text": job.text},
                "locations": [location(Position(file, place.line, place.column))],
            }
        )
    return dumps(log_of(rules, results))
