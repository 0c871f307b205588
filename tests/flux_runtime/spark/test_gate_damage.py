"""What is damaged is never believed: the job says what it is and what to do, or goes on exactly.

One test for each row of the table in `docs/explanation/sealing.md`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.spark import Job, Producers, Punctuation, sql
from tests.flux_runtime.spark.conftest import Workbench

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


def total(item: DataFrame) -> DataFrame:
    return sql("SELECT k, sum(v) AS s, count(*) AS c FROM item GROUP BY k", item=item)


def answer(totals: DataFrame, ask: DataFrame) -> DataFrame:
    return sql("SELECT a.id, t.s FROM ask a JOIN totals t ON a.k = t.k", totals=totals, ask=ask)


def build_with(files: int, producers: Producers | None = None) -> Callable[[Job], None]:
    """Two gates, a channel between them, requests; so many files in a micro-batch."""

    def build(job: Job) -> None:
        items = job.source(
            "items",
            format="json",
            path="data/items",
            options={"maxFilesPerTrigger": str(files)},
            schema="k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT",
            producer="p",
            punctuation=Punctuation(when="sealed", count="n"),
        )
        asks = job.source("asks", format="json", path="data/asks", schema="id INT, k INT")
        totals = job.seal(
            "Total",
            total,
            waits={"item": [items]},
            key=("k",),
            producers={"items": producers or Producers.all(["a", "b"])},
            forward=("k",),
        )
        answers = job.seal(
            "Answer", answer, waits={"totals": [totals]}, reads={"ask": [asks]}, key=("k",)
        )
        job.sink("totals", [totals])
        job.sink("answers", [answers])

    return build


build = build_with(1)


def begin(bench) -> None:
    """Partition 1 is released and answered; 2 and 3 are open, with records in two chunks each."""
    bench.file("items", [*data(1, "a", 1), *data(2, "a", 2), *data(3, "a", 3), vote(1, "a", 1)])
    bench.file("items", [vote(1, "b", 0), *data(2, "b", 20), *data(3, "b", 30)])
    bench.file("asks", [{"id": 11, "k": 1}, {"id": 12, "k": 2}])
    bench.run(build)
    assert released(bench) == {1: (1, 1)}
    assert answered(bench) == {11: 1}


def go_on(bench) -> None:
    """The promises of 2 and 3, a late record, a request for what was released before."""
    bench.file("items", [vote(2, "a", 1), vote(2, "b", 1), vote(3, "a", 1), *data(1, "a", 99)])
    bench.file("items", [vote(3, "b", 1)])
    bench.file("asks", [{"id": 21, "k": 1}])


def check(bench) -> None:
    assert released(bench) == {1: (1, 1), 2: (22, 2), 3: (33, 2)}
    assert answered(bench) == {11: 1, 12: 22, 21: 1}
    assert [x["record"]["v"] for x in bench.dead_letters("Total")] == [99]
    assert bench.metrics("Total")["open_partitions"] == 0


def data(k: int, p: str, *values: int) -> list[dict]:
    return [{"k": k, "v": v, "p": p} for v in values]


def vote(k: int, p: str, n: int) -> dict:
    return {"k": k, "p": p, "sealed": True, "n": n}


def released(bench) -> dict[int, tuple[int, int]]:
    rows = bench.results("totals")
    found = {row["k"]: (row["s"], row["c"]) for row in rows}
    assert len(found) == len(rows), "a partition was released twice"
    return found


def answered(bench) -> dict[int, int]:
    rows = bench.results("answers")
    found = {row["id"]: row["s"] for row in rows}
    assert len(found) == len(rows), "a request was answered twice"
    return found


def flip(file: Path, at: float = 0.5) -> None:
    """Turn a byte around."""
    content = bytearray(file.read_bytes())
    content[int(at * (len(content) - 1))] ^= 0xFF
    file.write_bytes(content)


def write(file: Path, text: str) -> None:
    """Write a file of Spark's anew, without its checksum."""
    file.write_text(text)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@pytest.fixture(scope="module")
def begun(spark, tmp_path_factory: pytest.TempPathFactory) -> tuple[Workbench, Path]:
    """A job that has begun, and a copy of its folder: what Spark notes names places."""
    bench = Workbench(spark, tmp_path_factory.mktemp("begun") / "job")
    begin(bench)
    return bench, shutil.copytree(bench.path, bench.path.with_name("copy"))


@pytest.fixture
def job(begun: tuple[Workbench, Path]) -> Workbench:
    """A job that has begun, whatever the test before did to it."""
    bench, copy = begun
    shutil.rmtree(bench.path)
    shutil.copytree(copy, bench.path)
    return replace(bench)


Damage = tuple[Path, Callable[[Path], object], str]
"""The path that is damaged, how, and what the job says then."""


def refused(bench, *damages: Damage) -> None:
    """Damaged in any way, the job says so and puts out nothing wrong; put back, it goes on exactly.

    One state takes all damages in turn; after the first of them the job starts once more.
    """
    for name in ("state", "results"):
        shutil.copytree(bench.path / name, bench.path / "saved" / name)
    go_on(bench)
    for number, (path, damage, says) in enumerate(damages):
        damage(path)
        for _ in range(1 if number else 2):  # a restart changes nothing
            with pytest.raises(DamagedError) as error:
                bench.run(build)
            assert says in str(error.value), str(error.value)
            assert "--fresh" in error.value.remedy
            assert released(bench).items() <= {1: (1, 1), 2: (22, 2), 3: (33, 2)}.items()
        for name in ("state", "results"):
            shutil.rmtree(bench.path / name)
            shutil.copytree(bench.path / "saved" / name, bench.path / name)
    bench.run(build)
    check(bench)


def unit(bench, name: str = "Total") -> Path:
    return bench.path / "state" / "units" / name


def first(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[0]


# ---- chunks

CHUNK_DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "part deleted": (remove, "the file is missing"),
    "byte flipped": (flip, "the content is not what was written"),
    "cut short": (lambda part: part.write_bytes(part.read_bytes()[:-8]), "bytes and was written"),
    "part added": (lambda part: shutil.copy(part, part.with_name("x.parquet")), "was added"),
    "deleted": (lambda part: shutil.rmtree(part.parent), "the folder is missing"),
}


def test_a_damaged_chunk_is_not_released(job) -> None:
    part = first(unit(job), "buffer/items/000000000.records/*.parquet")
    refused(job, *((part, do, says) for do, says in CHUNK_DAMAGES.values()))


def test_a_damaged_chunk_of_requests_is_not_answered(job) -> None:
    part = first(unit(job, "Answer"), "requests/*/*/*.parquet")
    refused(job, *((part, do, says) for do, says in CHUNK_DAMAGES.values()))


def test_a_damaged_chunk_that_is_kept_for_requests_is_not_read(job) -> None:
    """Partition 1 has been released, and stays for later requests."""
    part = first(unit(job, "Answer"), "buffer/Total/*/*.parquet")
    refused(job, (part, remove, "the file is missing"))


def test_records_of_unknown_producers_are_not_lost_silently(bench) -> None:
    """The whole records of a partition whose producers are registered later."""
    known: dict[tuple, frozenset[str]] = {}
    bench.look_up = lambda stream, keys: {key: known.get(key) for key in keys}
    build = build_with(1, Producers.registered("items"))
    bench.file("items", [*data(1, "a", 1), vote(1, "a", 1), *data(1, "stranger", 7)])
    bench.file("asks", [{"id": 1}])
    bench.run(build)
    (part, *_) = sorted(unit(bench).glob("undecided/items/*/*.parquet"))
    undecided = unit(bench) / "undecided" / "items"
    saved = shutil.copytree(undecided, bench.path / "saved")
    known["1",] = frozenset("a")
    for do, says in CHUNK_DAMAGES.values():
        do(part)
        with pytest.raises(DamagedError, match="--fresh") as error:
            bench.run(build)
        assert says in str(error.value) or "0 of 1 records" in str(error.value)
        shutil.rmtree(undecided)
        shutil.copytree(saved, undecided)
    bench.run(build)
    assert released(bench) == {1: (1, 1)}
    assert [x["record"]["v"] for x in bench.dead_letters("Total")] == [7]


# ---- ledger


def test_a_ledger_with_a_damaged_table_is_not_opened(job) -> None:
    job.run(build)  # what was in the log is now in a table
    table = first(unit(job), "ledger/*.sst")
    refused(job, (table, lambda path: flip(path, 0.02), "the ledger cannot be read"))


def test_a_ledger_without_one_of_its_files_is_not_opened(job) -> None:
    job.run(build)
    files = [first(unit(job), f"ledger/{name}") for name in ("CURRENT", "MANIFEST-*", "*.sst")]
    refused(job, *((file, remove, "ledger") for file in files))


def test_a_ledger_that_is_gone_does_not_go_with_the_checkpoint(job) -> None:
    refused(job, (unit(job) / "ledger", remove, "knows of 0 releases, and 1 were committed"))


def test_a_damaged_state_is_noticed_without_new_input(bench) -> None:
    bench.file("items", data(1, "a", 1))
    bench.file("asks", [{"id": 1}])
    bench.run(build)
    chunk = first(unit(bench), "buffer/items/*")
    chunk.rename(bench.path / "chunk")
    with pytest.raises(DamagedError, match="the folder is missing"):
        bench.run(build)
    (bench.path / "chunk").rename(chunk)
    bench.run(build)
    shutil.rmtree(unit(bench) / "ledger")
    with pytest.raises(
        DamagedError, match="input items: the checkpoint has done micro-batches up to 0"
    ):
        bench.run(build)


# ---- checkpoints


def test_a_deleted_checkpoint_with_other_micro_batches_is_noticed(job) -> None:
    build_of_all = build_with(100)
    shutil.rmtree(unit(job) / "checkpoint" / "items")
    go_on(job)
    for _ in range(2):
        with pytest.raises(DamagedError, match="the checkpoint knows of no micro-batch"):
            job.run(build_of_all)
    assert released(job) == {1: (1, 1)}


def test_a_checkpoint_that_began_anew_is_noticed(job) -> None:
    """As many micro-batches as before, of another query."""
    metadata = unit(job) / "checkpoint" / "items" / "metadata"
    other = metadata.read_text().replace(metadata.read_text()[8:12], "0000")
    refused(job, (metadata, lambda file: write(file, other), "its checkpoint is not the one"))


def test_a_checkpoint_without_its_identity_is_noticed(job) -> None:
    metadata = unit(job) / "checkpoint" / "items" / "metadata"
    refused(job, (metadata, remove, "the metadata file is missing"))


def test_commits_of_a_checkpoint_that_are_lost_change_nothing(job) -> None:
    shutil.rmtree(unit(job) / "checkpoint" / "items" / "commits")
    go_on(job)
    job.run(build)
    check(job)


def test_offsets_that_are_lost_are_noticed(job) -> None:
    def newest_lost(log: Path) -> None:
        (log / "1").unlink()
        (log / ".1.crc").unlink(missing_ok=True)

    offsets = unit(job) / "checkpoint" / "items" / "offsets"
    refused(job, (offsets, newest_lost, "the checkpoint knows of micro-batches up to 0"))


def test_a_source_that_forgot_what_it_has_read_is_noticed(job) -> None:
    refused(job, (unit(job) / "checkpoint" / "items" / "sources", remove, ""))
