"""Texts in a job: SQL over several lines, and values as Python source, mean what they meant."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from codegen.literals import Call, Code, Text, string, value
from codegen.sql_text import opaque, sql_lines

WORDS = """SELECT FROM LEFT JOIN GROUP BY WHERE a b.c count(*) , ( ) 'it''s' '--' UNION ALL OUTER
ON AND OR CASE WHEN ELSE END =1"""
words = st.sampled_from([*WORDS.split(), "'it is'", '"a  b"', "`x y`", "\n"])
queries = st.lists(words, min_size=1, max_size=40).map(" ".join)


def tokens(sql: str) -> list[str]:
    """The query without white space outside quotes."""
    spans = opaque(sql)
    assert spans is not None
    found, at = [], 0
    for start, end in spans:
        found += [*sql[at:start].split(), sql[start:end]]
        at = end
    return [*found, *sql[at:].split()]


def squeezed(sql: str) -> str:
    return "\x00".join(tokens(sql))


@given(queries, st.integers(10, 100))
def test_nothing_but_white_space_changes(sql: str, width: int) -> None:
    lines = sql_lines(sql, width)
    assert lines is not None
    assert squeezed("\n".join(lines)) == squeezed(sql)


@given(queries, st.integers(20, 100))
def test_no_line_is_too_long(sql: str, width: int) -> None:
    for line in sql_lines(sql, width) or ():
        assert len(line) <= width


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'a\nb' FROM c",
        "SELECT 'a FROM c",
        "SELECT a /* never ends FROM c",
        "SELECT `a\nb` FROM c",
        "SELECT /* two\nlines */ a FROM c",
        "SELECT 'a\tb' AS tab FROM c",
    ],
)
def test_what_could_change_its_meaning_stays_whole(sql: str) -> None:
    assert sql_lines(sql, 40) is None


def test_short_lines_stay_as_the_author_broke_them() -> None:
    sql = "\n    SELECT a,\n           b   -- the other\n    FROM c\n"
    assert sql_lines(sql, 80) == ("SELECT a,", "       b   -- the other", "FROM c")


def test_a_long_line_with_a_comment_is_not_broken() -> None:
    sql = "SELECT a FROM b -- " + "x " * 60
    assert sql_lines(sql, 40) == (sql.strip(),)


def test_a_join_is_broken_before_its_first_word() -> None:
    sql = "SELECT a FROM b LEFT OUTER JOIN c ON b.x = c.x CROSS JOIN d"
    assert sql_lines(sql, 30) == (
        "SELECT a",
        "FROM b",
        "LEFT OUTER JOIN c",
        "  ON b.x = c.x",
        "CROSS JOIN d",
    )


texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(
    alphabet="\"'\\\n\t{}%ab ", max_size=30
)
values = st.recursive(
    texts
    | st.integers()
    | st.booleans()
    | st.none()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, min_size=2, max_size=4).map(tuple)
        | st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(values, st.integers(0, 3), st.integers(0, 90))
def test_a_literal_is_the_value(it: Any, depth: int, before: int) -> None:
    assert ast.literal_eval(value(it, depth=depth, before=before)) == it


@given(texts)
def test_a_string_prefers_double_quotes_unless_they_take_more_backslashes(text: str) -> None:
    literal = string(text)
    assert ast.literal_eval(literal) == text
    assert literal.startswith('"') or text.count('"') > text.count("'")


@given(st.lists(texts.filter(lambda line: "\n" not in line and "\r" not in line), min_size=1))
def test_a_text_keeps_its_lines(lines: list[str]) -> None:
    source = value(Text(tuple(lines)), depth=1)
    read = ast.literal_eval(source)
    expected = "".join(f"    {line}\n" if line else "\n" for line in lines)
    assert read == f"\n{expected}    "


def test_a_value_behind_a_name_of_unknown_width_is_broken() -> None:
    wide, call = "ŌrĮJï-Xŝœ𣫅½bnè-Cŕ𫊰", Call("Producers.all", [["relay"]])
    assert value({"words": call}, depth=1).count("\n") == 0
    assert value({wide: call}, depth=1).splitlines()[1] == f'        "{wide}": Producers.all('


arguments = st.lists(st.tuples(st.sampled_from("abcdefgh"), values), min_size=1, max_size=6)


@settings(max_examples=6, deadline=None, phases=(Phase.generate,))
@given(st.lists(arguments, min_size=10, max_size=40))
def test_ruff_leaves_calls_alone_at_any_width(calls: list[list[tuple[str, Any]]]) -> None:
    source = "".join(
        f"x = {value(Call('job.source', ['a name', Code('f')], named), before=4, after=0)}\n"
        for named in (list(dict(each).items()) for each in calls)
    )
    for width in ("88", "120"):
        command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", width]
        done = subprocess.run([*command, "-"], input=source.encode(), capture_output=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.decode() == source
