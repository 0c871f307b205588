"""Details of the text of a job that the goldens do not show."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap

from annotations.file import loads
from blazes.analysis import analyze
from blazes.coordination import plan
from codegen.emit import emit
from codegen.stages import stages

SEALED = """
components:
  A:
    annotation:
      - {from: a, to: n, label: "OW[day]"}
      - {from: b, to: n_partial, label: CR}
    sql:
      n: SELECT day, count(*) AS c FROM a GROUP BY day
      n_partial: SELECT 1 FROM b
streams:
  a:
    to: A.a
    seal: [day]
    schema: {day: int, closed: boolean, n: int}
    source: {format: json, path: data}
    punctuation: {when: closed, count: n}
    producers: one
  b: {to: A.b, source: {format: rate}}
  out: {from: A.n}
  other: {from: A.n_partial}
"""


def text(dataflow: str) -> str:
    return emit(stages(plan(analyze(loads(textwrap.dedent(dataflow))[0]))))


def functions(source: str) -> list[str]:
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]


def test_no_two_functions_have_one_name() -> None:
    found = functions(text(SEALED))
    assert len(found) == len(set(found))
    assert set(found) == {"a_n", "a_n_partial", "a_n_total", "a_n_partial_2", "build"}


def test_every_stream_into_an_interface_brings_its_records() -> None:
    """Two pass-through ways from one source are two copies, as with any other two streams."""
    source = text(
        """
        components:
          P: {annotation: {from: a, to: b, label: CR}}
          Q: {annotation: {from: a, to: b, label: CR}}
          R: {annotation: {from: c, to: d, label: CW}, sql: SELECT * FROM c}
        streams:
          a: {to: P.a, source: {format: rate}}
          a2: {to: Q.a, source: {format: rate}}
          p: {from: P.b, to: R.c}
          p2: {from: P.b, to: R.c}
          q: {from: Q.b, to: R.c}
          d: {from: R.d}
        """
    )
    assert 'inputs={"c": [a, a, a2]}' in source


def test_only_what_is_used_is_imported() -> None:
    """A word in a query or a description is no use of it."""
    source = text(
        """
        components:
          P:
            annotation: {from: a, to: b, label: CR}
            description: Punctuation, Producers and sql are but words here.
        streams:
          a: {to: P.a, source: {format: rate}}
          b: {from: P.b}
        """
    )
    assert "from flux_runtime.spark import Job, main\n" in source
    assert "DataFrame" not in source
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "-"]
    assert subprocess.run(command, input=source.encode(), capture_output=True).returncode == 0


def test_a_query_that_cannot_be_laid_out_is_one_string() -> None:
    source = text(
        r"""
        components:
          P:
            annotation: {from: a, to: b, label: CR}
            sql: "SELECT 'one\ntwo' AS x FROM a"
        streams:
          a: {to: P.a, source: {format: rate}}
          b: {from: P.b}
        """
    )
    assert r"""sql("SELECT 'one\ntwo' AS x FROM a", a=a)""" in source


def test_the_variant_is_named() -> None:
    dataflow, _ = loads(
        """
components:
  P:
    variants: {A: {annotation: {from: a, to: b, label: CR}}}
streams:
  a: {to: P.a, source: {format: rate}}
  b: {from: P.b}
""",
        variants={"P": "A"},
    )
    assert "with P=A." in emit(stages(plan(analyze(dataflow)))).split("\n")[0]


def test_messages_of_kafka_are_decoded_as_the_file_says() -> None:
    text = (
        SEALED.replace("source: {format: json, path: data}", "source: KAFKA", 1)
        .replace("KAFKA", "{format: Kafka, options: {subscribe: t}, value: json, columns: COLUMNS}")
        .replace("COLUMNS", "{day: headers.day, n: offset}")
    )
    dataflow, _ = loads(text)
    job = emit(stages(plan(analyze(dataflow))))
    assert 'format="kafka",' in job
    assert 'value="json",' in job
    assert 'columns={"day": "headers.day", "n": "offset"},' in job
