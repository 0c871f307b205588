"""Pictures of runs are well formed, keep to their frame, and keep words apart."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

from blazes.document import charts, placement
from blazes.document.charts import Chart, Event, Mark, Series
from blazes.document.palette import PALETTE
from blazes.document.placement import Lane, Placement, Stay
from blazes.document.svg import Axis

SVG = "{http://www.w3.org/2000/svg}"

CHART = Chart(
    title="a < b", x="x, s", y="y", log_x=True,
    series=(Series("ours & theirs", ((1.0, 0.0), (10.0, math.nan), (100.0, 5.0)), True),),
    marks=(Mark("m", 7.0), Mark("n", 7.1), Mark("v", 99.0, vertical=True)),
    events=(
        Event(at=5.0, kind="crash", name="crash of site 1", bad=True),
        Event(at=5.1, until=90.0, kind="catch-up", name="A0p"),
    ),
)  # fmt: skip


def places(drawing: str, tag: str, *names: str) -> list[tuple[float, ...]]:
    found = ElementTree.fromstring(drawing).iter(SVG + tag)
    return [tuple(float(e.get(n, "nan")) for n in names) for e in found]


def words(drawing: str) -> dict[str, tuple[float, float]]:
    return {
        str(e.text): (float(e.get("x", "nan")), float(e.get("y", "nan")))
        for e in ElementTree.fromstring(drawing).iter(SVG + "text")
    }


def test_points_lie_inside_the_frame_and_a_missing_value_leaves_a_gap() -> None:
    drawing = charts.draw([CHART, CHART], title="t")
    circles = places(drawing, "circle", "cx", "cy")
    assert len(circles) == 4
    assert all(charts.LEFT <= x <= charts.WIDTH - charts.RIGHT for x, _ in circles)
    assert "polyline" not in drawing


def test_marks_and_events_close_to_one_another_are_named_apart() -> None:
    at = words(charts.draw([CHART], title="t"))
    assert at["n"][1] + 12 <= at["m"][1]
    assert at["crash of site 1"][1] != at["A0p"][1]
    assert at["v"][0] < charts.WIDTH


def test_an_event_that_lasts_is_as_wide_as_it_took() -> None:
    drawing = charts.draw([CHART], title="t")
    axis = Axis([1.0, 100.0, 99.0], charts.LEFT, charts.WIDTH - charts.RIGHT, log=True)
    band = next(b for b in places(drawing, "rect", "x", "width") if b[0] > charts.LEFT)
    assert abs(band[1] - (axis.pixel(90.0) - axis.pixel(5.1))) < 0.2


def test_every_colour_used_has_a_value_on_light_and_on_dark_screens() -> None:
    drawing = charts.draw([CHART], title="t")
    used = set(re.findall(r'class="[fs]-(\w+)"', drawing))
    assert used <= set(PALETTE)
    light, dark = drawing.split("@media (prefers-color-scheme: dark)")
    assert all(PALETTE[name][0] in light and PALETTE[name][1] in dark for name in used)


def test_a_lane_is_empty_where_a_thing_was_nowhere() -> None:
    lanes = (
        Lane(name="A0p", stays=(Stay(start=0, end=4, place=1), Stay(start=6, end=10, place=2))),
        Lane(name="A0s", stays=(Stay(start=0, end=10, place=2),)),
    )
    crash = Event(at=4, kind="crash", name="crash of site 1", bad=True)
    chart = Placement(title="t", x="time, s", lanes=lanes, events=(crash,))
    drawing = placement.draw([chart], title="t")
    first, second, whole = places(drawing, "rect", "x", "width", "y")[1:4]
    assert first[0] + first[1] < second[0]
    assert abs((second[0] - first[0] - first[1]) - whole[1] / 5) < 0.5
    assert {"site 1", "site 2", "crash of site 1"} <= words(drawing).keys()


def test_many_lanes_stay_within_a_screen() -> None:
    lanes = tuple(Lane(name=f"A{n}", stays=(Stay(start=0, end=1, place=n),)) for n in range(64))
    drawing = placement.draw([Placement(title="t", x="x", lanes=lanes)], title="t")
    height = float(ElementTree.fromstring(drawing).get("height", "nan"))
    assert height < 720


def test_bars_stand_beside_one_another_on_the_axis() -> None:
    series = tuple(Series(n, ((1.0, 2.0), (2.0, 4.0)), bars=True) for n in ("ours", "theirs"))
    chart = Chart(title="t", x="x", y="y", series=series, names=((1, "one"), (2, "two")))
    drawing = charts.draw([chart], title="t")
    bars = places(drawing, "rect", "x", "width", "height")[1:]
    spans = sorted((x, x + width) for x, width, _ in bars)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    heights = sorted(height for *_, height in bars)
    assert abs(heights[-1] - 2 * heights[0]) < 0.5
    assert {"one", "two"} <= words(drawing).keys()
