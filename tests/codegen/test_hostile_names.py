"""Whatever a user writes, the job is Python, says the same, and is formatted."""

from __future__ import annotations

import ast
import difflib
import inspect
import keyword
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from annotations.dataflow import (
    Component,
    Dataflow,
    Deployment,
    Endpoint,
    External,
    Implementation,
    Producers,
    Punctuation,
    Stream,
)
from annotations.dataflow import Path as ComponentPath
from annotations.vocabulary import Annotation, AnnotationKind, Gate
from blazes.analysis import analyze
from blazes.coordination import plan
from codegen.emit import emit
from codegen.readme import readme
from codegen.stages import stages

pytestmark = pytest.mark.slow

spark = pytest.importorskip("flux_runtime.spark")

HOSTILE = [
    "class",
    "None",
    "sql",
    "job",
    "main",
    "build",
    "feed",
    "replica",
    "Job",
    "Path",
    "records",
]
HOSTILE += ["DataFrame", "print", "a-b", "2nd", "größe", "名前", "match", "frames", "__name__", "ﬁ"]
names = st.sampled_from(HOSTILE) | st.from_regex(r"\w{1,60}(-\w{1,8}){0,2}", fullmatch=True)
columns = names | st.sampled_from(["order id", "a.b"])
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60) | st.text(
    alphabet="\"'\\\n`{}$# -", max_size=40
)
SQL = st.sampled_from(
    [
        "SELECT '{a}' AS x FROM t",
        'SELECT """ FROM t',
        "SELECT '\\\\d' FROM t",
        "SELECT 1 -- '",
        "SELECT 'a\nb' FROM t",
        "SELECT a\r\nFROM t",
        "SELECT 'ü\x00\u2028' FROM t",
        "x" * 200,
        "\\",
        '"',
    ]
)


@st.composite
def dataflows(draw: st.DrawFn) -> Dataflow:
    """A source, a record-wise component, a sealed one with two inputs and a sink, all hostile."""
    first, second = draw(st.lists(names, min_size=2, max_size=2, unique=True))
    into, mid, out, ask = draw(st.lists(names, min_size=4, max_size=4, unique=True))
    streams = draw(st.lists(names, min_size=4, max_size=4, unique=True))
    key = draw(columns)
    seal = frozenset({key})
    sql = SQL | texts
    options = draw(st.dictionaries(texts, texts, max_size=3))
    components = [
        Component(
            first,
            (ComponentPath(into, mid, Annotation(AnnotationKind.CR)),),
            implementations={mid: Implementation(sql=draw(sql))},
            description=draw(texts),
        ),
        Component(
            second,
            (
                ComponentPath(into, out, Annotation(AnnotationKind.OW, Gate(seal))),
                ComponentPath(ask, out, Annotation(AnnotationKind.CR)),
            ),
            implementations={out: Implementation(sql=draw(sql))},
            replicas=draw(st.sampled_from([1, 3])),
            rep=True,
            description=draw(texts),
        ),
    ]
    schema = {key: "INT", f"of {draw(texts)}": "STRUCT<a: INT>", "producer": "STRING"}
    flows = [
        Stream(
            streams[0],
            None,
            Endpoint(first, into),
            seals=(seal,),
            schema=schema,
            source=External(draw(texts), draw(texts), options),
            producer_column=draw(columns),
            punctuation=Punctuation(draw(texts), draw(texts), draw(texts)),
            producers=Producers("all", tuple(draw(st.lists(texts, min_size=1, max_size=3)))),
        ),
        Stream(streams[1], Endpoint(first, mid), Endpoint(second, into)),
        Stream(streams[2], None, Endpoint(second, ask), source=External("rate")),
        Stream(streams[3], Endpoint(second, out), None, sink=External(draw(texts), draw(texts))),
    ]
    return Dataflow(
        draw(names),
        {each.name: each for each in components},
        {each.name: each for each in flows},
        deployment=Deployment(master=draw(texts), trigger=draw(texts), conf=options),
        file=Path(draw(names)),
    )


def job_of(dataflow: Dataflow) -> tuple[str, Any]:
    compiled = stages(plan(analyze(dataflow)))
    assert readme(compiled)
    text = emit(compiled)
    space: dict[str, Any] = {"__name__": "job", "__file__": "/job.py"}
    exec(compile(text, "job.py", "exec"), space)
    job = spark.Job(root=Path("/"), results=Path("/results"))
    space["build"](job)
    return text, job


@settings(max_examples=40, deadline=None)
@given(dataflows())
def test_a_job_says_what_the_dataflow_says(dataflow: Dataflow) -> None:
    text, job = job_of(dataflow)
    tree = ast.parse(text)
    constants = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    (stream, _, _, sink) = dataflow.streams.values()
    assert stream.source is not None
    assert stream.punctuation is not None
    assert sink.sink is not None
    source = job.sources[stream.name]
    assert source.options == dict(stream.source.options)
    assert source.punctuation.when == stream.punctuation.when
    assert source.punctuation.digest == (stream.punctuation.digest or None)
    assert source.producer == stream.producer_column
    assert job.sinks[sink.name].target.options == dict(sink.sink.options)
    for component in dataflow.components.values():
        for implementation in component.implementations.values():
            squeezed = {"".join(c.split()) for c in constants if isinstance(c, str)}
            assert "".join((implementation.sql or "").split()) in squeezed


@settings(max_examples=40, deadline=None)
@given(dataflows())
def test_a_function_takes_what_it_is_called_with(dataflow: Dataflow) -> None:
    _, job = job_of(dataflow)
    for unit in job.units.values():
        interfaces = {interface for interface, _ in unit.inputs()}
        inspect.signature(unit.fn).bind(**dict.fromkeys(interfaces))
        for _, feed in unit.inputs():
            for transform in feed.transforms:
                inspect.signature(transform.apply).bind(None)


@settings(max_examples=3, deadline=None, phases=(Phase.generate,))
@given(st.lists(dataflows(), min_size=8, max_size=8))
def test_every_job_is_formatted(flows: list[Dataflow]) -> None:
    for dataflow in flows:
        text, _ = job_of(dataflow)
        for width in ("88", "120"):
            command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", width]
            done = subprocess.run([*command, "-"], input=text.encode(), capture_output=True)
            assert done.returncode == 0, done.stderr
            changes = difflib.unified_diff(text.splitlines(), done.stdout.decode().splitlines())
            assert done.stdout.decode() == text, "\n".join(changes)


def test_keywords_are_among_the_names() -> None:
    assert any(keyword.iskeyword(name) for name in HOSTILE)
