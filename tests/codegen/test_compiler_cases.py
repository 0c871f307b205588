"""Runs tests/cases/compiler.md: files beside what the compiler finds in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from annotations.diagnostics import BadInput, Diagnostic, Severity
from annotations.file import load
from blazes.analysis import analyze
from blazes.coordination import plan
from codegen.codes import CODES
from codegen.stages import stages

FILE = Path(__file__).parent.parent / "cases" / "compiler.md"
CASE = re.compile(
    r"^## (?P<title>.+)\n[^#]*?^```yaml(?P<variants>.*)\n(?P<yaml>(?:.*\n)*?)```\n"
    r"```text\n(?P<found>(?:.*\n)*?)```$",
    re.MULTILINE,
)
OPERATORS = '''
def one(clicks):
    return clicks

def two(clicks, other):
    return clicks

def answer(click, ask):
    return ask

import random as chance
from datetime import datetime
from pyspark.sql.streaming import StatefulProcessor

def drawn():
    return chance.random()

class Chancy(StatefulProcessor):
    def handleInputRows(self, key, rows, timerValues):
        seeded = chance.Random(1)
        yield datetime.now(), drawn(), datetime(2024, 1, 1), seeded.random()

class Fair(StatefulProcessor):
    def handleInputRows(self, key, rows, timerValues):
        yield from rows

def elsewhere(clicks):
    from library import score
    return score(clicks)

def doubled(batches):
    for batch in batches:
        yield batch.take([0, 0]) if chance.random() < 2 else batch

def chancy(clicks):
    return clicks.mapInArrow(doubled, "id INT")

def spark(clicks):
    """A docstring."""
    return clicks.mapInArrow(iter, "id INT").withColumn("day", None)

def longer(clicks):
    more = clicks.mapInPandas(iter, "id INT", barrier=True)
    return more

def once(clicks):
    return clicks.dropDuplicatesWithinWatermark(["id"])

class Steps:
    def counted(self, rows):
        by_id = once(rows).groupBy("id")
        return by_id.applyInPandasWithState(iter, "id INT", "n INT", "append", "")

def stepped(clicks):
    return Steps().counted(clicks)

def grouped(clicks):
    return clicks.groupBy("id").applyInPandas(len, "id INT")
'''
FRAMES = """
from pyspark.sql import Window
from pyspark.sql import functions as F

def in_order(clicks):
    return clicks.orderBy("v")

def shares(clicks):
    total = F.sum("v").over(Window.partitionBy("id"))
    return clicks.select("id", (F.col("v") / total).alias("share"))
"""


@dataclass(frozen=True)
class Case:
    title: str
    variants: dict[str, str]
    text: str
    expected: list[str]
    codes: set[str]


def cases(text: str) -> Iterator[Case]:
    for match in CASE.finditer(text):
        yield Case(
            match["title"],
            dict(choice.split("=") for choice in match["variants"].split()),
            match["yaml"],
            match["found"].splitlines(),
            set(re.findall(r"BLZ\d+", match["title"])),
        )


CASES = list(cases(FILE.read_text(encoding="utf-8")))


def line(found: Diagnostic) -> str:
    where = f"{found.position.line}:{found.position.column}" if found.position else "-"
    return f"{where} {found.code.id} {found.message}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_the_compiler_finds_what_the_case_says(case: Case, tmp_path: Path) -> None:
    for name, text in {"operators": OPERATORS, "job": OPERATORS, "frames": FRAMES}.items():
        (tmp_path / f"{name}.py").write_text(text)
    file = tmp_path / "dataflow.yaml"
    file.write_text(case.text, encoding="utf-8")
    dataflow, _ = load(file, variants=case.variants)
    with pytest.raises(BadInput) as refused:
        stages(plan(analyze(dataflow)))
    found = [line(each).replace(str(file), "FILE") for each in refused.value.diagnostics]
    assert found == case.expected
    assert case.codes <= {each.code.id for each in refused.value.diagnostics}


def test_every_code_of_the_compiler_has_a_case() -> None:
    errors = {code.id for code in CODES.values() if code.severity is Severity.ERROR}
    errors.remove("BLZ551")  # Spark's own word: test_check_with_spark.py
    assert {code for case in CASES for code in case.codes} == errors


def test_every_title_is_a_case() -> None:
    titles = re.findall(r"^## (.+)$", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [case.title for case in CASES] == titles


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.id)
def test_every_code_says_why_and_what_to_do(code: object) -> None:
    from annotations.diagnostics import Code

    assert isinstance(code, Code)
    assert code.title
    assert code.why.endswith(".")
    assert code.remedy
