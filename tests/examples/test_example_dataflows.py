"""What the analysis says of the examples, and that their texts agree. Starts no Spark."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from annotations.dataflow import Component
from annotations.file import load
from annotations.vocabulary import Label
from blazes.analysis import analyze
from blazes.cli import main
from blazes.coordination import Plan, Strategy, plan
from blazes.demo import dataflow as demo
from codegen.model import Flux
from codegen.stages import stages

EXAMPLES = Path(__file__).parents[2] / "examples"
AD_NETWORK = EXAMPLES / "ad_network" / "ad_network.yaml"
HOURLY = EXAMPLES / "ad_network" / "ad_network_hourly.yaml"
WORDCOUNT = EXAMPLES / "wordcount" / "wordcount.yaml"
UNSEALED = EXAMPLES / "wordcount" / "wordcount_unsealed.yaml"
SETTLEMENT = EXAMPLES / "settlement" / "settlement.yaml"


def planned(file: Path, query: str | None = None, *, rules: str = "blazes") -> Plan:
    dataflow, warnings = load(file, variants={"Report": query} if query else {})
    assert not warnings
    return plan(analyze(dataflow, rules=rules))


def strategies(result: Plan) -> dict[str, set[Strategy]]:
    found: dict[str, set[Strategy]] = {}
    for entry in result.entries:
        found.setdefault(entry.component, set()).add(entry.strategy)
    return found


@pytest.mark.parametrize(
    ("query", "verdict", "strategy"),
    [
        ("THRESH", Label.ASYNC, None),
        ("POOR", Label.DIVERGE, Strategy.ORDER),
        ("WINDOW", Label.DIVERGE, Strategy.ORDER),
        ("CAMPAIGN", Label.ASYNC, Strategy.SEAL),
    ],
)
def test_the_four_queries_need_what_the_paper_says(
    query: str, verdict: Label, strategy: Strategy | None
) -> None:
    result = planned(AD_NETWORK, query)
    assert result.analysis.verdict is verdict
    assert strategies(result) == ({"Report": {strategy}} if strategy else {})
    assert result.verdict <= Label.ASYNC


def test_a_seal_on_the_hour_fits_the_query_window() -> None:
    result = planned(HOURLY)
    assert result.analysis.verdict is Label.ASYNC
    assert strategies(result) == {"Report": {Strategy.SEAL}}


def test_a_replicated_order_runs_on_flux_sites() -> None:
    (report,) = (s for s in stages(planned(AD_NETWORK, "POOR")) if isinstance(s, Flux))
    assert report.replicas == 3
    assert [(step.gives, step.gate) for step in report.steps] == [("answers", ("id",))]


def test_the_seal_is_what_repairs_the_word_count() -> None:
    assert planned(WORDCOUNT).analysis.verdict is Label.SEAL
    unsealed = planned(UNSEALED)
    assert unsealed.analysis.verdict is Label.RUN
    assert strategies(unsealed) == {"Count": {Strategy.ORDER}}


def test_the_two_word_counts_differ_by_the_seal_alone() -> None:
    sealed, unsealed = load(WORDCOUNT)[0], load(UNSEALED)[0]
    tweets = replace(
        sealed.streams["tweets"],
        seals=(),
        producer_column=None,
        punctuation=None,
        producers=None,
    )
    assert dict(sealed.streams) | {"tweets": tweets} == dict(unsealed.streams)
    assert {name: uncopied(each) for name, each in sealed.components.items()} == {
        **unsealed.components
    }


def uncopied(component: Component) -> Component:
    """The component without what its SQL says of copies, which is read for seals only."""
    return replace(component, paths=tuple(replace(p, lineage=None) for p in component.paths))


def test_the_hourly_ad_network_runs_the_same_query_as_its_variant() -> None:
    hourly = load(HOURLY)[0].components
    variant = load(AD_NETWORK, variants={"Report": "WINDOW"})[0].components
    assert hourly["Cache"] == variant["Cache"]
    assert hourly["Report"].implementations == variant["Report"].implementations
    assert [(p.source, p.target, p.annotation) for p in hourly["Report"].paths] == [
        (p.source, p.target, p.annotation) for p in variant["Report"].paths
    ]


def test_the_demonstration_runs_the_query_of_the_example() -> None:
    report = load(AD_NETWORK, variants={"Report": "CAMPAIGN"})[0].components["Report"]
    assert demo.query() == report.implementations["response"].sql


def test_the_demonstration_shows_three_severities() -> None:
    assert demo.verdicts() == {"uncoordinated": "Inst", "ordered": "Run", "sealed": "Async"}


def test_the_settlement_needs_two_seals_and_one_order() -> None:
    result = planned(SETTLEMENT)
    assert result.analysis.verdict is Label.RUN
    assert strategies(result) == {
        "Limit": {Strategy.ORDER},
        "Settlement": {Strategy.SEAL},
        "Reconcile": {Strategy.SEAL},
    }
    [limit] = [entry for entry in result.entries if entry.component == "Limit"]
    assert limit.cause == "R4"
    assert {frozenset({"card"}), frozenset({"day"})} == {a.seal for a in limit.alternatives}


def test_only_the_dependency_makes_the_settlement_fit_its_seal() -> None:
    with_it = load(SETTLEMENT)[0]
    without = replace(with_it, fds=())
    for result in (plan(analyze(without)), planned(SETTLEMENT, rules="icde14")):
        assert strategies(result)["Settlement"] == {Strategy.ORDER}
        assert strategies(result)["Reconcile"] == {Strategy.ORDER}


ROOT = Path(__file__).parents[2]
FOLDER = Path("examples") / "pipelines"


def commands() -> list[list[str]]:
    (fence,) = re.findall(r"```\n(.*?)```", (ROOT / FOLDER / "README.md").read_text(), re.DOTALL)
    lines = [shlex.split(line) for line in fence.splitlines()]
    return [line[1:] for line in lines if line[0] == "blazes"]


def test_the_commands_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / FOLDER, tmp_path / FOLDER)
    (tmp_path / "target").mkdir()
    monkeypatch.chdir(tmp_path)
    printed = {}
    for command in commands():
        not_carried = command[0] == "import"  # customers has no code that can be compiled
        assert main(command) == not_carried, command
        printed[" ".join(command[:2])] = capsys.readouterr().out
    assert len(printed) == 4
    assert "distinct_orders → out  OW[channel,day]  derived" in printed[
        "analyze examples/pipelines/spark-pipeline.yml"
    ].replace("->", "→")
    imported = (tmp_path / "target" / "shop.yaml").read_text(encoding="utf-8")
    assert imported == (ROOT / FOLDER / "shop.yaml").read_text(encoding="utf-8")
    assert "R2" in printed["explain target/shop.yaml"]


EXAMPLE = ROOT / "examples" / "orders"


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_both_sinks_have_each_statement_once_though_the_driver_is_killed(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("data", "target", "__pycache__")
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "orders", ignore=ignore))
    size = ["--kills", "3", "--shops", "4", "--days", "6", "--orders", "12"]
    done = subprocess.run(
        [sys.executable, folder / "run.py", *size],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "statements in the table: 24, each once\n" in done.stdout
    assert "statements in the topic: 24, each once\n" in done.stdout


def test_the_comparison_notices_what_is_missing_and_what_is_there_twice() -> None:
    spec = importlib.util.spec_from_file_location("orders_expected", EXAMPLE / "expected.py")
    assert spec is not None
    assert spec.loader is not None
    expected = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(expected)
    truth = Counter({("shop-1", "2026-03-02"): 1, ("shop-2", "2026-03-02"): 1})
    assert expected.compared(truth.elements(), truth)[0]
    for found in (list(truth)[:1], [*truth, *list(truth)[:1]], [*list(truth)[:1], ("shop-3", "")]):
        assert not expected.compared(found, truth)[0]
