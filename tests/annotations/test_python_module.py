"""A dataflow declared in Python is the one that a file describes, and so are its mistakes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from annotations.dataflow import Dataflow
from annotations.diagnostics import BadInput, Diagnostic
from annotations.file import loads, python_module, python_values
from tests.annotations import fuzzing
from tests.annotations.python_form import Unlike, python_form

Read = tuple[Dataflow | None, tuple[Diagnostic, ...]]
CHECKED = settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.generate],
    derandomize=True,
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
    ],
)


def read(text: str, file: str) -> Read:
    try:
        return loads(text, file=file, module="module" if file.endswith(".py") else None)
    except BadInput as bad:
        return None, bad.diagnostics


def said(found: tuple[Diagnostic, ...]) -> list[tuple[int | None, str, str]]:
    """Line, code and message; how a misspelt key is called differs between the two forms."""
    return sorted(
        (
            diagnostic.position.line if diagnostic.position else -1,
            diagnostic.code.id,
            "" if diagnostic.code.id == "BLZ010" else diagnostic.message,
        )
        for diagnostic in found
    )


def bare(dataflow: Dataflow | None) -> Dataflow | None:
    return None if dataflow is None else replace(dataflow, name="", file=None, sha256="")


def compared(text: str) -> tuple[Any, Any]:
    """What each form says; `Unlike` where there are no two forms."""
    module = python_form(text)
    (dataflow, found), (declared, reported) = read(text, "f.yaml"), read(module, "f.py")
    return (said(found), bare(dataflow)), (said(reported), bare(declared))


CONNECTED = fuzzing.dataflows().filter(lambda tree: "streams" in dict(tree))
TEXTS = {"right": CONNECTED, "spoilt": fuzzing.mutated(CONNECTED)}


@pytest.mark.parametrize("texts", TEXTS)
@CHECKED
@given(data=st.data())
def test_both_forms_give_the_same_dataflow_and_the_same_mistakes(
    texts: str, data: st.DataObject
) -> None:
    text = data.draw(fuzzing.texts(TEXTS[texts]))
    try:
        of_file, of_module = compared(text)
    except Unlike:
        return
    assert of_module == of_file, f"{text}\n{python_form(text)}"


@pytest.mark.parametrize("mistake", ["places", "values", "streams"])
def test_a_planted_mistake_of_the_reader_is_found(
    mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, value = python_values.Values.mark, python_values.Values._of_value
    if mistake == "places":
        monkeypatch.setattr(
            python_values.Values,
            "mark",
            lambda self, node: mark(self, node)._replace(line=mark(self, node).line - 1),
        )
    elif mistake == "values":
        monkeypatch.setattr(
            python_values.Values,
            "_of_value",
            lambda self, it, *rest: value(self, str(it) if isinstance(it, bool) else it, *rest),
        )
    else:
        monkeypatch.setattr(python_module, "ends_of_streams", lambda declared, key: set())
        monkeypatch.setattr(python_module.Streams, "all", lambda self: iter(()))

    @settings(CHECKED, max_examples=400, report_multiple_bugs=False)
    @given(fuzzing.texts(TEXTS["spoilt"]))
    def search(text: str) -> None:
        try:
            of_file, of_module = compared(text)
        except Unlike:
            return
        assert of_file == of_module

    with pytest.raises(AssertionError):
        search()


WORDCOUNT = """
import blazes
from blazes import component as part
from pyspark.sql import DataFrame, functions as F

COLUMNS = {"batch": "BIGINT", "text": "STRING", "by": "STRING", "over": "BOOLEAN", "n": "BIGINT"}

blazes.dataflow("wordcount", fds=["text -> by"])
tweets = blazes.source(
    "tweets", schema=COLUMNS, format="json", path="data/" + "tweets", seal=["batch"],
    producer="by", punctuation=dict(when="over", count="n"),
    producers=[f"relay-{n}" for n in range(1, 4)],
)


@part("Splitter", label="CR", why="each tweet by itself")
def words(tweets: DataFrame, pattern: str = " ") -> DataFrame:
    return tweets.select("batch", F.explode(F.split("text", pattern)).alias("word"))


counts = blazes.sql(
    "counts",
    "SELECT batch, word, count(*) AS n FROM words GROUP BY batch, word",
    reads=[words],
    output_mode="update",
)
blazes.sink(counts, format="parquet", path="results")
"""
THE_SAME = """
name: wordcount
components:
  Splitter:
    annotation: {from: tweets, to: words, label: CR, why: each tweet by itself}
    python: module:words
  counts:
    sql: SELECT batch, word, count(*) AS n FROM words GROUP BY batch, word
    output_mode: update
streams:
  tweets:
    to: Splitter.tweets
    schema: {batch: BIGINT, text: STRING, by: STRING, over: BOOLEAN, n: BIGINT}
    source: {format: json, path: data/tweets}
    seal: [batch]
    producer: by
    punctuation: {when: over, count: n}
    producers: [relay-1, relay-2, relay-3]
  words: {from: Splitter.words, to: counts.words}
  counts: {from: counts.counts, sink: {format: parquet, path: results}}
fds: [text -> by]
"""


def test_functions_and_queries_are_components() -> None:
    declared, warnings = loads(WORDCOUNT, file="module.py", module="module")
    described, _ = loads(THE_SAME, file="flow.yaml")
    assert replace(declared, sha256="") == replace(described, sha256="")
    assert not warnings
    splitter = declared.components["Splitter"]
    assert splitter.position is not None
    assert splitter.position.line == 1 + WORDCOUNT[: WORDCOUNT.index('"Splitter"')].count("\n")


def one(text: str) -> list[str]:
    """What is reported of a module, each as `line:column code message`."""
    _, found = read(text, "module.py")
    return [f"{d.position.line}:{d.position.column} {d.code.id} {d.message}"
            for d in found if d.position is not None]  # fmt: skip


HEAD = "import blazes\nfrom blazes import component, sink, source, sql\n"
SOURCE = HEAD + 'clicks = source("clicks", schema={"id": "INT", "n": "INT"}, format="json")\n'
MODULES = {
    "a parameter that nothing is called like": (
        SOURCE + '@component(label="CR")\ndef out(click): ...\n',
        ["3:17 BLZ042 no component reads the source `clicks`",
         "5:9 BLZ044 out reads `click`, which is neither a source nor an output; "
         "did you mean clicks?"],
    ),
    "a keyword that is misspelt": (
        SOURCE + '@component(lable="CR")\ndef out(clicks): ...\n',
        ["4:12 BLZ010 `component` has no keyword `lable`; did you mean label?"],
    ),
    "a value that only running would tell": (
        SOURCE + "import os\n@component(label=os.environ['L'])\ndef out(clicks): ...\n",
        ["5:18 BLZ095 `os.environ` is not known without running the module"],
    ),
    "a list that is changed": (
        SOURCE + 'NAMES = ["a"]\nNAMES.append("b")\n'
        'sink(sql("o", "SELECT id FROM clicks", reads=[clicks], label="CR", order_by=NAMES))\n',
        ["6:77 BLZ095 `NAMES` is not known without running the module"],
    ),
    "a mistake in a constant stands at the constant": (
        SOURCE + 'LABEL = "OX[id]"\n@component(label=LABEL)\ndef out(clicks): ...\n',
        ["4:10 BLZ020 `label`: expected CR, CW, OR or OW, found `OX`"],
    ),
    "SQL with a name that nothing has": (
        SOURCE + 'out = sql("out", """\n  SELECT id,\n    m FROM clicks""", reads=[clicks])\n',
        ["6:5 BLZ054 out: `m` is not a column of clicks"],
    ),
    "a gate that the schema lacks": (
        SOURCE + '@component(label="OW[id, k]")\ndef out(clicks): ...\n',
        ["4:26 BLZ050 `k` is not in any schema of the streams into out"],
    ),
    "a declaration in a function": (
        SOURCE + '@component(label="CR")\ndef out(clicks): ...\n'
        'def main():\n    sink(out, format="json")\n',
        ["7:5 BLZ095 a declaration inside of another statement is not read"],
    ),
    "a label for an input that is not there": (
        SOURCE + '@component(label={"clicks": "CR", "klicks": "CW"})\ndef out(clicks): ...\n',
        ["4:35 BLZ041 out has no input `klicks`; did you mean clicks?"],
    ),
    "two components of a name": (
        SOURCE + '@component(label="CR")\ndef out(clicks): ...\n'
        'sql("out", "SELECT id FROM clicks", reads=[clicks])\n',
        ["6:5 BLZ006 a second component out; the first is in line 5"],
    ),
    "a sink of a source": (
        SOURCE + '@component(label="CR")\ndef out(clicks): ...\nsink(clicks)\n',
        ["6:6 BLZ095 `clicks` is a source, and a sink takes an output"],
    ),
    "no Python": (HEAD + "def (:\n", ["3:5 BLZ095 this is not Python: invalid syntax"]),
    "several mistakes at once": (
        SOURCE.replace("INT", "INTT", 1)
        + '@component(label="CX", engine="sprak")\ndef out(clicks): ...\n',
        ["3:41 BLZ053 `id`: Spark SQL has no type `INTT`; did you mean int or bigint?",
         "4:19 BLZ020 `label`: expected CR, CW, OR or OW, found `CX`",
         "4:31 BLZ013 `engine`: expected spark or flux, found `sprak`; did you mean spark?"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("module", MODULES)
def test_a_mistake_is_reported_where_it_stands(module: str) -> None:
    text, expected = MODULES[module]
    assert one(text) == expected
