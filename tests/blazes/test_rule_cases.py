"""Runs tests/cases/{inference,reconciliation,cycles,plan,delivery}.md: dataflows and findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from reference_delivery import seen_between_paths

from annotations.file import loads
from annotations.vocabulary import Label, StreamLabel
from blazes.analysis import Analysis, Derivation
from blazes.analysis import analyze as analyze_dataflow
from blazes.coordination import Entry, Plan, Strategy, plan
from blazes.core.deliveries import Delivered
from blazes.core.rules import RULES
from blazes.delivery_checks import delivery_findings
from blazes.report.results import repair_sentence

FOLDER = Path(__file__).parent.parent / "cases"
FILES = ("inference.md", "reconciliation.md", "cycles.md", "plan.md", "delivery.md")
CASE = re.compile(
    r"^## (?P<title>.+)\n(?P<about>[^#]*?)```yaml(?P<options>.*)\n(?P<yaml>(?:.*\n)*?)```\n"
    r"```text (?P<shown>\w+)\n(?P<found>(?:.*\n)*?)```$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Case:
    title: str
    rules: str
    target: Label
    text: str
    shown: str
    expected: str

    @property
    def named(self) -> set[str]:
        """The rules at the head of the title."""
        found = set()
        for word in self.title.split():
            if word not in RULES:
                break
            found.add(word)
        return found

    def plan(self) -> Plan:
        dataflow, _ = loads(self.text)
        return plan(analyze_dataflow(dataflow, rules=self.rules), target=self.target)


def read(match: re.Match[str]) -> Case:
    rules, target = "blazes", Label.ASYNC
    for option in match["options"].split():
        if option.startswith("target="):
            target = Label.parse(option.removeprefix("target="))
        else:
            rules = option
    return Case(match["title"], rules, target, match["yaml"], match["shown"], match["found"])


def cases() -> Iterator[Case]:
    for name in FILES:
        yield from map(read, CASE.finditer((FOLDER / name).read_text(encoding="utf-8")))


CASES = list(cases())


def derivation_line(found: Derivation) -> str:
    steps = "; ".join(
        f"{step.path} {step.input} {step.path.annotation} ({step.rule})"
        + "".join(f" {each}" for each in step.adds)
        for step in found.steps
    )
    rep = " Rep" if found.rep else ""
    by = f" ({', '.join(found.reconciled)})" if found.reconciled else ""
    return f"{found.component}.{found.output}{rep}: {steps} =>{by} {found.label}"


def entry_line(entry: Entry) -> str:
    line = f"{entry.component} {entry.path}: {entry.strategy.value}"
    if entry.strategy is Strategy.SEAL:
        assert entry.key is not None
        assert entry.vote is not None
        assert entry.release is not None
        keys = [
            f"{interface}[{','.join(sorted(key))}]"
            for interface, key in sorted(entry.seals.items())
        ]
        same = len(set(entry.seals.values())) == 1
        waits = ", ".join(entry.inputs if same else keys)
        return (
            f"{line} on [{','.join(sorted(entry.key))}], waits for {waits} "
            f"({', '.join(entry.streams)}), vote {entry.vote.value}, release {entry.release.value}"
            + "".join(f", dedup {each.stream} by [{','.join(each.id)}]" for each in entry.dedup)
        )
    if entry.strategy is Strategy.ORDER:
        assert entry.scope is not None
        assert entry.mode is not None
        line += f" {', '.join(entry.inputs)}, {entry.scope.value}, {entry.mode.value}"
    line += f" ({entry.cause or 'p'})"
    for each in entry.alternatives:
        line += f"\n    or seal {', '.join(each.streams)} on [{','.join(sorted(each.seal))}]"
    for refused in entry.refused:
        line += f"\n    no seal on [{','.join(sorted(refused.seal))}]: {refused.why.reason}"
    return line


def delivery_lines(
    labels: Mapping[str, StreamLabel], deliveries: Mapping[str, Delivered]
) -> Iterator[str]:
    for name, label in labels.items():
        delivered = deliveries.get(name, Delivered())
        known = "" if delivered.id is None else f" by {','.join(sorted(delivered.id))}"
        yield f"{name}: {label}, {delivered.label}{known}"


def repair_lines(found: Plan) -> Iterator[str]:
    for each in found.repairs.items:
        yield repair_sentence(each)
    for left in found.repairs.unrepaired:
        yield f"not repaired: {left.origin} ({left.cause}); id on {', '.join(left.alternatives)}"
    if found.analysis.withheld:
        yield f"withheld: {', '.join(found.analysis.withheld)}"
    for told in delivery_findings(found):
        assert told.position is not None
        yield f"{told.code.id} {told.message}"


def shown(case: Case, found: Plan) -> str:
    analysis = found.analysis
    if case.shown == "streams":
        lines = [f"{name}: {label}" for name, label in analysis.labels.items()]
    elif case.shown == "derivations":
        lines = [derivation_line(each) for each in analysis.derivations]
        lines += [f"cycle: {', '.join(each)}" for each in analysis.cycles]
    elif case.shown == "delivery":
        lines = [*delivery_lines(analysis.labels, analysis.deliveries), *repair_lines(found)]
        lines += [f"=> {line}" for line in delivery_lines(found.repaired, found.deliveries)]
    else:
        lines = [f"verdict: {analysis.verdict}", *map(entry_line, found.entries)]
        lines += [f"inherited: {e.origin} {e.label}, {e.reason}" for e in found.inherited]
        lines.append(f"repaired: {found.verdict}")
    return "".join(f"{line}\n" for line in lines)


def rules_seen(analysis: Analysis, found: Plan) -> set[str]:
    """Rules that show in the analysis, or only under the plan."""
    seen = {entry.cause for entry in found.entries if entry.cause}
    for derivation in analysis.derivations:
        seen |= {step.rule for step in derivation.steps} | set(derivation.reconciled)
        for step in derivation.steps:
            if step.leaves.keys and not step.path.annotation.kind.confluent:
                seen.add("S3")
    return seen | seen_between_paths(analysis)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_dataflow_gives_what_stands_beside_it(case: Case, update_goldens: bool) -> None:
    found = shown(case, case.plan())
    if update_goldens:
        rewrite(case, found)
        return
    assert found == case.expected


def rewrite(case: Case, found: str) -> None:
    def fresh(match: re.Match[str]) -> str:
        if read(match) != case:
            return match[0]
        start = match.start("found") - match.start()
        return match[0][:start] + found + "```"

    for name in FILES:
        file = FOLDER / name
        file.write_text(CASE.sub(fresh, file.read_text(encoding="utf-8")), encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_case_names_its_rules(case: Case) -> None:
    found = case.plan()
    assert case.named, "the title begins with the ids of its rules"
    assert case.named <= rules_seen(found.analysis, found)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_a_case(rule: str) -> None:
    assert any(rule in case.named for case in CASES)


def test_every_finding_about_delivery_has_a_case() -> None:
    text = (FOLDER / "delivery.md").read_text(encoding="utf-8")
    for code in ("BLZ070", "BLZ071", "BLZ072", "BLZ073", "BLZ075"):
        assert f"\n{code} " in text


def test_every_heading_is_a_case() -> None:
    headings = sum(
        line.startswith("## ")
        for name in FILES
        for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()
    )
    assert headings == len(CASES)
    assert len({case.title for case in CASES}) == len(CASES)
