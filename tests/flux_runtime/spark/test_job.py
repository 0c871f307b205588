"""What a job refuses of what its author declares, and what it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flux_runtime.spark import Job, Producers, Punctuation
from flux_runtime.spark.ends.source import Source
from flux_runtime.spark.units import SealUnit


def passed_on(click: Any) -> Any:
    return click


def declared(**options: Any) -> SealUnit:
    job = Job(root=Path(), results=Path("results"))
    clicks = job.source(
        "clicks",
        format="json",
        path="clicks",
        schema="id BIGINT, sealed BOOLEAN, n BIGINT",
        punctuation=Punctuation(when="sealed", count="n"),
        id=["id"],
    )
    producers = {"clicks": Producers.one()}
    job.seal("C", passed_on, waits={"click": [clicks]}, key=["id"], producers=producers, **options)
    unit = job.units["C"]
    assert isinstance(unit, SealUnit)
    return unit


def test_released_partitions_are_remembered_for_ever_or_as_long_as_is_said() -> None:
    assert declared().remember_s is None
    assert declared(remember_s=604800.0).remember_s == 604800.0
    with pytest.raises(ValueError, match=r"C: remember_s is at least 0, not -1"):
        declared(remember_s=-1)


def test_a_gate_finds_the_ids_at_the_sources_that_it_waits_for() -> None:
    (origin,) = declared().waiting().values()
    assert isinstance(origin, Source)
    assert origin.id == ("id",)


def test_ids_are_forgotten_only_where_it_is_known_when_a_record_came() -> None:
    job = Job(root=Path(), results=Path("results"))
    topic = job.source("topic", format="kafka")
    with pytest.raises(ValueError, match="only sources of files tell; topic is none"):
        job.native("C", passed_on, inputs={"click": [topic]}, repeat_within="1 hour")


@pytest.mark.spark
def test_an_id_that_the_records_do_not_have_is_refused(bench: Any) -> None:
    bench.file("clicks", [{"id": 1, "word": "a"}])
    path = str(bench.path / "data" / "clicks")
    for ddl in ("id BIGINT, word STRING", None):
        known = Source(name="clicks", format="json", path=path, ddl=ddl, id=("id", "word"))
        assert known.schema(bench.session).fieldNames() == ["id", "word"]
        unknown = Source(name="clicks", format="json", path=path, ddl=ddl, id=("word", "nr"))
        with pytest.raises(ValueError, match="clicks: its records are identified by nr, which"):
            unknown.schema(bench.session)
