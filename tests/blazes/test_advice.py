"""Advice: every alternative, applied, gives the labels that it promises; `--fix` writes it down."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from reference import Reference, handed_on
from strategies import many_dataflows

from annotations.dataflow import Component, Dataflow, Stream
from annotations.dataflow import Path as FlowPath
from annotations.dependencies import closure
from annotations.diagnostics import BadInput
from annotations.file import load, loads
from annotations.file.additions import with_additions
from annotations.file.insertions import CannotWrite
from annotations.vocabulary import FunctionalDependency, Key, Label, Within
from annotations.whitebox.path_text import path_text
from blazes.advice import Advisor, Alternative, Depending, Needs, Rewriting, Sealing
from blazes.advice_text import lines
from blazes.analysis import analyze, explore
from blazes.cli import main
from blazes.coordination import Plan, Strategy, plan
from blazes.report.result_schema import result_schema

RULES = ("blazes", "icde14")
TARGETS = (Label.ASYNC, Label.RUN, Label.INST)
CASES = Path(__file__).parent.parent / "cases" / "advice.md"
CASE = re.compile(
    r"^## (?P<title>.+)\n\n```yaml\n(?P<yaml>(?:.*\n)*?)```\n"
    r"```text advice\n(?P<found>(?:.*\n)*?)```$",
    re.MULTILINE,
)
GOLDEN = Path(__file__).parent.parent / "golden" / "report"


def found_for(text: str) -> str:
    dataflow, _ = loads(text)
    advisor = Advisor(plan(analyze(dataflow)))
    told = []
    for component in advisor.components:
        advice = advisor.of(component)
        assert advice is not None
        told.append(f"{component}:")
        told += [f"- {line}" for line in lines(advice, dataflow)]
    return "".join(f"{line}\n" for line in told)


@pytest.mark.parametrize(
    "case",
    list(CASE.finditer(CASES.read_text(encoding="utf-8"))),
    ids=lambda case: case["title"],
)
def test_the_advice_stands_beside_its_dataflow(case: re.Match[str], update_goldens: bool) -> None:
    found = found_for(case["yaml"])
    if update_goldens:
        old = case["found"] + "```"
        text = CASES.read_text(encoding="utf-8")
        whole = case[0]
        CASES.write_text(text.replace(whole, whole[: -len(old)] + found + "```"), encoding="utf-8")
        return
    assert found == case["found"]


def test_every_heading_is_a_case() -> None:
    text = CASES.read_text(encoding="utf-8")
    assert len(re.findall("^## ", text, re.MULTILINE)) == len(list(CASE.finditer(text)))


def applied(dataflow: Dataflow, each: Alternative) -> Dataflow:
    """The dataflow with an alternative, made here a second time."""
    streams, fds = dict(dataflow.streams), list(dataflow.fds)
    for change in each.changes:
        if isinstance(change, Sealing):
            stream = streams[change.stream]
            streams[stream.name] = replace(stream, seals=(*stream.seals, change.key))
        elif isinstance(change, Depending):
            fds.append(change.fd)
    return replace(dataflow, streams=streams, fds=tuple(fds))


def alternatives(decided: Plan) -> Iterator[tuple[str, Alternative]]:
    advisor = Advisor(decided)
    for component in advisor.components:
        advice = advisor.of(component)
        assert advice is not None
        for each in advice.alternatives:
            yield component, each


def ordered(decided: Plan, component: str | None = None) -> Counter[str]:
    """How often which path is ordered, of the component or of all."""
    return Counter(
        f"{each.component}: {each.path}"
        for each in decided.entries
        if each.strategy is Strategy.ORDER and component in (None, each.component)
    )


def sinks(dataflow: Dataflow) -> list[str]:
    leaving = [s.name for s in dataflow.streams.values() if s.consumer is None]
    return leaving or list(dataflow.streams)


@pytest.mark.parametrize("rules", RULES)
def test_an_alternative_gives_what_it_promises_and_nothing_worse(rules: str) -> None:
    seen = dict.fromkeys((Sealing, Depending), 0)
    behind = together = 0
    for number, dataflow in enumerate(many_dataflows(240, seed=41)):
        decided = plan(analyze(dataflow, rules=rules), target=TARGETS[number % 3])
        before = decided.analysis.labels
        for component, each in alternatives(decided):
            after = applied(dataflow, each)
            chosen = handed_on(explore(after, rules=rules))
            labels = Reference(after, rules, handed_on=chosen).labels
            assert {name: label.label for name, label in labels.items()} == each.labels
            assert all(each.labels[name] <= label.label for name, label in before.items())
            assert max(each.labels[name] for name in sinks(dataflow)) == each.verdict
            better = {
                name: (before[name].label, each.labels[name])
                for name in sinks(dataflow)
                if each.labels[name] < before[name].label > Label.ASYNC
            }
            assert each.results == better
            assert better
            planned = plan(analyze(after, rules=rules), target=decided.target)
            assert ordered(planned).total() == each.orders
            assert ordered(planned, component) < ordered(decided, component)
            for name, key in each.gives.items():
                assert key in planned.repaired[name].keys
            together += len(each.elsewhere) > 0
            for change in each.changes:
                seen[type(change)] += 1
                behind += isinstance(change, Sealing) and bool(each.gives)
    assert seen[Sealing] > 40
    assert behind > 2
    assert together > 2
    assert seen[Depending] > 2 or rules == "icde14"


def test_a_seal_is_advised_where_producers_can_send_it() -> None:
    seen = with_id = 0
    for dataflow in many_dataflows(200, seed=42):
        for _, each in alternatives(plan(analyze(dataflow))):
            for change in each.changes:
                if not isinstance(change, Sealing):
                    continue
                stream = dataflow.streams[change.stream]
                assert stream.producer is None
                assert stream.label is None
                assert stream.schema is None or change.key <= stream.schema.keys()
                assert change.key not in stream.seals
                if stream.id:
                    assert not closure(change.key, dataflow.fds) >= set(stream.id)
                    with_id += 1
                seen += 1
    assert seen > 80
    assert with_id > 8


def test_alternatives_are_ranked_by_who_has_to_act_and_by_what_they_reach() -> None:
    several = 0
    for dataflow in many_dataflows(120, seed=43):
        advisor = Advisor(plan(analyze(dataflow)))
        for component in advisor.components:
            advice = advisor.of(component)
            assert advice is not None
            ranks = [(each.needs, each.verdict, each.orders) for each in advice.alternatives]
            assert ranks == sorted(ranks)
            several += len(ranks) > 1
    assert several > 4


class Writer:
    """Random dataflows as files, in the layouts that people use."""

    def __init__(self, source: random.Random) -> None:
        self.source = source

    def text(self, dataflow: Dataflow) -> str:
        parts = ["# a dataflow\n", "name: random  # its name\n", "components:\n"]
        parts += map(self.component, dataflow.components.values())
        parts.append("streams:\n")
        parts += map(self.stream, dataflow.streams.values())
        parts.append(self.fds(dataflow.fds))
        end = self.source.choice(("\n", "\n", "\r\n"))
        return self.source.choice(("", "", "\ufeff")) + "".join(parts).replace("\n", end)

    def component(self, component: Component) -> str:
        rep = "" if component.rep is None else f"    Rep: {str(component.rep).lower()}\n"
        paths = "".join(f"      - {path_text(p, p.lineage)}\n" for p in component.paths)
        return f"  {component.name}:\n{rep}    annotation:\n{paths}"

    def stream(self, stream: Stream) -> str:
        items = []
        for side, end in (("from", stream.producer), ("to", stream.consumer)):
            items += [f"{side}: {end}"] if end else []
        if stream.rep is not None:
            items.append("Rep: true")
        if stream.label is not None:
            items.append(f"label: {stream.label}")
        if stream.id and stream.producer is None:
            items.append(f"id: [{', '.join(stream.id)}]")
        if stream.schema is not None:
            attributes = ", ".join(f"{name}: {text}" for name, text in stream.schema.items())
            items.append(f"schema: {{{attributes}}}")
        flow = self.source.random() < 0.5
        if stream.seals:
            items.insert(self.source.randrange(len(items) + 1), self.seal(stream.seals, flow))
        if flow:
            return f"  {stream.name}: {{{', '.join(items)}}}  # ends\n"
        return f"  {stream.name}:  # begins\n    # its ends\n" + "".join(
            f"    {item}\n" for item in items
        )

    def seal(self, seals: Sequence[Key], flow: bool) -> str:
        keys = [f"[{', '.join(sorted(key))}]" for key in seals]
        if len(keys) == 1:
            return f"seal: {self.source.choice((keys[0], f'[{keys[0]}]'))}"
        if flow or self.source.random() < 0.5:
            return f"seal: [{', '.join(keys)}]"
        return "seal:\n" + "\n".join(f"      - {key}" for key in keys)

    def fds(self, fds: Sequence[FunctionalDependency]) -> str:
        if not fds:
            return self.source.choice(("", "fds: []\n", "# the end"))
        if self.source.random() < 0.5:
            return "fds: [" + ", ".join(f'"{fd}"' for fd in fds) + "]\n"
        return "fds:\n" + "".join(f'  - "{fd}"\n' for fd in fds)


def added_only(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether everything of before is there, in its order: characters, or lines."""
    rest = iter(after)
    return all(each in rest for each in before)


def readable(dataflow: Dataflow) -> Dataflow:
    """Without most of what a file would be refused for."""
    streams = {
        name: replace(
            stream,
            producers=None,
            id=stream.id if stream.producer is None and stream.schema is None else (),
            schema=stream.schema or None,
            seals=tuple(
                key
                for key in dict.fromkeys(stream.seals)
                if stream.schema is None or key <= stream.schema.keys()
            ),
        )
        for name, stream in dataflow.streams.items()
    }
    components = {
        name: replace(component, paths=tuple(map(sayable, first_of_each(component.paths))))
        for name, component in dataflow.components.items()
    }
    return replace(dataflow, streams=streams, components=components)


def first_of_each(paths: Sequence[FlowPath]) -> list[FlowPath]:
    """A file has one path between two interfaces."""
    return list({str(path): path for path in reversed(paths)}.values())


def sayable(path: FlowPath) -> FlowPath:
    return replace(path, within=Within.SET) if path.annotation.kind.confluent else path


def test_what_is_written_is_analysed_as_promised_and_nothing_else_is_touched(
    tmp_path: Path,
) -> None:
    source = random.Random(44)
    file = tmp_path / "random.yaml"
    written = lines_only = refused = 0
    for dataflow in many_dataflows(160, seed=44):
        said = readable(dataflow)
        text = Writer(source).text(said)
        file.write_bytes(text.encode("utf-8"))
        try:
            there, _ = load(file)
        except BadInput:  # names outside of a schema, which the front end refuses
            refused += 1
            continue
        for _, each in alternatives(plan(analyze(there))):
            seals = [(c.stream, c.key) for c in each.changes if isinstance(c, Sealing)]
            fds = [c.fd for c in each.changes if isinstance(c, Depending)]
            new, _ = with_additions(there, seals=seals, fds=fds)
            assert added_only(text, new)
            after, _ = loads(new)
            labels = {name: label.label for name, label in analyze(after).labels.items()}
            assert labels == each.labels
            written += 1
            flow = any(f"  {name}: {{" in text for name, _ in seals)
            if not flow and not fds and not any(there.streams[name].seals for name, _ in seals):
                assert added_only(text.splitlines(), new.splitlines())
                lines_only += 1
    assert written > 40
    assert lines_only > 8
    assert refused < 40


def sealed(file: Path, seal: str) -> Dataflow:
    file.write_text(
        "components:\n  C: {annotation: {from: a, to: b, label: 'OW[k]'}}\n"
        f"streams:\n  a:\n    to: C.a\n    {seal}\n  b: {{from: C.b}}\n",
        encoding="utf-8",
    )
    dataflow, _ = load(file)
    return dataflow


@pytest.mark.parametrize(
    "seal",
    ["seal: [d]", "seal: [[d]]", "seal: d", "seal: [ [d] ]", "seal:\n      - [d]"],
)
def test_a_key_is_added_beside_every_way_of_writing_one(seal: str, tmp_path: Path) -> None:
    dataflow = sealed(tmp_path / "sealed.yaml", seal)
    text, _ = with_additions(dataflow, seals=[("a", frozenset("k"))])
    after, _ = loads(text)
    assert set(after.streams["a"].seals) == {frozenset("d"), frozenset("k")}


@pytest.mark.parametrize("seal", ["seal: Seal[d]", "seal:\n      - d", 'seal: ["d"]'])
def test_what_cannot_be_written_is_said_with_the_words_to_write(seal: str, tmp_path: Path) -> None:
    dataflow = sealed(tmp_path / "sealed.yaml", seal)
    with pytest.raises(CannotWrite) as refused:
        with_additions(dataflow, seals=[("a", frozenset("k"))])
    assert refused.value.remedy == "add seal: [k] to a by hand"


AD_NETWORK = (GOLDEN / "ad_network.yaml").read_text(encoding="utf-8")


def fix(tmp_path: Path, text: str, *arguments: str) -> tuple[int, Path]:
    file = tmp_path / "flow.yaml"
    file.write_text(text, encoding="utf-8")
    return main(["analyze", str(file), "--fix", *arguments]), file


def test_fix_writes_the_first_seal_and_says_what_is_left_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, file = fix(tmp_path, AD_NETWORK, "--variant", "Report=CAMPAIGN")
    assert status == 0
    printed = capsys.readouterr().out
    text = file.read_text(encoding="utf-8")
    assert text == AD_NETWORK.replace("clicks:    {to", "clicks:    {seal: [campaign], to")
    assert "+  clicks:    {seal: [campaign], to: Report.click" in printed
    assert "verdict: Async, it was Diverge" in printed
    assert "left to do: every producer of clicks sends a punctuation for each campaign" in printed
    assert "`producer`, `punctuation` and `producers` of clicks" in printed
    assert main(["analyze", str(file), "--variant", "Report=CAMPAIGN", "--strict"]) == 0


def test_fix_tells_what_it_would_do_in_a_dry_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, file = fix(tmp_path, AD_NETWORK, "--variant", "Report=CAMPAIGN", "--dry-run")
    assert status == 0
    assert "would write seal: [campaign] on clicks" in capsys.readouterr().out
    assert file.read_text(encoding="utf-8") == AD_NETWORK


def test_a_claim_about_the_data_is_written_only_when_it_is_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed = (GOLDEN / "ad_network_sealed.yaml").read_text(encoding="utf-8")
    poor = ("--variant", "Report=POOR")
    _, file = fix(tmp_path, sealed, *poor)
    assert "fds" not in file.read_text(encoding="utf-8")
    assert "seal: [[campaign], [id]]" in file.read_text(encoding="utf-8")
    _, file = fix(tmp_path, sealed, *poor, "--alternative", "Report=1")
    assert file.read_text(encoding="utf-8") == sealed + 'fds: ["id -> campaign"]\n'
    assert "each id has only one campaign; nothing checks it" in capsys.readouterr().out


def test_streams_that_nobody_wrote_are_written(tmp_path: Path) -> None:
    text = (GOLDEN / "wordcount.yaml").read_text(encoding="utf-8")
    status, file = fix(tmp_path, text)
    assert status == 0
    assert file.read_text(encoding="utf-8") == text + (
        "streams:\n"
        "  tweets: {to: Splitter.tweets, seal: [batch]}\n"
        "  words: {from: Splitter.words, to: Count.words}\n"
        "  counts: {from: Count.counts, to: Commit.counts}\n"
        "  db: {from: Commit.db}\n"
    )


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("Report", "expected COMPONENT=NUMBER"),
        ("Report=9", "Report has 2 alternatives"),
        ("Reprot=1", "did you mean Report?"),
    ],
)
def test_a_wrong_choice_is_refused(
    chosen: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--variant", "Report=CAMPAIGN", "--alternative", chosen)
    status, file = fix(tmp_path, AD_NETWORK, *arguments)
    assert status == 2
    assert said in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == AD_NETWORK


def test_where_nothing_can_be_written_the_file_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "components:\n  C: {annotation: {from: a, to: b, label: 'OW[*]'}}\n"
    status, file = fix(tmp_path, text)
    assert status == 0
    assert "nothing was written: C stays ordered" in capsys.readouterr().out
    assert file.read_text(encoding="utf-8") == text


def test_a_query_that_does_not_split_is_advised_to_be_changed_and_not_sealed(
    tmp_path: Path,
) -> None:
    (case,) = (
        case
        for case in CASE.finditer(CASES.read_text(encoding="utf-8"))
        if case["title"] == "a query that has to be changed first"
    )
    dataflow, _ = loads(case["yaml"])
    ((_, each),) = alternatives(plan(analyze(dataflow)))
    assert each.needs is Needs.OWNER
    assert {type(change) for change in each.changes} == {Sealing, Rewriting}
    sealed = applied(dataflow, each)
    assert analyze(sealed).verdict == analyze(dataflow).verdict
    _, file = fix(tmp_path, case["yaml"])
    assert file.read_text(encoding="utf-8") == case["yaml"]


@pytest.mark.parametrize("command", ["analyze", "plan"])
def test_the_advice_is_in_the_json_result(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(GOLDEN / "ad_network.yaml")
    assert main([command, file, "--variant", "Report=CAMPAIGN", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (advice,) = found["advice"]
    first = advice["alternatives"][0]
    assert first["changes"] == [{"change": "seal", "stream": "clicks", "key": ["campaign"]}]
    assert (first["needs"], first["who"], first["verdict"]) == ("producers", ["clicks"], "Async")
    (held,) = first["cost"]["holds"]
    assert held["columns"] == ["campaign", "id", "window"]
    assert held["bytes_per_record"] == 12
    assert advice["order"]["zookeeper"]["places"] == "per batch"
    if command == "analyze":
        jsonschema.validate(found, result_schema())
