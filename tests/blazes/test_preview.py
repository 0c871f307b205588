"""The first rows of result files, in the layouts that jobs write."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blazes.cli.preview import ROWS, preview


def test_parquet_in_folders_of_commits(tmp_path: Path) -> None:
    for commit, words in (
        ("Count.counts-000000002", ["c"]),
        ("Count.counts-000000001", ["a", "b"]),
    ):
        (tmp_path / commit).mkdir()
        table = pa.table({"word": words, "count": [1] * len(words)})
        pq.write_table(table, tmp_path / commit / "part-0.parquet")
        (tmp_path / commit / "_SUCCESS").write_text("", encoding="utf-8")
        (tmp_path / commit / ".part-0.parquet.crc").write_text("x", encoding="utf-8")
    staged = tmp_path / ".staging" / "Count.counts-000000003"
    staged.mkdir(parents=True)
    pq.write_table(pa.table({"word": ["not committed"]}), staged / "part-0.parquet")
    shown = preview(tmp_path, "parquet")
    assert shown.size.startswith("2 files, ")
    assert shown.lines == ("word  count", "a     1", "b     1", "c     1")


def test_only_the_first_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": list(range(1000))}), tmp_path / "part-0.parquet")
    assert preview(tmp_path, "parquet").lines == ("n", *(str(n) for n in range(ROWS)))


def test_json_lines(tmp_path: Path) -> None:
    (tmp_path / "part.json").write_text(
        '{"a": 1}\n{"b": null, "a": "x"}\nrubbish\n', encoding="utf-8"
    )
    assert preview(tmp_path, "json").lines == ("a  b", "1  null", "x  null")


@pytest.mark.parametrize("format", ["csv", "text"])
def test_lines(tmp_path: Path, format: str) -> None:
    (tmp_path / "part").write_text("1,2\n" * 9, encoding="utf-8")
    assert preview(tmp_path, format).lines == ("line", *["1,2"] * ROWS)


def test_wide_and_wild_values_are_cut_and_escaped(tmp_path: Path) -> None:
    values = ["計" * 50, "\x1b[31mred\n"]
    pq.write_table(pa.table({"v": values}), tmp_path / "part-0.parquet")
    _, wide, wild = preview(tmp_path, "parquet").lines
    assert wide == "計" * 13 + "…"
    assert wild == "\\x1b[31mred\\n"


def test_nothing_there(tmp_path: Path) -> None:
    assert preview(tmp_path / "gone", "parquet").size == "empty"
    assert preview(tmp_path, "json").lines == ()


def test_files_without_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": pa.array([], pa.int64())}), tmp_path / "part-0.parquet")
    assert preview(tmp_path, "parquet").lines == ()
