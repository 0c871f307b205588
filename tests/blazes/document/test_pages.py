"""Pages are well formed, accessible as far as their source tells, and legible in every size."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter

import pytest

from annotations.file import loads
from blazes.analysis import analyze
from blazes.coordination import plan
from blazes.document import blocks as b
from blazes.document import graph, html
from blazes.document.charts import Chart, Series
from blazes.document.palette import GROUNDS, LINES, PALETTE, SERIES, contrast
from blazes.report.diagram import diagram_of
from blazes.report.document import EXTENTS, analysis_document

SVG = "{http://www.w3.org/2000/svg}"
TEXT = [role for role in PALETTE if role not in {*GROUNDS, *LINES, "grid"}]
SIZES = (5, 50, 500)
WITHIN = {
    "li": ["ul", "ol"],
    "dt": ["dl"],
    "dd": ["dl"],
    "summary": ["details"],
    "td": ["tr"],
    "th": ["tr"],
    "tr": ["thead", "tbody"],
}
EVERYTHING = b.Document(
    'a <b> & "c"',
    (
        b.Verdict("✗", "Run", "run", ("first", "second")),
        b.Heading("one", "file.yaml:3:1"),
        b.paragraph(
            ("by ", b.code("x|y"), " ", b.TO, " ", b.Span("`z` <w>", "prose")), role="soft"
        ),
        b.paragraph("a", ("b", b.BREAK, "c"), form="numbered"),
        b.Table(("", "n"), (("group",), ("a", b.Span("1", "bad"))), right=["n"], more=3),
        b.Heading("two", folded=True),
        b.Entries((b.Entry("n", (b.paragraph("said."),), b.Span("Inst", "inst"), "f:1"),), more=2),
        b.Heading("three", folded=True),
        b.aspects(("Why", [b.paragraph("x", form="list"), b.paragraph("  y", form="verbatim")])),
        b.Derivation(
            (b.Derivation((b.Span("A"),), "(p)", b.Span("Run", "run")),), "C", b.Span("Run")
        ),
        b.Charts("c", (Chart(title="t", x="x", y="y", series=(Series("s", ((0, 1), (1, 2))),)),)),
    ),
    about="file.yaml",
    lead="A sentence.",
)


def dataflow(size: int) -> str:
    """Components in a net, every fourth with an order."""
    lines = ["name: net", "components:"]
    for number in range(size):
        label = "label: OR, subscript: [id]" if number % 4 == 3 else "label: CW"
        lines += [f"  Component{number}:", f"    annotation: {{from: in, to: out, {label}}}"]
    lines.append("streams:")
    for number in range(size):
        for before in {number - 1, number - 7, number // 2} - {number}:
            start = f"from: Component{before}.out, " if before >= 0 else ""
            lines.append(f"  s{number}x{before % 1000}: {{{start}to: Component{number}.in}}")
    return "\n".join([*lines, f"  out: {{from: Component{size - 1}.out}}"])


@pytest.fixture(scope="module")
def pages() -> dict[int, ET.Element]:
    """Size -> the page of a dataflow of so many components."""
    plans = {size: plan(analyze(loads(dataflow(size))[0])) for size in SIZES}
    documents = {n: analysis_document(p, extent=EXTENTS["html"]) for n, p in plans.items()}
    return {n: ET.fromstring(html.page(each)) for n, each in [*documents.items(), (0, EVERYTHING)]}


@pytest.mark.parametrize("screen", [0, 1], ids=["light", "dark"])
def test_every_colour_can_be_seen_on_every_ground(screen: int) -> None:
    for ground in GROUNDS:
        behind = PALETTE[ground][screen]
        low = {role for role in LINES if contrast(PALETTE[role][screen], behind) < 3}
        texts = TEXT if ground in ("paper", "shade") else ["ink"]
        low |= {role for role in texts if contrast(PALETTE[role][screen], behind) < 4.5}
        assert not low, f"{ground}: {sorted(low)}"
    series = [PALETTE[str(number)][screen] for number in range(SERIES)]
    assert all(contrast(PALETTE["paper"][screen], colour) >= 4.5 for colour in series)


@pytest.mark.parametrize("size", [0, *SIZES])
def test_a_page_has_a_valid_structure(pages: dict[int, ET.Element], size: int) -> None:
    page = pages[size]
    parents = {child: parent for parent in page.iter() for child in parent}
    tags = Counter(each.tag for each in page.iter())
    assert (tags["title"], tags["main"], tags["h1"]) == (1, 1, 1)
    ids = [each.attrib["id"] for each in page.iter() if "id" in each.attrib]
    assert len(ids) == len(set(ids))
    assert page.attrib["lang"] == "en"
    for each in page.iter():
        within = parents[each].tag if each in parents else ""
        assert within in WITHIN.get(each.tag, [within])
        if each.tag in ("p", "h1", "h2"):
            assert not {child.tag for child in each} & {"p", "div", "ul", "ol", "table", "dl"}
        if each.tag == "th":
            assert "".join(each.itertext()).strip()
            assert "scope" in each.attrib
        if each.tag in ("ul", "ol", "dl"):
            assert len(each)
        if each.tag == f"{SVG}svg":
            assert (each.attrib["role"], bool(each.attrib["aria-label"])) == ("img", True)


@pytest.mark.parametrize("size", [0, *SIZES])
def test_what_may_be_wide_scrolls_by_itself(pages: dict[int, ET.Element], size: int) -> None:
    page = pages[size]
    scrolling = {
        inside
        for each in page.iter()
        if "scroll" in each.attrib.get("class", "").split()
        and each.attrib.get("tabindex") == "0"
        and each.attrib.get("aria-label")
        for inside in each.iter()
    }
    wide = [each for each in page.iter() if each.tag in (f"{SVG}svg", "table", "pre")]
    assert wide
    assert all(each in scrolling for each in wide)


@pytest.mark.parametrize("size", SIZES)
def test_the_drawing_and_the_table_are_there_in_every_size(
    pages: dict[int, ET.Element], size: int
) -> None:
    (drawing,) = pages[size].iter(f"{SVG}svg")
    named = {each.text for each in drawing.iter(f"{SVG}text")}
    assert {f"Component{number}" for number in range(size)} <= named
    assert float(drawing.attrib["width"]) < 2100
    assert float(drawing.attrib["height"]) < 300 + 25 * size
    streams = max(sum(1 for _ in table.iter("tr")) for table in pages[size].iter("table"))
    assert streams > size


@pytest.mark.parametrize("size", [*SIZES, 20])
def test_no_box_of_a_drawing_covers_another(size: int) -> None:
    drawing = ET.fromstring(graph.drawn(diagram_of(plan(analyze(loads(dataflow(size))[0])))))
    boxes = sorted(
        tuple(float(each.attrib[name]) for name in ("x", "y", "width", "height"))
        for each in drawing.iter(f"{SVG}rect")
    )
    for index, (x, y, width, height) in enumerate(boxes):
        for other_x, other_y, _, other_height in boxes[index + 1 :]:
            if other_x >= x + width:
                break
            assert y + height <= other_y or other_y + other_height <= y


def test_every_role_of_a_page_is_in_the_palette(pages: dict[int, ET.Element]) -> None:
    classes = {
        name
        for page in pages.values()
        for each in page.iter()
        for name in each.attrib.get("class", "").split()
        if name[:2] in ("c-", "f-", "s-")
    }
    assert {name[2:] for name in classes} <= set(PALETTE)
