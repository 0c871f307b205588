"""Python source for values that users wrote: it means the value, and ruff leaves it alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from codegen.literals import Call, Code, Text, string, value

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
