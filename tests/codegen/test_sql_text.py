"""Long SQL is broken over lines, and means what it meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
