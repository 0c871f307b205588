"""Tables of a real database (Derby, which ships with Spark): each row once, whenever a job dies."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Workbench
from pyspark.sql import DataFrame, SparkSession

from benchmarks.sink_servers import postgres
from flux_runtime.commits.fence import FencedError
from flux_runtime.commits.owner import NotOwnerError, Ownership
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark import Job, faults
from flux_runtime.spark.ends import tables
from flux_runtime.spark.ends.sinks import SinkError
from flux_runtime.spark.ends.tables import Table, connected

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

POINTS = ("table-staged", "table-moved", "table-committed", "output-committed", "native-committed")
SCHEMA = "id INT, k STRING, v INT"


class Derby:
    """A database in a folder, which one process at a time can open."""

    def __init__(self, session: SparkSession, path: Path) -> None:
        self._session = session
        self.path = path / "database"
        java: Any = session._jvm
        java.System.setProperty("derby.stream.error.file", str(path / "derby.log"))
        self.options = {"url": f"jdbc:derby:{self.path};create=true"}
        with connected(session, self.options | {"dbtable": "x"}, sink="x") as database:
            database.update(f"CREATE TABLE added ({SCHEMA.replace('STRING', 'VARCHAR(20)')})")
            database.update(
                "CREATE TABLE latest (serial INT GENERATED ALWAYS AS IDENTITY, "
                "id INT, k VARCHAR(20) NOT NULL PRIMARY KEY, v INT CHECK (v < 1000))"
            )
            database.commit()

    def table(self, name: str, **more: Any) -> Table:
        return Table(name=name, options=self.options | {"dbtable": name}, **more)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        read = self._session.read.format("jdbc").options(**self.options, dbtable=name)
        return sorted(map(tuple, read.load().collect()), key=repr)

    def tables(self) -> list[str]:
        """The names of all tables."""
        with connected(self._session, self.options | {"dbtable": "x"}, sink="x") as database:
            found = database.query("SELECT tablename FROM sys.systables WHERE tabletype = 'T'")
        return sorted(name for (name,) in found)

    def close(self) -> None:
        """Let another process open it."""
        java: Any = self._session._jvm
        with pytest.raises(Exception, match="shutdown"):
            java.java.sql.DriverManager.getConnection(f"jdbc:derby:{self.path};shutdown=true")


@pytest.fixture
def derby(spark: SparkSession, tmp_path: Path) -> Derby:
    return Derby(spark, tmp_path)


def claimed(path: Path, *, fresh: bool = False, job: str = "job") -> Ownership:
    ownership = Ownership(job, LocalStorage(path), [], fresh=fresh)
    ownership.claim()
    return ownership


def frame(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), SCHEMA)


def test_a_commit_is_made_once_and_what_it_covers_is_compared(
    spark: SparkSession, derby: Derby, tmp_path: Path
) -> None:
    table = derby.table("added").taken(spark, claimed(tmp_path / "s"), ["A", "B"])
    rows = frame(spark, (1, "a", 1), (1, "a", 1), (2, "b", None))
    assert table.newest("A") is None
    assert table.commit("A", 3, rows, covers={"to": 1}) == 3
    assert table.commit("A", 3, rows, covers={"to": 1}) == 0
    assert table.commit("A", 2, rows) == 0
    with pytest.raises(DamagedError, match="covers something else"):
        table.commit("A", 3, rows, covers={"to": 2})
    assert table.commit("B", 0, frame(spark)) == 0
    assert (table.newest("A"), table.newest("B")) == (3, 0)
    assert table.commit("B", 1, rows.select("v", "K")) == 3
    assert Counter(derby.rows("added")) == Counter(
        {(1, "a", 1): 2, (2, "b", None): 1, (None, "a", 1): 2, (None, "b", None): 1}
    )
    assert derby.tables() == ["ADDED", "BLAZES_COMMITS", "LATEST"]


def test_rows_of_equal_key_are_replaced(spark: SparkSession, derby: Derby, tmp_path: Path) -> None:
    table = derby.table("latest", key=("k",)).taken(spark, claimed(tmp_path / "s"), ["A"])
    table.commit("A", 0, frame(spark, (1, "a", 1), (2, "b", 2), (2, "b", 2)))
    table.commit("A", 1, frame(spark, (3, "a", 9), (4, "c", 4)))
    table.commit("A", 0, frame(spark, (1, "a", 1), (2, "b", 2)))  # stale
    assert {row[1:] for row in derby.rows("latest")} == {(2, "b", 2), (3, "a", 9), (4, "c", 4)}
    some = derby.table("added", key=("id", "v")).taken(spark, claimed(tmp_path / "s"), ["A"])
    some.commit("A", 0, frame(spark, (None, "a", 1), (1, "a", None), (1, "a", 1)))
    some.commit("A", 1, frame(spark, (None, "b", 1), (1, "b", None)))
    assert Counter(derby.rows("added")) == Counter([(1, "a", 1), (None, "b", 1), (1, "b", None)])


def test_keys_that_the_table_takes_for_equal_are_refused(
    spark: SparkSession, derby: Derby, tmp_path: Path
) -> None:
    """As in SQL, blanks at the end of a text do not count: both rows would stay, or either."""
    table = derby.table("added", key=("k",)).taken(spark, claimed(tmp_path / "s"), ["A"])
    assert table.commit("A", 0, frame(spark, (1, "a", 1), (2, "d", 2))) == 2
    with pytest.raises(SinkError, match=r"1 of 3 rows have keys \(k\) that differ in the job"):
        table.commit("A", 1, frame(spark, (3, "b", 1), (4, "b ", 1), (5, "c", 1)))
    assert derby.rows("added") == [(1, "a", 1), (2, "d", 2)]
    assert table.commit("A", 1, frame(spark, (3, "a ", 7), (4, "d", 8))) == 2
    assert derby.rows("added") == [(3, "a ", 7), (4, "d", 8)]


def test_a_driver_that_was_replaced_moves_nothing(
    spark: SparkSession, derby: Derby, tmp_path: Path
) -> None:
    """Not even one that was paused behind its last look at the fence."""
    old = claimed(tmp_path / "s")
    older = derby.table("added").taken(spark, old, ["A"])
    older.commit("A", 0, frame(spark, (1, "a", 1)))
    newer = derby.table("added").taken(spark, claimed(tmp_path / "s"), ["A"])
    with pytest.raises(FencedError, match="a newer driver"):
        older.commit("A", 1, frame(spark, (2, "b", 2)))
    old.fence.check = lambda: None  # type: ignore[method-assign]
    with pytest.raises(FencedError, match="taken over by"):
        older.commit("A", 1, frame(spark, (2, "b", 2)))
    assert newer.commit("A", 1, frame(spark, (3, "c", 3))) == 1
    assert derby.rows("added") == [(1, "a", 1), (3, "c", 3)]


def test_rows_of_another_state_are_refused_and_those_that_have_gone(
    spark: SparkSession, derby: Derby, tmp_path: Path
) -> None:
    table = derby.table("added").taken(spark, claimed(tmp_path / "s"), ["A"])
    table.commit("A", 0, frame(spark, (1, "a", 1)))
    backup = tmp_path / "backup"
    derby.close()
    shutil.copytree(derby.path, backup)
    derby.table("added").taken(spark, claimed(tmp_path / "s"), ["A"]).commit(
        "A", 1, frame(spark, (2, "b", 2))
    )
    for target in ("added", "latest"):  # jobs of one name in one schema, whatever they write to
        table = replace(derby.table(target), name=table.name)
        with pytest.raises(
            NotOwnerError, match="blazes_commits says that it belongs to"
        ) as refused:
            table.taken(spark, claimed(tmp_path / "other"), ["A"])
        assert "give one of them another `name:`" in refused.value.remedy
    derby.close()
    shutil.rmtree(derby.path)
    shutil.move(backup, derby.path)
    with pytest.raises(DamagedError, match="has made its commit 1"):
        derby.table("added").taken(spark, claimed(tmp_path / "s"), ["A"])
    fresh = derby.table("added").taken(spark, claimed(tmp_path / "other", fresh=True), ["A"])
    assert fresh.commit("A", 0, frame(spark, (1, "a", 1))) == 1
    assert derby.rows("added") == [(1, "a", 1)] * 2


def test_a_job_of_another_name_adds_each_row_once_beside_the_first(
    spark: SparkSession, derby: Derby, tmp_path: Path
) -> None:
    """As it is used to bring in a past range."""
    for number in (0, 1):
        for job, first in {"job": 0, "job-2023": 100}.items():
            for _ in range(2):  # started again
                ownership = claimed(tmp_path / job, job=job)
                table = derby.table("added").taken(spark, ownership, ["A"])
                table.commit("A", number, frame(spark, (first + number, "a", 1)))
    assert [row[0] for row in derby.rows("added")] == [0, 1, 100, 101]


def test_a_driver_that_stands_still_in_its_transaction_is_not_waited_for_without_end(
    spark: SparkSession, derby: Derby, tmp_path: Path
) -> None:
    """Derby ends a statement that waits for a lock by a limit of its own."""
    older = derby.table("added").taken(spark, claimed(tmp_path / "s"), ["A"])
    older.commit("A", 0, frame(spark, (1, "a", 1)))
    limit = "CALL syscs_util.syscs_set_database_property('derby.locks.waitTimeout', '1')"
    with connected(spark, older.options, sink="added") as database:
        database.update(limit)
        database.commit()
        database.update("UPDATE blazes_commits SET commit_number = commit_number + 0")
        with pytest.raises(SinkError, match=r"could not be taken over: .*end its process") as stuck:
            derby.table("added").taken(spark, claimed(tmp_path / "s"), ["A"])
        assert "nothing was changed" in str(stuck.value)
    newer = derby.table("added").taken(spark, claimed(tmp_path / "s"), ["A"])
    assert newer.commit("A", 1, frame(spark, (2, "b", 2))) == 1
    assert derby.rows("added") == [(1, "a", 1), (2, "b", 2)]


def test_what_the_database_refuses_changes_nothing_and_says_what_to_do(
    spark: SparkSession, derby: Derby, tmp_path: Path
) -> None:
    table = derby.table("latest", key=("k",)).taken(spark, claimed(tmp_path / "s"), ["A"])
    table.commit("A", 0, frame(spark, (1, "a", 1)))
    with pytest.raises(SinkError, match=r"did not take commit 1 of A.*check constraint"):
        table.commit("A", 1, frame(spark, (2, "a", 2), (3, "b", 2000)))
    with pytest.raises(SinkError, match=r"no column other, w; it has"):
        table.commit("A", 1, frame(spark, (2, "a", 2)).selectExpr("k", "v AS other", "v AS w"))
    assert [row[1:] for row in derby.rows("latest")] == [(1, "a", 1)]
    assert table.commit("A", 1, frame(spark, (2, "a", 2))) == 1
    absent = Table(name="x", options={"url": "jdbc:derby:/nowhere/at/all", "dbtable": "t"})
    with pytest.raises(SinkError, match="no connection to the database"):
        absent.taken(spark, claimed(tmp_path / "s"), ["A"])


@pytest.mark.parametrize("ends", [True, False], ids=["ended", "kept"])
def test_an_older_driver_that_stands_still_in_its_transaction_is_ended_or_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """PostgreSQL ends its transaction; where that is switched off, the newer driver says so."""
    monkeypatch.setattr(tables, "OPEN_S", 2)
    monkeypatch.setattr(tables, "TAKE_OVER_S", 120 if ends else 4)
    with postgres() as server:
        if server is None:
            pytest.skip("PostgreSQL, or its JDBC driver, is not installed")
        with driver_of(spark, server.jar):
            server.query("CREATE TABLE added (id INT)")
            table = Table(name="out", options={**server.options, "dbtable": "added"})
            table.taken(spark, claimed(tmp_path / "s"), ["A"])
            with connected(spark, table.options, sink="out") as older:
                if not ends:
                    older.update("SET idle_in_transaction_session_timeout = 0")
                older.update("UPDATE blazes_commits SET commit_number = 7")
                newer = claimed(tmp_path / "s")
                begun = time.monotonic()
                if ends:
                    taken = table.taken(spark, newer, ["A"])
                    assert taken.newest("A") is None
                    assert time.monotonic() - begun > 1
                    return
                with pytest.raises(SinkError, match="an older driver stands still") as raised:
                    table.taken(spark, newer, ["A"])
                assert time.monotonic() - begun > 3
                assert "canceling statement" in str(raised.value)
                older.rollback()
            assert table.taken(spark, newer, ["A"]).newest("A") is None


@contextlib.contextmanager
def driver_of(spark: SparkSession, jar: str) -> Iterator[None]:
    """A session that runs already finds a JDBC driver in a jar, for this thread."""
    java: Any = spark._jvm
    thread = java.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    urls = spark.sparkContext._gateway.new_array(java.java.net.URL, 1)  # type: ignore[union-attr]
    urls[0] = java.java.io.File(jar).toURI().toURL()
    thread.setContextClassLoader(java.java.net.URLClassLoader(urls, before))
    try:
        yield
    finally:
        thread.setContextClassLoader(before)


def test_what_cannot_be_a_table_is_refused_when_it_is_declared(tmp_path: Path) -> None:
    job = Job(root=tmp_path, results=tmp_path)
    with pytest.raises(ValueError, match="needs the options"):
        job.sink("out", [], format="jdbc", transaction=True)
    options = {"url": "jdbc:derby:x", "dbtable": "(SELECT 1) t"}
    with pytest.raises(ValueError, match="is not the name of a table"):
        job.sink("out", [], format="jdbc", key=["k"], options=options)
    with pytest.raises(ValueError, match="appended, at least once"):
        job.sink("out", [], format="mongodb", transaction=True)


def test_a_table_that_is_not_there_is_made(bench: Workbench, derby: Derby) -> None:
    def build(job: Job) -> None:
        items = job.source("items", format="json", path="data/items", schema=SCHEMA)
        job.sink("made", [items], format="jdbc", options=derby.options | {"dbtable": "app.made"},
                 transaction=True)  # fmt: skip

    bench.file("items", [{"id": 1, "k": "a", "v": 1}, {"id": 1, "k": "a", "v": 1}])
    bench.run(build)
    bench.run(build)
    assert derby.rows("made") == [(1, "a", 1)] * 2


JOB = """
import sys
from pathlib import Path
from flux_runtime.spark import Job, main

def build(job: Job) -> None:
    items = job.source(
        "items", format="json", path="data/items", options={"maxFilesPerTrigger": "1"},
        schema="id INT, k STRING, v INT",
    )
    options = {"url": "jdbc:derby:database"}
    once = sys.argv[1] == "once"
    job.sink("added", [items], format="jdbc", options={**options, "dbtable": "added"},
             transaction=once)
    if once:
        job.sink("latest", [items], format="jdbc", options={**options, "dbtable": "latest"},
                 key=["k"])

main(build, name="tables", folder=Path(__file__).parent, argv=sys.argv[2:])
"""


@pytest.mark.parametrize("seed", [2])
def test_every_row_is_in_the_tables_once_wherever_the_job_is_killed(
    derby: Derby, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    truth = written(tmp_path, rng)
    derby.close()
    for point in rng.sample(POINTS, len(POINTS)):
        assert run(tmp_path, "once", f"{point}@{rng.randint(1, 3)}") in (-signal.SIGKILL, 0)
    assert run(tmp_path, "once") == 0
    assert Counter(derby.rows("added")) == Counter(truth)
    latest = {k: (id, k, v) for id, k, v in truth}
    assert Counter(row[1:] for row in derby.rows("latest")) == Counter(latest.values())
    assert derby.tables() == ["ADDED", "BLAZES_COMMITS", "LATEST"]


def test_rows_that_are_only_appended_repeat(derby: Derby, tmp_path: Path) -> None:
    """The same attack finds what it looks for where nothing keeps it away."""
    truth = written(tmp_path, random.Random(3))
    derby.close()
    assert run(tmp_path, "again", "native-committed@2") == -signal.SIGKILL
    assert run(tmp_path, "again") == 0
    found = Counter(derby.rows("added"))
    assert found > Counter(truth)
    assert found.keys() == set(truth)


def written(path: Path, rng: random.Random) -> list[tuple[int, str, int]]:
    """Files of a source, each newer than the one before; their rows, in order."""
    rows = []
    (path / "data" / "items").mkdir(parents=True)
    (path / "job.py").write_text(JOB)
    for number in range(10):
        several = [(number, f"k{at}", rng.randrange(9)) for at in range(rng.randint(1, 6))]
        file = path / "data" / "items" / f"{number}.json"
        names = ("id", "k", "v")
        file.write_text("".join(json.dumps(dict(zip(names, r, strict=True))) + "\n"
                                for r in several))  # fmt: skip
        os.utime(file, (1_700_000_000 + number,) * 2)
        rows += several
    return rows


def run(path: Path, how: str, point: str = "") -> int:
    """Run the job on what there is; its exit status."""
    process = subprocess.run(
        [sys.executable, "job.py", how, "--root", ".", "--available-now"],
        cwd=path,
        env={**os.environ, "BLAZES_MASTER": "local[2]", faults.VARIABLE: point},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode in (0, -signal.SIGKILL), process.stderr
    return process.returncode
