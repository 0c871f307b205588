"""Random dataflows, made complete: what is compiled keeps the plan, and the runtime takes it."""

from __future__ import annotations

import ast
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from annotations.dataflow import Dataflow, External, Implementation, Producers, Punctuation
from annotations.diagnostics import BadInput
from blazes.analysis import analyze
from blazes.coordination import Entry, Plan, Strategy, plan
from codegen.emit import emit
from codegen.explain import explain
from codegen.model import Channel, Flux, Order, Seal, Stages, Transform, Unit, Way
from codegen.stages import stages
from tests.strategies import many_dataflows

pytestmark = pytest.mark.slow

COUNT = 700
SQL = Implementation(sql="SELECT * FROM p JOIN q JOIN r")
SCHEMA = MappingProxyType({"a": "INT", "b": "INT", "c": "INT"})


def completed(dataflow: Dataflow, source: random.Random) -> Dataflow:
    """The dataflow with sources, implementations and everything else that a job needs."""
    components = {
        name: replace(
            each,
            implementations={path.target: SQL for path in each.paths},
            replicas=source.choice((1, 3)) if each.rep else 1,
            output_mode="append",
        )
        for name, each in dataflow.components.items()
    }
    streams = {
        name: replace(
            each,
            schema=each.schema if each.producer is None else SCHEMA,
            source=External("rate") if each.producer is None else None,
            producer_column="a" if each.producer is None else None,
            punctuation=Punctuation("a = 0", "b") if each.seals else None,
            producers=Producers("one") if each.producer is None else None,
        )
        for name, each in dataflow.streams.items()
    }
    return replace(dataflow, components=components, streams=streams)


def compiled() -> Iterator[tuple[Plan, Stages | BadInput]]:
    source = random.Random(7)
    for dataflow in many_dataflows(COUNT, seed=7):
        decided = plan(analyze(completed(dataflow, source)))
        try:
            yield decided, stages(decided)
        except BadInput as refused:
            yield decided, refused


@pytest.fixture(scope="module")
def tried() -> list[tuple[Plan, Stages | BadInput]]:
    return list(compiled())


@pytest.fixture(scope="module")
def jobs(tried: list[tuple[Plan, Stages | BadInput]]) -> list[tuple[Plan, Stages]]:
    return [(decided, job) for decided, job in tried if isinstance(job, Stages)]


def units(job: Stages) -> Iterator[Unit]:
    return (stage for stage in job if isinstance(stage, Unit) and stage.component)


def outputs_of(unit: Unit) -> list[str]:
    """A Flux stage computes the outputs of all of its steps."""
    if isinstance(unit, Flux):
        return [step.name for step in unit.steps]
    return [f"{unit.component}.{unit.output}"]


def entries_of(decided: Plan, unit: Unit) -> list[Entry]:
    outputs = outputs_of(unit)
    return [e for e in decided.entries if f"{e.component}.{e.path.target}" in outputs]


def test_the_sweep_has_some_of_everything(
    tried: list[tuple[Plan, Stages | BadInput]], jobs: list[tuple[Plan, Stages]]
) -> None:
    kinds = Counter(
        (type(unit).__name__, getattr(unit, "way", None), unit.replica is not None)
        for _, job in jobs
        for unit in units(job)
    )
    assert kinds["Seal", None, False] > 9
    assert kinds["Seal", None, True] > 2
    assert kinds["Order", None, False] > 45
    assert kinds["Flux", None, False] > 20
    assert any(len(s.steps) > 1 for _, job in jobs for s in job if isinstance(s, Flux))
    assert kinds["Transform", Way.ACCUMULATING, True] > 4
    assert kinds["Transform", Way.NATIVE, False] > 20
    assert kinds["Transform", Way.RECORD_WISE, False] > 45
    assert any(isinstance(s, Channel) and s.loop for _, job in jobs for s in job)
    refused = len(tried) - len(jobs)
    assert 0.2 < refused / COUNT < 0.9


def test_a_stage_stands_after_its_inputs(jobs: list[tuple[Plan, Stages]]) -> None:
    for _, job in jobs:
        ids = [stage.id for stage in job]
        assert len(set(ids)) == len(ids)
        for number, stage in enumerate(job):
            for id in stage.inputs:
                loop = isinstance(stage, Channel) and stage.loop
                assert id in ids if loop else id in ids[:number]


def test_every_output_that_is_read_has_its_stage(jobs: list[tuple[Plan, Stages]]) -> None:
    for decided, job in jobs:
        dataflow = decided.analysis.dataflow
        wanted = {str(each.producer) for each in dataflow.streams.values() if each.producer}
        assert {name for unit in units(job) for name in outputs_of(unit)} == wanted


def test_the_plan_is_kept(jobs: list[tuple[Plan, Stages]]) -> None:
    """A path gets the strategy of its plan, never less; confluent outputs are not coordinated."""
    for decided, job in jobs:
        for unit in units(job):
            strategies = {entry.strategy for entry in entries_of(decided, unit)}
            if Strategy.ORDER in strategies:
                assert isinstance(unit, Order | Flux)
            elif Strategy.SEAL in strategies:
                assert isinstance(unit, Seal)
            else:
                assert isinstance(unit, Transform | Flux)
                assert getattr(unit, "watermark", None) is None


def test_a_seal_waits_for_all_that_the_plan_names(jobs: list[tuple[Plan, Stages]]) -> None:
    for decided, job in jobs:
        for unit in units(job):
            if isinstance(unit, Seal):
                entries = entries_of(decided, unit)
                assert all(set(each.inputs) <= unit.waits.keys() for each in entries)
                assert all(frozenset(unit.key) == each.key for each in entries)


def test_an_order_takes_all_that_the_plan_names(jobs: list[tuple[Plan, Stages]]) -> None:
    for decided, job in jobs:
        for unit in units(job):
            if isinstance(unit, Order) or (isinstance(unit, Flux) and len(unit.steps) == 1):
                named = {i for each in entries_of(decided, unit) for i in each.inputs}
                assert named <= unit.writes.keys() | unit.reads.keys()


def test_nothing_replicated_is_ordered_on_spark(jobs: list[tuple[Plan, Stages]]) -> None:
    for decided, job in jobs:
        for unit in units(job):
            assert not (isinstance(unit, Order) and decided.analysis.replicated[unit.component])


def test_every_member_of_a_cycle_is_monotone(jobs: list[tuple[Plan, Stages]]) -> None:
    for _, job in jobs:
        after = {stage.id: set(stage.inputs) for stage in job}
        for unit in units(job):
            reached, todo = set[str](), [unit.id]
            while todo:
                new = after[todo.pop()] - reached
                reached |= new
                todo += new
            if unit.id in reached:
                assert isinstance(unit, Transform)
                assert unit.monotone


def test_the_runtime_takes_every_job(jobs: list[tuple[Plan, Stages]], tmp_path: Path) -> None:
    spark = pytest.importorskip("flux_runtime.spark")
    for decided, job in jobs:
        text = emit(job)
        names: dict[str, object] = {"__name__": "job", "__file__": str(tmp_path / "job.py")}
        exec(compile(ast.parse(text), "job.py", "exec"), names)
        declared = spark.Job(root=tmp_path, results=tmp_path / "results")
        try:
            names["build"](declared)  # type: ignore[operator]
        except Exception as error:
            raise AssertionError(f"{error}\n{decided.analysis.dataflow}\n{text}") from error
        queries = {
            unit.name
            for unit in units(job)
            if not (isinstance(unit, Transform) and unit.way is Way.RECORD_WISE)
        }
        assert queries <= declared.units.keys()


def test_every_job_can_be_explained(jobs: list[tuple[Plan, Stages]]) -> None:
    for _, job in jobs:
        text = explain(job)
        assert all(len(line) <= 120 for line in text.splitlines())
        assert job.to_json()
