"""Renderings stay valid for odd names, and show labels, seals and coordination points."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotations.dataflow import Component, Dataflow, Endpoint, Stream
from annotations.dataflow import Path as DataPath
from annotations.file import load, loads
from annotations.vocabulary import Annotation, AnnotationKind, Gate
from blazes.analysis import analyze
from blazes.coordination import Plan, plan
from blazes.document import graph, html, markdown, terminal
from blazes.document.diagram import digraph, flowchart
from blazes.document.plain import cells, printable
from blazes.document.terminal import Layout
from blazes.report import sarif
from blazes.report.diagram import diagram_of
from blazes.report.document import (
    EXTENTS,
    analysis_document,
    component_document,
    plan_document,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "report"
ODD = [
    '1. end "x" <b>&amp; #35;',
    "- `tick` |pipe| \\N",
    "subgraph\nnew\x1b[31mline",
    "計数 {brace} [b] (p)",
    "# heading --> x;%%",
    "*]{}",
]


def chain(names: list[str]) -> Plan:
    """Order-sensitive components one behind the other, named like this."""
    annotation = Annotation(AnnotationKind.OW, Gate(frozenset({names[0], "b"})))
    components = {
        name: Component(name, (DataPath(f"in {name}", f"out {name}", annotation),))
        for name in names
    }
    ends = [None, *names], [*names, None]
    streams = [
        Stream(
            f"stream {index} {left or right}",
            Endpoint(left, f"out {left}") if left is not None else None,
            Endpoint(right, f"in {right}") if right is not None else None,
        )
        for index, (left, right) in enumerate(zip(*ends, strict=True))
    ]
    dataflow = Dataflow(names[-1], components, {stream.name: stream for stream in streams})
    return plan(analyze(dataflow))


def ad_network(variant: str, *, sealed: bool = False) -> Plan:
    file = GOLDEN / ("ad_network_sealed.yaml" if sealed else "ad_network.yaml")
    return plan(analyze(load(file, variants={"Report": variant})[0]))


names = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4, unique=True)


@settings(max_examples=25)
@given(names)
def test_every_rendering_takes_every_name(found: list[str]) -> None:
    drawn = chain(found)
    diagram, document = diagram_of(drawn), analysis_document(drawn)
    for line in flowchart(diagram).splitlines()[1:]:
        assert MERMAID_LINE.fullmatch(line), line
    assert dot_strings_are_closed(digraph(diagram))
    ET.fromstring(html.page(document))
    for text in (terminal.text(document), markdown.page(document)):
        assert all(character.isprintable() or character == "\n" for character in text)
    json.loads(sarif.dumps(sarif.log(drawn)))


LABEL = r'"(?:[^\W_]|[ ,_]|#\d+;|<br>)*"'
MERMAID_LINE = re.compile(
    rf"  (?:[cwst]\d+(?:\[{LABEL}\]|\(\[{LABEL}\]\)|\{{\{{{LABEL}\}}\}}):::[a-z]+"
    rf"|[cwst]\d+ (?:-->|==>)(?:\|{LABEL}\|)? [cwst]\d+"
    r"|linkStyle [\d,]+ stroke:#[0-9a-f]{6}"
    r"|classDef [a-z]+ [a-z]+:#[0-9a-f]+(?:,[a-z]+:#[0-9a-f]+)*)"
)


def dot_strings_are_closed(text: str) -> bool:
    """True where what is left without its quoted strings is only words of the language."""
    outside = re.sub(r'"(?:[^"\\\n]|\\[\\"n])*"', "", text)
    return re.fullmatch(r"[\w\s{}\[\]=>-]*", outside) is not None and outside.count("{") == 1


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("drawn", [chain(ODD), ad_network("POOR")], ids=["odd", "poor"])
def test_graphviz_draws_it(drawn: Plan) -> None:
    found = subprocess.run(
        ["dot", "-Tsvg"],
        input=digraph(diagram_of(drawn)),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    assert found.stderr == ""
    shown = {text.text for text in ET.fromstring(found.stdout).iter() if text.tag.endswith("text")}
    for node in diagram_of(drawn).nodes:
        for line in node.lines:
            assert printable(line) in {(text or "").replace("\xa0", " ") for text in shown}


def test_an_order_is_a_node_that_its_streams_lead_through() -> None:
    drawing = diagram_of(ad_network("POOR"))
    (point,) = [node for node in drawing.nodes if node.kind == "order"]
    assert point.lines == ("order per id, recorded",)
    report = next(node for node in drawing.nodes if node.lines[0] == "Report")
    into = {edge.lines for edge in drawing.edges if edge.head == point.id}
    assert into == {("Async",), ("misses", "Async")}
    assert [edge.head for edge in drawing.edges if edge.tail == point.id] == [report.id]


def test_a_seal_is_a_node_only_before_the_sealed_input() -> None:
    drawing = diagram_of(ad_network("CAMPAIGN", sealed=True))
    (point,) = [node for node in drawing.nodes if node.kind == "seal"]
    assert "seal campaign" in point.lines[0]
    assert [edge.lines for edge in drawing.edges if edge.head == point.id] == [("Seal[campaign]",)]


def test_a_confluent_dataflow_has_no_coordination_point() -> None:
    assert {node.kind for node in diagram_of(ad_network("THRESH")).nodes} == {
        "component",
        "source",
        "sink",
    }


def test_the_page_needs_nothing_from_outside() -> None:
    page = html.page(analysis_document(ad_network("POOR")))
    assert not re.search(r"(?:src|href)=|@import|url\((?!#)", page)


def test_no_drawn_box_covers_another() -> None:
    root = ET.fromstring(graph.drawn(diagram_of(ad_network("POOR"))))
    boxes = [
        tuple(float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        for box in root.iter("{http://www.w3.org/2000/svg}rect")
    ]
    assert len(boxes) == 6
    for index, (x, y, width, height) in enumerate(boxes):
        for other_x, other_y, other_width, other_height in boxes[index + 1 :]:
            apart_x = x + width <= other_x or other_x + other_width <= x
            apart_y = y + height <= other_y or other_y + other_height <= y
            assert apart_x or apart_y


def test_sarif_points_at_the_path_that_is_the_origin() -> None:
    found = sarif.log(ad_network("POOR"))
    (run,) = found["runs"]
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("R1", "warning")
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "R1"
    region = result["locations"][0]["physicalLocation"]["region"]
    line = (
        (GOLDEN / "ad_network.yaml")
        .read_text(encoding="utf-8")
        .splitlines()[region["startLine"] - 1]
    )
    assert "POOR" in line
    assert "seal: [id] on clicks: results becomes Async" in result["message"]["text"]


def test_sarif_of_a_sealed_component_is_a_note() -> None:
    (result,) = sarif.log(ad_network("CAMPAIGN", sealed=True))["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("seal", "note")


def test_every_report_says_how_a_sealed_component_knows_copies() -> None:
    text = (GOLDEN / "ad_network_sealed.yaml").read_text(encoding="utf-8")
    (stream,) = [line for line in text.splitlines() if line.lstrip().startswith("clicks:")]
    assert stream.endswith("}")
    known = text.replace(stream, f"{stream[:-1]}, id: [window, id]}}")
    without, _ = loads(text, variants={"Report": "CAMPAIGN"})
    with_id, _ = loads(known, variants={"Report": "CAMPAIGN"})
    sentence = "A record of clicks that comes again is known by its (id, window), and is dropped"
    for found, says in ((plan(analyze(without)), False), (plan(analyze(with_id)), True)):
        reports = [
            terminal.text(analysis_document(found), Layout(width=200)),
            terminal.text(plan_document(found), Layout(width=200)),
            terminal.text(component_document(found, "Report"), Layout(width=200)),
            markdown.page(analysis_document(found)),
            html.page(analysis_document(found)),
        ]
        assert [sentence in report for report in reports] == [says] * len(reports)


@settings(max_examples=20)
@given(st.integers(min_value=20, max_value=140))
def test_derivations_fit_the_width_or_are_stacked(width: int) -> None:
    report = terminal.text(analysis_document(ad_network("POOR")), Layout(width=width))
    at = str(GOLDEN)  # a place is never cut, so its width is that of this checkout's path
    widest = max(cells(line.replace(at, "")) for line in report.splitlines())
    assert widest <= max(width, 56)


def test_a_large_dataflow_is_summarised() -> None:
    large = chain([f"C{number}" for number in range(60)])
    report = terminal.text(analysis_document(large))
    assert "60 components, 61 streams" in report
    assert "50 more components to coordinate" in report
    assert "--all" in report
    assert len(report.splitlines()) < 500
    everything = terminal.text(analysis_document(large, extent=EXTENTS["text"].unlimited))
    assert "C59 needs an order" in everything


def test_the_verdict_names_a_few_of_many_seals() -> None:
    names = [f"C{number}" for number in range(40)]
    components = "".join(
        f"  {name}: {{annotation: {{from: a, to: b, label: 'OW[k]'}}}}\n" for name in names
    )
    streams = "".join(
        f"  i{name}: {{to: {name}.a, seal: [k]}}\n  o{name}: {{from: {name}.b}}\n" for name in names
    )
    dataflow, _ = loads(f"name: many\ncomponents:\n{components}streams:\n{streams}", file="m")
    report = terminal.text(analysis_document(plan(analyze(dataflow))), Layout(width=200))
    (sentence,) = [line for line in report.splitlines() if "because the seals" in line]
    assert sentence.endswith("[k] on iC12 and 35 more).")


@pytest.mark.parametrize("width", [20, 70, 80])
def test_a_derivation_that_is_wider_than_the_terminal_is_not_cut(width: int) -> None:
    long = chain(["a_name_of_a_column_that_is_longer_than_anybody_would_like_to_write_it_or_read"])
    report = terminal.text(analysis_document(long), Layout(width=width))
    assert (
        "OW[a_name_of_a_column_that_is_longer_than_anybody_would_like_to_write_it_or_read,b]"
        in report
    )
    assert "(R2)" in report
