"""Components that have code and no annotation get the annotations that their code gives."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotations.dataflow import Dataflow
from annotations.diagnostics import BadInput
from annotations.file import load, loads
from annotations.file.insertions import CannotWrite
from annotations.file.writing import with_annotations
from annotations.vocabulary import Within
from annotations.whitebox.claims import unshown_claims
from annotations.whitebox.sandbox import Limits
from annotations.whitebox.settings import READ_WITH
from tests.constructs.catalogue import SCHEMAS
from tests.constructs.queries import QUERIES

EXAMPLES = Path(__file__).parents[3] / "examples"
LISTINGS = Path(__file__).parents[1] / "listings"
HEAD = """\
components:
  Split:
    sql: SELECT batch, explode(split(text, ' ')) AS word FROM lines
  Count:
    sql: SELECT batch, word, count(*) AS n FROM words GROUP BY batch, word
streams:
  lines: {to: Split.lines, schema: {batch: BIGINT, text: STRING}}
  words: {from: Split.words, to: Count.words}
"""
FLOW = """\
components: {{A: {{{code}}}}}
streams: {{r: {{to: A.r, schema: {{k: INT}}}}, out: {{from: A.out}}}}
deployment: {{conf: {{{name}: "{value}"}}}}
"""
COUNTS = HEAD + "  counts: {from: Count.counts}\n"


def paths(dataflow: Dataflow, component: str) -> dict[str, str]:
    return {
        str(path): f"{path.annotation}"
        + (" sequence" if path.within is Within.SEQUENCE else "")
        + (" chance" if path.nondeterministic else "")
        for path in dataflow.components[component].paths
    }


def without_annotations(text: str) -> str:
    """The ad network's file as somebody would write it who says nothing that the code says."""
    text = re.sub(r"\n    annotation:\n(      - .*\n)+", "\n", text)
    text = re.sub(r"\n        annotation: .*", "", text)
    return re.sub(r"\n    description:", "\n    requests: request\n    description:", text)


def test_paths_and_their_reasons_come_from_the_sql() -> None:
    dataflow, found = loads(COUNTS, file="words.yaml")
    assert found == ()
    assert paths(dataflow, "Split") == {"lines->words": "CR"}
    assert paths(dataflow, "Count") == {"words->counts": "OW[batch,word]"}
    (path,) = dataflow.components["Count"].paths
    assert path.derived is not None
    reasons = {each.text: each.position for each in path.derived}
    position = reasons["`count(*)` is used before each batch, word is complete"]
    assert position is not None
    assert (position.file, position.line) == ("words.yaml", 5)
    assert COUNTS.splitlines()[4][position.column - 1 :].startswith("count(*)")


def test_types_flow_along_inner_streams() -> None:
    """Whether `sum(v)` adds integers is known at the source only, two components before."""
    text = textwrap.dedent("""\
        components:
          Pass:
            annotation: {from: clicks, to: same, label: CR}
          Shift: {sql: "SELECT id, v + 1 AS w FROM same"}
          Sum: {sql: "SELECT id, sum(w) AS s FROM shifted GROUP BY id"}
        streams:
          clicks: {to: Pass.clicks, schema: {id: INT, v: TYPE}}
          same: {from: Pass.same, to: Shift.same}
          shifted: {from: Shift.shifted, to: Sum.shifted}
          sums: {from: Sum.sums}
        """)
    whole, _ = loads(text.replace("TYPE", "BIGINT"))
    assert paths(whole, "Sum") == {"shifted->sums": "OW[id]"}
    assert dict(whole.streams["shifted"].schema or {}) == {"id": "INT", "w": "BIGINT"}
    assert dict(whole.streams["sums"].schema or {}) == {"id": "INT", "s": "BIGINT"}
    assert whole.streams["same"].schema is None
    broken, found = loads(text.replace("TYPE", "DOUBLE"))
    assert paths(broken, "Sum") == {"shifted->sums": "OW[id] sequence"}
    assert [each.code.id for each in found] == ["BLZ087"]


HOURLY = """\
components:
  Parse: {sql: "SELECT id, TIME AS ts FROM raw WHERE id > 0"}
  Hourly:
    sql: >-
      SELECT window(ts, '1 hour') AS hour, count(*) AS n
      FROM parsed WATERMARK ts DELAY OF INTERVAL 10 MINUTES GROUP BY window(ts, '1 hour')
streams:
  raw: {to: Parse.raw, schema: {id: INT, at: TIMESTAMP}, lateness: 10 minutes}
  parsed: {from: Parse.parsed, to: Hourly.parsed}
  hours: {from: Hourly.hours}
"""


@pytest.mark.parametrize(
    ("time", "more", "label", "code"),
    [
        ("at", "", "CW", "BLZ088"),
        ("at + INTERVAL 1 HOUR * id", "", "OW[*]", "BLZ086"),
        (
            "at",
            "  more: {to: Hourly.parsed, schema: {id: INT, ts: TIMESTAMP}}\n",
            "OW[*]",
            "BLZ086",
        ),
    ],
)
def test_a_promise_of_lateness_goes_with_the_records_and_their_times(
    time: str, more: str, label: str, code: str
) -> None:
    """Not where the time is computed, and not where one of two streams may run ahead."""
    dataflow, found = loads(HOURLY.replace("TIME AS", f"{time} AS") + more)
    assert paths(dataflow, "Hourly") == {"parsed->hours": label}
    assert [each.code.id for each in found] == [code]


def test_records_that_may_come_twice_are_followed_along_a_cycle() -> None:
    """Inside of a cycle nobody can say yet that a record comes once: its count is of no gate."""
    dataflow, _ = loads(
        textwrap.dedent("""\
        components:
          Again:
            sql: >-
              SELECT id, count(*) AS n FROM (SELECT id FROM a UNION ALL SELECT id FROM b)
              GROUP BY id
        streams:
          a: {to: Again.a, schema: {id: INT}}
          b: {from: Again.out, to: Again.b}
          out: {from: Again.out}
        """)
    )
    assert paths(dataflow, "Again") == {"a->out": "OW[*]", "b->out": "OW[*]"}


@pytest.mark.parametrize("variant", ["THRESH", "POOR", "WINDOW", "CAMPAIGN"])
def test_the_ad_network_without_annotations_has_those_of_the_paper(variant: str) -> None:
    """Blazes section VI-B: what the authors annotated by hand is what the queries give."""
    file = EXAMPLES / "ad_network" / "ad_network.yaml"
    text = without_annotations(file.read_text(encoding="utf-8"))
    assert "label" not in text
    chosen = {"Report": variant}
    derived, _ = loads(text, variants=chosen)
    written, _ = load(file, variants=chosen)
    for name, component in written.components.items():
        assert paths(derived, name) == paths(written, name)
        assert all(path.derived is None for path in component.paths)
        assert all(path.derived for path in derived.components[name].paths)


@pytest.mark.parametrize(("name", "as_read"), READ_WITH.items())
def test_sql_is_not_read_under_settings_that_change_what_it_means(name: str, as_read: str) -> None:
    code = "sql: SELECT DISTINCT k FROM r"
    other = {"true": "false", "false": "true"}.get(as_read, "other")
    found = [
        paths(loads(FLOW.format(code=code, name=name, value=value))[0], "A")["r->out"]
        for value in (as_read, as_read.upper(), other)
    ]
    assert found == ["CW", "CW", "OW[*]"]


def test_functions_are_not_read_under_settings_that_change_what_they_mean(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("def kept(r):\n    return r.where('k > 0')\n")
    file = tmp_path / "flow.yaml"
    name = "spark.sql.streaming.multipleWatermarkPolicy"
    found = []
    for value in ("min", "max"):
        file.write_text(FLOW.format(code="python: code:kept", name=name, value=value))
        found.append(paths(load(file)[0], "A"))
    assert found == [{"r->out": "CR"}, {"r->out": "OW[*]"}]


def test_each_output_of_a_derived_component_has_its_own_state() -> None:
    dataflow, _ = loads(
        textwrap.dedent("""\
        components:
          Both:
            sql:
              seen: SELECT DISTINCT id FROM clicks
              counts: SELECT id, count(*) AS n FROM clicks GROUP BY id
        streams:
          clicks: {to: Both.clicks, schema: {id: INT}}
          seen: {from: Both.seen}
          counts: {from: Both.counts}
        """)
    )
    states = {path.target: path.state for path in dataflow.components["Both"].paths}
    assert states == {"seen": "seen", "counts": "counts"}


def test_python_functions_are_read_in_a_process_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "functions_of_a_user.py").write_text(
        "def first(clicks):\n"
        "    from pyspark.sql import functions as F\n\n"
        "    return clicks.groupBy('id').agg(F.first('n').alias('n'))\n\n\n"
        "def fails(clicks):\n"
        "    return clicks.collect()\n"
    )
    file = tmp_path / "clicks.yaml"
    file.write_text(
        textwrap.dedent("""\
        components:
          First: {python: "functions_of_a_user:first"}
          Fails: {python: "functions_of_a_user:fails"}
        streams:
          clicks: {to: First.clicks, schema: {id: INT, n: INT}}
          first: {from: First.first, to: Fails.clicks}
          out: {from: Fails.out}
        """)
    )
    dataflow, found = load(file, execute=Limits())
    assert paths(dataflow, "First") == {"clicks->first": "OW[id] sequence"}
    assert paths(dataflow, "Fails") == {"clicks->out": "OW[*] chance"}
    assert [(each.code.id, each.position.line if each.position else 0) for each in found] == [
        ("BLZ093", 8)
    ]
    assert "functions_of_a_user" not in sys.modules


def test_a_file_without_code_imports_nothing_to_read_code() -> None:
    script = (
        "import sys\n"
        "from annotations.file import load\n"
        f"load({str(LISTINGS / 'wordcount.yaml')!r})\n"
        "print([n for n in sys.modules if 'whitebox' in n or 'sqlglot' in n])"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(QUERIES), st.randoms(use_true_random=False))
def test_no_query_is_a_crash_however_it_is_mangled(query: str, draw: random.Random) -> None:
    """What is not understood is `OW[*]`, and what is not read is told; nothing else happens."""
    words = query.split()
    match draw.randrange(3):
        case 0:
            words.pop(draw.randrange(len(words)))
        case 1:
            words[draw.randrange(len(words))] = draw.choice(draw.choice(QUERIES).split())
        case _:
            words.insert(draw.randrange(len(words)), draw.choice("()*,.;'`-+\\%"))
    clicks = ", ".join(f'{name}: "{type_}"' for name, type_ in SCHEMAS["clicks"].items())
    text = (
        f"components: {{C: {{sql: {json.dumps(' '.join(words) or '-')}}}}}\n"
        f"streams: {{clicks: {{to: C.clicks, schema: {{{clicks}}}}}, out: {{from: C.out}}}}\n"
    )
    labels: list[str] = []
    try:
        dataflow, found = loads(text)
        labels = list(paths(dataflow, "C").values())
    except BadInput as refused:
        found = refused.diagnostics
    codes = {each.code.id for each in found}
    checked = {f"BLZ05{n}" for n in range(3, 10)}
    assert labels or codes <= {"BLZ041", "BLZ082"} | checked
    if labels and "BLZ082" in codes:
        assert any("[*]" in label for label in labels)


# ---- BLZ084

CLAIM = COUNTS.replace(
    "Count:\n", "Count:\n    annotation: {from: words, to: counts, label: LABEL}\n"
)


@pytest.mark.parametrize(
    ("label", "told"),
    [
        ("CW", True),
        ("CR", True),
        ('"OR[batch, word]"', True),
        ('"OW[batch, word, other]"', True),
        ('"OW[batch, word]"', False),
        ('"OW[batch]"', False),
        ('"OW[*]"', False),
        ("CW, why: counts never change here", False),
    ],
)
def test_blz084_tells_claims_that_are_stronger_than_the_code(label: str, told: bool) -> None:
    dataflow, _ = loads(CLAIM.replace("LABEL", label), file="words.yaml")
    found = unshown_claims(dataflow)
    assert [each.code.id for each in found] == ["BLZ084"] * told
    for each in found:
        assert "its code gives OW[batch,word]: `count(*)`" in each.message
        assert each.position is not None
        assert each.position.line == 5


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ("repeats: absorb", "`repeats: absorb`, and its code gives `repeats: corrupt`"),
        ("repeats: make", "`repeats: make`, and its code gives `repeats: corrupt`"),
        ("repeats: corrupt", None),
        ("rows: many", None),
        ("repeats: absorb, why: each word comes once", None),
    ],
)
def test_blz077_tells_what_repeats_do(claim: str, told: str | None) -> None:
    dataflow, _ = loads(CLAIM.replace("LABEL", f'"OW[batch, word]", {claim}'), file="words.yaml")
    found = unshown_claims(dataflow)
    assert [each.code.id for each in found] == ["BLZ077"] * (told is not None)
    assert all(told in each.message for each in found if told)


def test_blz083_tells_chance_that_is_not_declared() -> None:
    text = COUNTS.replace("explode(split(text, ' ')) AS word", "uuid() AS word")
    text = text.replace("Split:\n", "Split:\n    annotation: {from: lines, to: words, label: CR}\n")
    (found,) = unshown_claims(loads(text)[0])
    assert found.code.id == "BLZ083"
    assert "Split lines->words does not say `nondeterministic`: uuid()" in found.message
    declared, _ = loads(text.replace("label: CR}", "label: CR, nondeterministic: made up}"))
    assert unshown_claims(declared) == ()


# ---- derive --write

LAYOUT = """\
# Everybody's words.
name: words
components:
  # splits
  Split:   # by spaces
    # the query
    sql: SELECT batch, explode(split(text, ' ')) AS word FROM lines

  Count: {sql: "SELECT batch AS day, word, count(*) AS batch FROM words GROUP BY batch, word",
    output_mode: update}
  Keep:
    variants:
      ALL: {sql: "SELECT DISTINCT word FROM counts"}
      MANY:
        sql: SELECT word FROM counts WHERE batch > 5
streams:
  lines: {to: Split.lines, schema: {batch: BIGINT, text: STRING}}   # from outside
  words: {from: Split.words, to: Count.words}
  counts: {from: Count.counts, to: Keep.counts}
  kept: {from: Keep.kept}
"""


def test_what_is_written_is_what_was_derived_and_nothing_else_changes(tmp_path: Path) -> None:
    file = tmp_path / "words.yaml"
    file.write_text(LAYOUT, encoding="utf-8")
    dataflow, _ = load(file, variants={"Keep": "ALL"})
    text = with_annotations(dataflow, dataflow.components, variants={"Keep": "ALL"})
    kept = text
    for inserted in (
        "    annotation:\n"
        "      # each record is treated by itself, and nothing is kept\n"
        "      - {from: lines, to: words, label: CR}\n",
        "annotation: [{from: words, to: counts, label: OW, subscript: [batch, word], "
        "lineage: {day: batch, word: word}}], ",
        "annotation: [{from: counts, to: kept, label: CW, repeats: absorb, rows: one}], ",
    ):
        assert inserted in kept
        kept = kept.replace(inserted, "", 1)
    assert kept == LAYOUT
    written, found = loads(text, variants={"Keep": "ALL"})
    assert found == ()
    for name, component in dataflow.components.items():
        assert paths(written, name) == paths(dataflow, name)
        assert all(path.derived is None for path in written.components[name].paths)
        assert component.implementations == written.components[name].implementations


def test_keys_that_stand_elsewhere_are_not_written(tmp_path: Path) -> None:
    file = tmp_path / "merged.yaml"
    file.write_text(
        textwrap.dedent("""\
        x-distinct: &distinct
          sql: SELECT DISTINCT id FROM clicks
        components:
          One: {<<: *distinct}
        streams:
          clicks: {to: One.clicks, schema: {id: INT}}
          ones: {from: One.ones}
        """)
    )
    dataflow, _ = load(file)
    assert paths(dataflow, "One") == {"clicks->ones": "CW"}
    with pytest.raises(CannotWrite, match="come from elsewhere"):
        with_annotations(dataflow, ["One"])


def test_code_without_streams_is_refused() -> None:
    with pytest.raises(BadInput) as refused:
        loads("components:\n  Count:\n    sql: {counts: SELECT * FROM words}\n")
    assert [each.code.id for each in refused.value.diagnostics] == ["BLZ025"]
