"""Operators are found by reading, never by importing."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen.operators import OperatorError, files, find


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {
        "ops.py": """
import helpers
from pkg import inner
from functools import wraps
raise RuntimeError("never imported")

def plain(clicks, other=None, *, key, flag=True): ...
def loose(clicks, **more): ...
def positional(clicks, /): ...

@wraps(plain)
def decorated(*args): ...

alias = plain
if True:
    def conditional(clicks): ...
""",
        "helpers.py": "import json, pkg.deep\n",
        "json.py": "# has the name of a module of the standard library\n",
        "pkg/__init__.py": "",
        "pkg/inner.py": "from . import deep\nfrom .deep import x\nfrom ..nowhere import y\n",
        "pkg/deep.py": "def f(clicks): ...\n",
        "star.py": "from helpers import *\n",
        "broken.py": "def f(:\n",
        "unrelated.py": "",
    }
    for name, text in texts.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_the_parameters_are_read_off_the_text(folder: Path) -> None:
    found = find("ops:plain", folder)
    assert found.parameters == ("clicks", "other", "key", "flag")
    assert found.required == ("clicks", "key")
    assert found.file == folder / "ops.py"
    assert found.takes("clicks")
    assert not found.takes("anything")


def test_keywords_take_any_name(folder: Path) -> None:
    assert find("ops:loose", folder).takes("anything")


def test_a_parameter_by_place_has_no_name(folder: Path) -> None:
    found = find("ops:positional", folder)
    assert not found.takes("clicks")
    assert found.required == ("clicks",)


@pytest.mark.parametrize("name", ["decorated", "alias"])
def test_what_cannot_be_read_is_believed(name: str, folder: Path) -> None:
    assert find(f"ops:{name}", folder).parameters is None
    assert find(f"ops:{name}", folder).takes("anything")


def test_a_definition_under_a_condition_counts(folder: Path) -> None:
    assert find("ops:conditional", folder).parameters == ("clicks",)


def test_a_star_import_may_bring_anything(folder: Path) -> None:
    assert find("star:whatever", folder).parameters is None


def test_a_module_in_a_package(folder: Path) -> None:
    assert find("pkg.deep:f", folder).parameters == ("clicks",)


def test_an_installed_module_is_found_and_not_copied(folder: Path) -> None:
    found = find("json.decoder:JSONDecodeError", folder / "pkg")
    assert found.file is None
    assert files(["json.decoder"], folder / "pkg") == {}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nowhere:f", "there is no module 'nowhere'"),
        ("helper:f", "did you mean helpers:f?"),
        ("pkg.nowhere:f", "there is no module 'pkg.nowhere'"),
        ("ops:plane", "has no function 'plane'; did you mean plain?"),
        ("broken:f", "broken.py:1 is not valid Python"),
        ("ops", "is not module:function"),
        ("ops:f.g", "is not module:function"),
        ("../ops:f", "is not module:function"),
    ],
)
def test_what_is_not_there(reference: str, message: str, folder: Path) -> None:
    with pytest.raises(OperatorError) as refused:
        find(reference, folder)
    assert message in str(refused.value)


def test_files_follow_imports_beside_the_dataflow(folder: Path) -> None:
    assert list(files(["ops"], folder)) == [
        "helpers.py",
        "ops.py",
        "pkg/__init__.py",
        "pkg/deep.py",
        "pkg/inner.py",
    ]
