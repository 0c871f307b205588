"""The two listings of Blazes section VI, as printed, and the full file of the specification."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotations.dataflow import Dataflow
from annotations.file import load

LISTINGS = Path(__file__).parent / "listings"


def read(name: str, **variants: str) -> Dataflow:
    dataflow, _ = load(LISTINGS / name, variants=variants)
    return dataflow


def edges(dataflow: Dataflow) -> set[tuple[str, str]]:
    return {
        (str(stream.producer or ""), str(stream.consumer or ""))
        for stream in dataflow.streams.values()
    }


def paths(dataflow: Dataflow) -> dict[str, list[str]]:
    return {
        name: [f"{path} {path.annotation}" for path in component.paths]
        for name, component in dataflow.components.items()
    }


def test_word_count_loads_unchanged() -> None:
    dataflow, warnings = load(LISTINGS / "wordcount.yaml")
    assert warnings == ()
    assert dataflow.name == "wordcount"
    assert paths(dataflow) == {
        "Splitter": ["tweets->words CR"],
        "Count": ["words->counts OW[batch,word]"],
        "Commit": ["counts->db CW"],
    }
    streams = {name: (str(s.producer), str(s.consumer)) for name, s in dataflow.streams.items()}
    assert streams == {
        "tweets": ("None", "Splitter.tweets"),
        "words": ("Splitter.words", "Count.words"),
        "counts": ("Count.counts", "Commit.counts"),
        "db": ("Commit.db", "None"),
    }


@pytest.mark.parametrize(
    ("variant", "path"),
    [
        ("POOR", "request->response OR[id]"),
        ("THRESH", "request->response CR"),
        ("WINDOW", "request->response OR[id,window]"),
        ("CAMPAIGN", "request->response OR[campaign,id]"),
    ],
)
def test_the_ad_network_loads_with_each_query(variant: str, path: str) -> None:
    dataflow, warnings = load(LISTINGS / "ad_network.yaml", variants={"Report": variant})
    assert warnings == ()
    report = dataflow.components["Report"]
    assert report.rep is True
    assert report.variants == ("POOR", "THRESH", "WINDOW", "CAMPAIGN")
    assert report.variant == variant
    assert paths(dataflow)["Report"] == ["click->response CW", path]
    assert [p.variant for p in report.paths] == [None, variant]


@pytest.mark.parametrize("variant", ["POOR", "CAMPAIGN"])
def test_equal_names_connect_the_listing_as_figure_4_draws_it(variant: str) -> None:
    """The graph is that of the full file, which names every stream."""
    listing = read("ad_network.yaml", Report=variant)
    full = read("ad_network_full.yaml", Report=variant)
    assert edges(listing) == edges(full)
    assert paths(listing) == paths(full)


def test_streams_of_the_ad_network_are_named_after_their_interfaces_and_ends() -> None:
    dataflow = read("ad_network.yaml", Report="POOR")
    assert {name: f"{s.producer} {s.consumer}" for name, s in dataflow.streams.items()} == {
        "request-to-Cache": "None Cache.request",
        "request-Cache-to-Report": "Cache.request Report.request",
        "response-Cache-to-Cache": "Cache.response Cache.response",
        "response-Report-to-Cache": "Report.response Cache.response",
        "response-from-Cache": "Cache.response None",
        "click": "None Report.click",
    }


def test_without_a_choice_only_base_paths_count_and_a_warning_names_the_variants() -> None:
    dataflow, warnings = load(LISTINGS / "ad_network.yaml")
    assert paths(dataflow)["Report"] == ["click->response CW"]
    assert dataflow.components["Report"].variant is None
    assert [w.code.id for w in warnings] == ["BLZ031"]
    assert "POOR, THRESH, WINDOW, CAMPAIGN" in warnings[0].message


def test_without_a_choice_streams_that_only_variants_use_are_left_out() -> None:
    dataflow, warnings = load(LISTINGS / "ad_network_full.yaml")
    assert "misses" not in dataflow.streams
    assert [w.code.id for w in warnings] == ["BLZ031"]
    assert "misses is left out" in warnings[0].message
