"""The live view: what is shown at which width."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blazes.document.blocks import Document
from blazes.document.plain import cells, cut
from blazes.document.terminal import Layout, text
from blazes.report.live import LiveView, PlainView
from blazes.report.progress import (
    UNITS_SHOWN_MAX,
    Progress,
    amount,
    document,
    duration,
    plain_line,
    units,
)
from flux_runtime.observe.reader import Event, Sample


def unit(name: str, **values: Any) -> Sample:
    return Sample(0.0, name, None, values)


REPORT = unit(
    "Report.response@1",
    batches=12,
    rows_in=1_234_567,
    rows_per_s=34_000.0,
    rows_out=800,
    open_partitions=12,
    oldest_open_partition_s=63.0,
    released_partitions=240,
    waiting_requests=7,
    dead_letters=3,
    quarantined_partitions=0,
    votes_missing={"ads-1": 2, "ads-3": 12},
)
CACHE = unit("Cache.response", batches=3, rows_in=10, rows_per_s=1.5, rows_out=10, dead_letters=0)


def progress(*units: Sample, events: tuple[Event, ...] = (), state: str = "running") -> Progress:
    return Progress("ad-network", state, 83.0, units, events)


def screen(shown: Progress, width: int) -> list[str]:
    return text(document(shown), Layout(width, cut=True)).splitlines()


def table(samples: list[Sample], width: int) -> list[str]:
    return text(Document("", (units(samples),)), Layout(width, cut=True)).splitlines()


def test_one_line_for_each_unit() -> None:
    lines = table([REPORT, CACHE], 140)
    assert [" ".join(line.split()) for line in lines] == [
        "unit batches rows in rows/s rows out open oldest released requests dead waits for",
        "Report.response@1 12 1.2M 34k 800 12 1m03s 240 7 3 ads-3 (12), ads-1 (2)",
        "Cache.response 3 10 1.5 10",
    ]


def test_less_important_columns_go_first() -> None:
    titles = [table([REPORT, CACHE], width)[0] for width in range(140, 20, -1)]
    gone = [
        [word for word in ("requests", "rows out", "released", "batches") if word not in title]
        for title in titles
    ]
    assert gone[0] == []
    assert ["requests"] in gone
    assert ["requests", "rows out"] in gone
    for title in titles:
        assert title.startswith("unit")


@given(
    st.integers(min_value=20, max_value=200),
    st.lists(
        st.builds(
            lambda name, values: Sample(0.0, name, None, values),
            st.text(max_size=40),
            st.dictionaries(
                st.sampled_from(
                    ["batches", "rows_in", "open_partitions", "dead_letters", "rows_per_s"]
                ),
                st.floats(min_value=0, max_value=1e12) | st.integers(min_value=0, max_value=10**9),
            ),
        ),
        max_size=5,
    ),
    st.text(max_size=200),
)
def test_no_line_is_wider_than_the_screen(width: int, samples: list[Sample], name: str) -> None:
    event = Event(0.0, "late_data", name, {"key": [name]})
    for line in screen(Progress(name, "running", 1.0, samples, [event]), width):
        assert cells(line) <= width
        assert line.isprintable()


def test_columns_without_content_are_not_there() -> None:
    heading = table([CACHE], 140)[0]
    assert " ".join(heading.split()) == "unit batches rows in rows/s rows out"


def test_of_many_units_those_in_trouble_are_shown() -> None:
    samples = [unit(f"U{n}.out", batches=1) for n in range(100)]
    samples[77] = unit("U77.out", batches=1, open_partitions=5)
    samples[88] = unit("U88.out", batches=1, quarantined_partitions=1)
    lines = table(samples, 100)
    assert len(lines) == UNITS_SHOWN_MAX + 2
    assert lines[1].startswith("U88.out")
    assert "1 quarantined" in lines[1]
    assert lines[2].startswith("U77.out")
    assert lines[-1] == f"and {100 - UNITS_SHOWN_MAX} more"


def test_the_last_events_stand_below() -> None:
    events = tuple(Event(float(n), "late_data", "U.out", {"records": n}) for n in range(9))
    quiet = Event(10.0, "unit_started", "U.out")
    lines = screen(progress(CACHE, events=(*events, quiet)), 100)
    assert [line.split("records=")[1] for line in lines[-4:]] == ["5", "6", "7", "8"]
    assert lines[0] == "ad-network  running, 1m23s"


def test_a_unit_without_columns() -> None:
    assert plain_line(CACHE) == "Cache.response: batches 3, rows in 10, rows/s 1.5, rows out 10"
    assert plain_line(REPORT).endswith("dead 3, waits for ads-3 (12), ads-1 (2)")
    assert plain_line(unit("New.out")) == "New.out: nothing yet"


@pytest.mark.parametrize(
    ("number", "text"), [(9_999, "9999"), (10_000, "10k"), (99.96, "100"), (0.04, "0")]
)
def test_amounts(number: float, text: str) -> None:
    assert amount(number).removesuffix(".0") == text


def test_amounts_are_short() -> None:
    for exponent in range(12):
        for number in (10**exponent, 9.994 * 10**exponent):
            assert len(amount(number)) <= 6


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m00s"), (3599, "59m59s"), (86400, "1d00h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_wide_characters_are_cut_by_their_width() -> None:
    assert cut("計数計数", 5) == "計数…"
    assert cells(cut("計数計数", 5)) == 5


class NotATerminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]


def test_plain_lines_come_only_when_something_changed() -> None:
    out = NotATerminal()
    late = Event(0.0, "late_data", "U.out", {})
    with PlainView(out, every_s=0) as view:
        view.show(progress(CACHE, state="starting"))
        view.show(progress(CACHE, state="starting"))
        view.show(progress(CACHE, events=(late,)))
        view.show(progress(unit("Cache.response", batches=4), events=(late,)))
    lines = out.getvalue().splitlines()
    assert [line.split("  ")[-1] for line in lines] == [
        "ad-network: starting",
        plain_line(CACHE),
        "ad-network: running",
        "U.out",
        "Cache.response: batches 4",
    ]


def test_plain_lines_are_rare_and_the_last_state_is_said() -> None:
    out = NotATerminal()
    with PlainView(out, every_s=1000) as view:
        for number in range(50):
            view.show(progress(unit("U.out", batches=number)))
    assert out.getvalue().splitlines() == [
        "ad-network: running",
        "U.out: batches 0",
        "U.out: batches 49",
    ]


def test_plain_lines_in_ascii(tmp_path: Path) -> None:
    file = tmp_path / "out"
    with file.open("w", encoding="ascii") as out, PlainView(out) as view:
        view.show(progress(unit("Zählen.out", batches=1)))
    assert b"Z\\xe4hlen.out: batches 1" in file.read_bytes()


class Terminal(io.StringIO):
    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


@pytest.fixture
def size(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    environment = {"COLUMNS": "80", "LINES": "8", "TERM": "xterm"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment


def test_the_live_view_fits_the_screen(size: Mapping[str, str]) -> None:
    out = Terminal()
    samples = [unit(f"U{n}.out", batches=n) for n in range(20)]
    with LiveView(out, colour=False) as view:
        view.show(progress(*samples))
        view.say("stopping")
        drawn = out.getvalue()
    assert "ad-network" in drawn
    assert "running, 1m23s" in drawn
    assert "U3.out" in drawn
    assert "U10.out" not in drawn, "eight lines are all there are"
    assert "stopping" in drawn
    assert "U19.out" in out.getvalue(), "at the end all of it stays"
