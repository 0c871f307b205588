"""Every derivation that the paper prints (section VI), and the table of specification section 4."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from annotations.dataflow import Dataflow, Endpoint
from annotations.file import load, loads
from annotations.file.compact import parse_seal
from annotations.vocabulary import Label
from blazes.analysis import Analysis, Derivation, analyze
from blazes.coordination import Entry, Mode, Strategy, Vote, plan

LISTINGS = Path(__file__).parent.parent / "annotations" / "listings"
RULES = ("blazes", "icde14")


def sealed(dataflow: Dataflow, consumer: Endpoint, seal: str | None) -> Dataflow:
    """The dataflow with the source of that input sealed."""
    if seal is None:
        return dataflow
    (name,) = (
        each.name
        for each in dataflow.streams.values()
        if each.consumer == consumer and each.producer is None
    )
    stream = replace(dataflow.streams[name], seals=parse_seal(seal))
    return replace(dataflow, streams={**dataflow.streams, name: stream})


def wordcount(seal: str | None = None) -> Dataflow:
    dataflow, _ = load(LISTINGS / "wordcount.yaml")
    return sealed(dataflow, Endpoint("Splitter", "tweets"), seal)


def ad_network(query: str, seal: str | None = None) -> Dataflow:
    dataflow, _ = load(LISTINGS / "ad_network.yaml", variants={"Report": query})
    return sealed(dataflow, Endpoint("Report", "click"), seal)


def derivation(found: Analysis, component: str, output: str) -> Derivation:
    return next(
        each for each in found.derivations if (each.component, each.output) == (component, output)
    )


def tree(found: Analysis, component: str, output: str) -> list[str]:
    """The lines of a derivation as the paper prints them, one for each step, then the label."""
    at = derivation(found, component, output)
    steps = [
        f"{step.input} {step.path.annotation} ({step.rule})"
        + "".join(f" {each}" for each in step.adds)
        for step in at.steps
    ]
    return [*steps, str(at.label)]


def coordinated(dataflow: Dataflow, rules: str) -> list[Entry]:
    entries = plan(analyze(dataflow, rules=rules)).entries
    return [entry for entry in entries if entry.strategy is not Strategy.NONE]


# ---- VI-A: the Storm word count


@pytest.mark.parametrize("rules", RULES)
def test_wordcount_without_a_seal_is_run(rules: str) -> None:
    found = analyze(wordcount(), rules=rules)
    assert tree(found, "Splitter", "words") == ["Async CR (p)", "Async"]
    assert tree(found, "Count", "counts") == ["Async OW[batch,word] (R2) Taint", "Run"]
    assert tree(found, "Commit", "db") == ["Run CW (p)", "Run"]
    assert found.verdict is Label.RUN
    (entry,) = coordinated(wordcount(), rules)
    assert (entry.component, entry.strategy, entry.cause) == ("Count", Strategy.ORDER, "R2")
    assert entry.mode is Mode.RECORDED
    assert plan(found).verdict is Label.ASYNC


def test_wordcount_sealed_on_batch_as_printed() -> None:
    found = analyze(wordcount("Seal[batch]"), rules="icde14")
    assert tree(found, "Splitter", "words") == ["Seal[batch] CR (p)", "Seal[batch]"]
    assert tree(found, "Count", "counts") == ["Seal[batch] OW[batch,word] (p)", "Async"]
    assert tree(found, "Commit", "db") == ["Async CW (p)", "Async"]
    assert found.verdict is Label.ASYNC


def test_wordcount_sealed_on_batch_keeps_its_seal_by_s3() -> None:
    found = analyze(wordcount("Seal[batch]"))
    assert tree(found, "Count", "counts") == ["Seal[batch] OW[batch,word] (p)", "Seal[batch]"]
    assert tree(found, "Commit", "db") == ["Seal[batch] CW (p)", "Seal[batch]"]
    assert found.verdict is Label.SEAL


@pytest.mark.parametrize("rules", RULES)
def test_wordcount_sealed_on_batch_is_sealed_at_count_and_ordered_nowhere(rules: str) -> None:
    (entry,) = coordinated(wordcount("Seal[batch]"), rules)
    assert (entry.component, entry.strategy) == ("Count", Strategy.SEAL)
    assert (entry.inputs, entry.key, entry.vote) == (("words",), {"batch"}, Vote.UNANIMOUS)


# ---- VI-B: the ad network


@pytest.mark.parametrize("rules", RULES)
def test_thresh_needs_no_coordination(rules: str) -> None:
    found = analyze(ad_network("THRESH"), rules=rules)
    assert tree(found, "Report", "response") == ["Async CW (p)", "Async CR (p)", "Async"]
    assert tree(found, "Cache", "response") == ["Async CR (p)", "Async CW (p)", "Async"]
    assert found.verdict is Label.ASYNC
    assert plan(found).entries == ()


def test_poor_diverges_at_the_cache_as_printed() -> None:
    found = analyze(ad_network("POOR"), rules="icde14")
    report = derivation(found, "Report", "response")
    assert tree(found, "Report", "response") == [
        "Async CW (p)",
        "Async OR[id] (R1) NDRead[id]",
        "Inst",
    ]
    assert (report.rep, report.reconciled) == (True, ("C2",))
    cache = derivation(found, "Cache", "response")
    assert tree(found, "Cache", "response") == [
        "Async CR (p)",
        "Inst CW (R3) Taint",
        "Diverge",
    ]
    assert (cache.rep, cache.reconciled) == (True, ("C1",))
    assert found.verdict is Label.DIVERGE


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("seal", [None, "Seal[campaign]"])
def test_poor_is_ordered_at_request_and_click(rules: str, seal: str | None) -> None:
    found = analyze(ad_network("POOR", seal), rules=rules)
    assert found.verdict is Label.DIVERGE
    assert derivation(found, "Report", "response").label.label is Label.INST
    (entry,) = coordinated(ad_network("POOR", seal), rules)
    assert (entry.component, entry.strategy, entry.cause) == ("Report", Strategy.ORDER, "R1")
    assert entry.inputs == ("click", "request")
    assert plan(found).verdict is Label.ASYNC


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(("query", "key"), [("CAMPAIGN", "campaign"), ("WINDOW", "window")])
def test_campaign_and_window_are_sealed_at_report(rules: str, query: str, key: str) -> None:
    dataflow = ad_network(query, f"Seal[{key}]")
    found = analyze(dataflow, rules=rules)
    gate = ",".join(sorted(("id", key)))
    assert tree(found, "Report", "response") == [
        f"Seal[{key}] CW (p)",
        f"Async OR[{gate}] (R1) NDRead[{gate}]",
        "Async",
    ]
    assert tree(found, "Cache", "response") == ["Async CR (p)", "Async CW (p)", "Async"]
    assert found.verdict is Label.ASYNC
    (entry,) = coordinated(dataflow, rules)
    assert (entry.component, entry.strategy) == ("Report", Strategy.SEAL)
    assert (entry.inputs, entry.key) == (("click",), {key})


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("query", ["CAMPAIGN", "WINDOW"])
def test_without_a_seal_they_diverge(rules: str, query: str) -> None:
    found = analyze(ad_network(query), rules=rules)
    assert found.verdict is Label.DIVERGE
    assert plan(found).verdict is Label.ASYNC


def test_poor_fits_a_seal_on_campaign_if_each_ad_has_one_campaign() -> None:
    text = (LISTINGS / "ad_network_full.yaml").read_text(encoding="utf-8")
    dataflow, _ = loads(
        text.replace("fds: []", 'fds: ["id -> campaign"]'), variants={"Report": "POOR"}
    )
    assert analyze(dataflow).verdict is Label.ASYNC
    assert analyze(dataflow, rules="icde14").verdict is Label.DIVERGE
