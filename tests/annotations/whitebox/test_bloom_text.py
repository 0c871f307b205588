"""Bloom texts of any kind: read, or refused with every mistake at its place."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from annotations.diagnostics import BadInput, Diagnostic
from annotations.whitebox.bloom import Program, read, read_file
from tests.annotations.whitebox.bloom_cases import cases
from tests.annotations.whitebox.bloom_programs import program

CASES = cases()
TOKENS = re.findall(r"\w+|[^\w\s]|\n", "\n".join(case.text for case in CASES))


def mistakes(text: str) -> list[str]:
    """What is wrong with a text: line, column, code and message of each mistake."""
    with pytest.raises(BadInput) as refused:
        read(text)
    return [
        f"{each.position.line}:{each.position.column} {each.code.id} {each.message}"
        for each in refused.value.diagnostics
        if each.position is not None
    ]


def module(rules: str, state: str = "") -> str:
    """A module with some collections; the rules begin in line 9."""
    return (
        "module M\n  state do\n    interface input, :a, [:id] => [:k, :v]\n"
        "    interface output, :out, [:x, :y]\n    table :t, [:id] => [:k, :v]\n"
        f"    scratch :s, [:x, :y]\n    {state}\n  end; bloom do\n{rules}\nend\nend\n"
    )


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ("out <= a {|r| [r.k, r.w]}", "9:21 BLZ091 there is no column `w`"),
        ("out <= a {|r| [r.kk, r.v]}", "9:16 BLZ091 there is no column `kk`; did you mean k?"),
        ("out <= aa", "9:8 BLZ091 there is no collection `aa`"),
        ("out <= a.group([:k], coun(:v))", "9:22 BLZ091 `coun` is no aggregate"),
        ("out <= a.group([:kk], count)", "9:17 BLZ091 there is no column `kk`"),
        ("out <= (a * t).pairs(:k => :kk) {|x, y| [x.k, y.k]}", "9:28 BLZ091 there is no col"),
        ("out <= (a * t).pairs(a.k => s.x) {|x, y| [x.k, y.k]}", "9:29 BLZ092 expected `:column`"),
        ("out <= a", "9:1 BLZ092 `out` has 2 columns (x, y), and the rule gives 3"),
        ("out <= a.notin(s)", "9:8 BLZ092 `notin` compares 3 columns with 2"),
        ("t <~ a", "9:1 BLZ092 `t` is a table, which `<~` cannot fill"),
        ("s <- a {|r| [r.k, r.v]}", "9:1 BLZ092 `s` is a scratch, which `<-` cannot fill"),
        ("tick <= a", "9:1 BLZ092 `tick` is a periodic, which `<=` cannot fill"),
        ("s <= s.group([:x], count)\nout <= s", "9:1 BLZ092 `s` depends on what `s` does not"),
        ("out <= a {|r| [r.k r.v]}", "9:20 BLZ090"),
        ("out <= a {|r| [r.k, r.v]", "BLZ090"),
        ("out = a", "9:5 BLZ090"),
        ("out <= $a", "9:8 BLZ090 `$` does not belong here"),
        ('out <= a {|r| [r.k, "]}', "BLZ090"),
    ],
)
def test_a_mistake_has_its_place(rules: str, found: str) -> None:
    all_of_them = mistakes(module(rules, "periodic :tick, 1"))
    assert any(found in each for each in all_of_them), all_of_them


def test_all_mistakes_come_out_at_once() -> None:
    found = mistakes(module("out <= a {|r| [r.w, r.k]}\nt <~ a\nnone <= a\nout <= a {|r| [r.k] }}"))
    assert [each.split()[1] for each in found] == ["BLZ092", "BLZ091", "BLZ090"]


def test_a_statement_that_does_not_parse_hides_no_other() -> None:
    found = mistakes(module("out <= a {|r| [r.k r.v]}\nt <= a\nout <= => a\ns <= a {|r| [1, ]]}"))
    assert [each.split(":")[0] for each in found] == ["9", "11", "12"]


def test_files_that_a_file_requires_are_read(tmp_path: Path) -> None:
    (tmp_path / "kept.rb").write_text(
        "module Kept\n  state do\n    table :t, [:k]\n  end\nend\n", encoding="utf-8"
    )
    file = tmp_path / "m.bloom"
    file.write_text(
        "require 'rubygems'\nrequire_relative 'kept'\nmodule M\n  include Kept\n  state do\n"
        "    interface input, :a, [:k]\n    interface output, :b, [:k]\n  end\n"
        "  bloom do\n    t <= a\n    b <= t\n  end\nend\n",
        encoding="utf-8",
    )
    [output] = read_file(file).outputs("M")
    assert [str(path.annotation) for path in output.paths()] == ["CW"]


def test_bud_writes_some_things_in_several_ways() -> None:
    text = (
        "class Store < Base\n  state do\n    interface :input, :put, [:k]\n"
        "    interface output, :got, [:k]\n    table :all, put.schema\n  end\n"
        "  bloom { all <= put; got <= all }\nend\n"
        "class Base\n  include Bud\n  LIMIT = 3\n  state { }\nend\n"
    ).replace("  state { }\n", "")
    text += (
        "module M\n  import Store => :store\n  state do\n    interface input, :a, [:k, :v]\n"
        "    interface output, :out, [:k, :n]\n    scratch :seen, [:k, :v]\n  end\n"
        "  bloom :first do\n    store.put <= a {|t| [t.k]}\n"
        "    seen <= store.got {|t| [t.k, 1]}\n"
        "    out <= seen\n      .group([seen.k],\n         max(seen.v))\n  end\nend\n"
    )
    [output] = read(text).outputs("M")
    assert [str(path.annotation) for path in output.paths()] == ["OW[k]"]


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "m.bloom"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInput, match="BLZ001"):
        read_file(file)


@pytest.mark.parametrize("text", ["", "# nothing\n", "require 'bud'\n"])
def test_a_text_without_a_module_is_refused(text: str) -> None:
    assert mistakes(text) == ["1:1 BLZ090 there is no module in the text"]


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = "(" * 500 + "1" + ")" * 500
    assert any("too deeply" in each for each in mistakes(module(f"out <= a {{|r| [{deep}]}}")))


def test_what_is_very_long_is_read() -> None:
    many = "\n".join(f"out <= a {{|r| [r.k, {at}]}}" for at in range(300))
    [output] = read(module(many)).outputs("M")
    assert [str(path.annotation) for path in output.paths()] == ["CR"]


def test_a_module_that_is_too_large_to_follow_is_order_sensitive() -> None:
    """Each collection reads the one before twice: more ways through it than can be followed."""
    rules = ["s0 <= a {|r| [r.k, r.v]}"]
    rules += [
        f"s{n} <= (s{n - 1} * s{n - 1}).pairs(:x => :y) {{|l, r| [l.x, r.y]}}" for n in range(1, 20)
    ]
    state = "; ".join(f"scratch :s{n}, [:x, :y]" for n in range(20))
    [output] = read(module("\n".join([*rules, "out <= s19"]), state)).outputs("M")
    assert [str(path.annotation) for path in output.paths()] == ["OW[*]"]


@pytest.mark.parametrize("seed", range(80))
def test_any_text_is_read_or_refused(seed: int) -> None:
    choose = random.Random(seed)
    text = choose.choice(CASES).text if seed % 2 else program(choose)
    words = re.findall(r"\w+|[^\w\s]|\s+", text)
    for _ in range(choose.randint(1, 4)):
        at = choose.randrange(len(words))
        change = choose.choice(("drop", "insert", "replace", "swap"))
        if change == "drop":
            del words[at]
        elif change == "insert":
            words.insert(at, choose.choice(TOKENS))
        elif change == "replace":
            words[at] = choose.choice(TOKENS)
        else:
            other = choose.randrange(len(words))
            words[at], words[other] = words[other], words[at]
    changed = "".join(words)
    program_or_none = read_or_refuse(changed)
    if program_or_none is not None:
        for name in program_or_none.modules:
            for output in program_or_none.outputs(name):
                assert output.paths() is not None


def read_or_refuse(text: str) -> Program | None:
    """The program; None where the text is refused with codes and places."""
    found: tuple[Diagnostic, ...] = ()
    try:
        return read(text)
    except BadInput as refused:
        found = refused.diagnostics
    assert {each.code.id for each in found} <= {"BLZ006", "BLZ090", "BLZ091", "BLZ092"}
    assert all(each.position is not None for each in found)
    return None
