"""Every construct gets the label of the catalogue, through the Connect client and from SQL, and
what real Spark did (`tests/constructs/evidence.json`) contradicts none of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from annotations.whitebox import ir
from annotations.whitebox.derivation import DerivedPath
from annotations.whitebox.derive import annotate
from annotations.whitebox.inputs import Input
from annotations.whitebox.pyspark_code import Function, read_functions
from annotations.whitebox.pyspark_code import Input as Given
from annotations.whitebox.sandbox import Limits
from annotations.whitebox.sql import read
from tests.constructs import page
from tests.constructs.catalogue import CONSTRUCTS, REPLAY, SCHEMAS, STATIC, Construct
from tests.constructs.observe import EVIDENCE, contradictions

ROOT = Path(__file__).parents[3]
NAMES = [each.name for each in CONSTRUCTS]
OBSERVED = json.loads(EVIDENCE.read_text(encoding="utf-8"))


def role(name: str) -> ir.Role:
    return ir.Role.TABLE if name in STATIC else ir.Role.STREAM


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ir.Relation]:
    """The plans of all constructs, read in one process."""
    folder = tmp_path_factory.mktemp("constructs")
    lines = [
        "import sys",
        f"sys.path.insert(0, {str(ROOT)!r})",
        "from tests.constructs.catalogue import CONSTRUCTS",
        "from tests.constructs.observe import computed",
        "def made(place):",
        "    def function(**frames):",
        "        spark = next(iter(frames.values())).sparkSession",
        "        return computed(CONSTRUCTS[place], spark, frames)",
        "    return function",
        *(f"f{place} = made({place})" for place in range(len(CONSTRUCTS))),
    ]
    (folder / "everything.py").write_text("\n".join(lines))
    given = {name: Given(columns, role(name)) for name, columns in SCHEMAS.items()}
    functions = [Function("everything", f"f{place}", given) for place in range(len(CONSTRUCTS))]
    found = read_functions(functions, folder=folder, limits=Limits())
    return dict(zip(NAMES, found, strict=True))


def label(path: DerivedPath) -> str:
    text = str(path.annotation)
    if path.within.value == "sequence" and not text.endswith("[*]"):
        text += " sequence"
    return text + (" nondeterministic" if path.nondeterministic else "")


def labels(plan: ir.Relation, construct: Construct) -> dict[str, str]:
    mode = "complete" if construct.engine == REPLAY else construct.mode
    lateness = {"clicks": 600.0, "answers": 600.0} if construct.promise else {}
    found = annotate(plan, output_mode=mode, lateness=lateness)
    return {name: label(path) for name, path in found.paths.items()}


def expected(construct: Construct) -> dict[str, str]:
    other = {"answers": construct.other} if construct.other else {}
    return {"clicks": construct.label, **other}


@pytest.mark.parametrize("construct", CONSTRUCTS, ids=NAMES)
def test_the_label_from_pyspark(construct: Construct, plans: dict[str, ir.Relation]) -> None:
    assert labels(plans[construct.name], construct) == expected(construct)


@pytest.mark.parametrize(
    "construct", [c for c in CONSTRUCTS if c.sql], ids=[c.name for c in CONSTRUCTS if c.sql]
)
def test_the_label_from_sql(construct: Construct) -> None:
    assert construct.sql is not None
    inputs = {name: Input(columns, role(name)) for name, columns in SCHEMAS.items()}
    query = read(construct.sql, inputs=inputs)
    assert query.problem is None
    assert labels(query.plan, construct) == expected(construct)


@pytest.mark.parametrize("name", OBSERVED)
def test_what_spark_did_does_not_contradict_the_label(name: str) -> None:
    seen = OBSERVED[name]
    construct = CONSTRUCTS[NAMES.index(name)]
    assert (seen["label"], seen.get("other")) == (construct.label, construct.other)
    assert list(contradictions(name, seen)) == []


def test_enough_is_observed() -> None:
    assert len(OBSERVED) >= 60
    assert OBSERVED.keys() <= set(NAMES)


def test_the_page_is_current() -> None:
    committed = (ROOT / "docs" / "reference" / "constructs.md").read_text(encoding="utf-8")
    assert committed == page.text(), f"{sys.executable} -m tests.constructs.page writes it"
