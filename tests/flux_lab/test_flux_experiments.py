"""The catalogue of experiments is complete; at small sizes the shapes hold (slow)."""

from __future__ import annotations

import pytest

from benchmarks import flux_page
from benchmarks.flux_experiments import CATALOGUE
from benchmarks.flux_experiments.experiment import Result, Row, failed
from blazes.document.charts import draw

QUICK = ("EX-1", "EX-2", "EX-3", "EX-4", "EX-5", "EX-6", "EX-10", "EX-12", "MTTF", "SCALE")
"""Experiments whose small size takes a few seconds."""


def test_every_experiment_of_the_specification_has_an_entry() -> None:
    expected = [f"EX-{n}" for n in range(1, 17)] + ["MTTF", "SCALE"]
    assert sorted(e.id for e in CATALOGUE) == sorted(expected)
    assert all(e.source and e.setup and e.title for e in CATALOGUE)


def test_a_shape_outside_its_bounds_fails_unless_it_is_known_to_differ() -> None:
    rows = (
        Row(what="fails", ours=2.0, within=(0.0, 1.0)),
        Row(what="holds", ours=0.5, within=(0.0, 1.0)),
        Row(what="known", ours=2.0, within=(0.0, 1.0), differs="because"),
        Row(what="large only", ours=2.0, within=(0.0, 1.0), quick=False),
        Row(what="no number", ours=float("nan"), within=(0.0, 1.0)),
    )
    assert [row.what for row in failed(Result(rows=rows), quick=True)] == ["fails", "no number"]
    assert len(failed(Result(rows=rows), quick=False)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_the_shape_of_the_figure_holds_at_a_small_size(name: str) -> None:
    experiment = next(e for e in CATALOGUE if e.id == name)
    result = experiment.run(True)
    wrong = [f"{r.what}: {r.ours:.4g} not in {r.within}" for r in failed(result, quick=True)]
    assert not wrong


def test_the_page_of_experiments_says_what_the_results_say() -> None:
    results = flux_page.load()
    assert [found["id"] for found in results] == [e.id for e in CATALOGUE]
    assert not [found["id"] for found in results if found["quick"]]
    assert flux_page.PAGE.read_text(encoding="utf-8") == flux_page.page(results)


def test_every_experiment_has_its_figure_and_no_check_fails() -> None:
    for found in flux_page.load():
        drawing = draw([flux_page.chart_of(c) for c in found["charts"]], title=found["title"])
        figure = flux_page.FIGURES / f"{found['id']}.svg"
        assert figure.read_text(encoding="utf-8") == drawing
        assert [row["what"] for row in found["rows"] if row["shape"] == "FAILS"] == []


def test_the_text_of_a_result_is_that_of_the_experiment() -> None:
    entries = {e.id: e for e in CATALOGUE}
    for found in flux_page.load():
        experiment = entries[found["id"]]
        assert (found["title"], found["setup"]) == (experiment.title, experiment.setup)
        assert tuple(found["derived"]) == experiment.derived
