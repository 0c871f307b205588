"""Configuration files of a project whose script is not run: JSON, YAML, TOML, INI, texts of SQL.

A file is read where its path is known, inside the project and no hidden one. What it holds is as by
default (`outside.Open`), as arguments are: another one may be in its place where the script runs,
so no condition on it is decided, and the file is noted.
"""

from __future__ import annotations

import configparser
import json
import os
import posixpath
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Final

from annotations.whitebox.derivation import SETTINGS
from annotations.whitebox.following import outside
from annotations.whitebox.following.outside import Default, Defaults, Outside, as_default
from annotations.whitebox.sandbox import project_of

BYTES_MAX: Final = 2**20
"""Size of a file that is read."""
SUFFIXES: Final = frozenset(
    {".json", ".avsc", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".properties"}
    | {".sql", ".hql", ".ddl", ".txt"}
)
_FOLDERS: Final[list[Path]] = []
"""Folders that a path may be relative to: that of the script and those above, in the project."""


def beside(script: Path) -> None:
    """Let paths be relative to the folder of this script, or to one above it."""
    folder = script.resolve().parent
    root = project_of(folder)
    _FOLDERS[:] = [parent for parent in (folder, *folder.parents) if parent.is_relative_to(root)]


def text_of(path: Any) -> str | None:
    """The text of a configuration file; None where it is none that may be read."""
    if isinstance(path, Outside) or not _FOLDERS:
        return None
    for folder in _FOLDERS:
        file = (folder / str(path)).resolve()
        if not file.is_relative_to(_FOLDERS[-1]) or file.suffix not in SUFFIXES:
            continue
        inside = file.relative_to(_FOLDERS[-1])
        hidden = any(part.startswith(".") for part in inside.parts)
        if not hidden and file.is_file() and file.stat().st_size <= BYTES_MAX:
            note(file)
            return file.read_text(encoding="utf-8")
    return None


def note(file: Path) -> None:
    """Say that what the script does rests on a file."""
    name = file.relative_to(_FOLDERS[-1])
    outside.note_once(f"{SETTINGS} {name} stay as they are")


def watch(script: Path) -> None:
    """Note the configuration files that a script which is run opens."""
    beside(script)

    def opened(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and arguments[1] in ("r", "rb"):
            file = Path(arguments[0])
            if file.suffix in SUFFIXES and file.resolve().is_relative_to(_FOLDERS[-1]):
                note(file.resolve())

    sys.addaudithook(opened)


class Opened:
    """A file that is open for reading."""

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, *_: Any) -> str:
        """All of its text."""
        return Default(self._text)

    def readlines(self) -> list[str]:
        """Its lines."""
        return Defaults(map(Default, self._text.splitlines(keepends=True)))

    def close(self) -> None:
        """Does nothing."""


def opened(path: Any, mode: str = "r", *_: Any, **__: Any) -> Any:
    """Stands for `open`."""
    text = text_of(path) if mode in ("r", "rb", "rt") else None
    return _elsewhere("open", path) if text is None else Opened(text)


def _elsewhere(call: str, path: Any) -> Outside:
    """The content of a file that is not here."""
    if not isinstance(path, Outside):
        outside.note_once(f"{SETTINGS} {str(path)[-60:]} stay as they are")
    return Outside(f"${call}()")


class File(PurePosixPath):
    """Stands for `pathlib.Path`: what asks for files finds those that may be read."""

    def resolve(self, *_: Any) -> File:
        """The whole path."""
        return File(posixpath.abspath(str(self)))

    absolute = expanduser = resolve

    def read_text(self, *_: Any, **__: Any) -> str:
        """The text of the file."""
        text = text_of(self)
        return _elsewhere("read_text", str(self)) if text is None else Default(text)

    read_bytes = read_text

    def open(self, mode: str = "r", *_: Any, **__: Any) -> Any:
        """The file, open."""
        return opened(self, mode)


def _loading(parse: Callable[[str], Any]) -> Callable[..., Any]:
    def load(source: Any, *_: Any, **__: Any) -> Any:
        text = source.read() if isinstance(source, Opened) else source
        if isinstance(text, Outside) or not isinstance(text, str):
            return Outside("$load()")
        content = parse(text)
        return as_default(content) if isinstance(text, Default) else content

    return load


def _yaml(text: str) -> Any:
    import yaml

    return yaml.safe_load(text)


class Parser:
    """Stands for `configparser.ConfigParser`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._found = configparser.ConfigParser()
        self._known = True

    def read(self, paths: Any, *_: Any, **__: Any) -> None:
        """Read one file, or several; of one that may not be read nothing is known."""
        for path in paths if isinstance(paths, list | tuple) else [paths]:
            self.read_string(text_of(path))

    def read_file(self, file: Any, *_: Any) -> None:
        """Read an open file."""
        self.read_string(file.read() if isinstance(file, Opened) else None)

    def read_string(self, text: Any, *_: Any) -> None:
        """Read a text."""
        if not isinstance(text, str) or isinstance(text, Outside):
            self._known = False
        else:
            self._found.read_string(text)

    def __getitem__(self, section: str) -> Any:
        return as_default(dict(self._found[section])) if self._known else Outside(f"${section}")

    def get(self, section: str, option: str, *_: Any, **given: Any) -> Any:
        """The text of an option."""
        if not self._known:
            return Outside(f"${option}")
        value = self._found.get(section, option, fallback=given.get("fallback"))
        return as_default(value)

    def getint(self, section: str, option: str, *_: Any, **given: Any) -> Any:
        """The number of an option."""
        value = self.get(section, option, **given)
        return as_default(int(str(value))) if isinstance(value, Default) else value

    def items(self, section: str, *_: Any, **__: Any) -> Any:
        """The options of a section, and their texts."""
        options = self[section]
        return options if isinstance(options, Outside) else as_default(list(options.items()))

    def sections(self) -> Any:
        """The names of the sections."""
        return as_default(self._found.sections()) if self._known else Outside("$sections")


_json, _toml, _of_yaml = _loading(json.loads), _loading(tomllib.loads), _loading(_yaml)
MODULES: Final[dict[str, dict[str, Any]]] = {
    "pathlib": {"Path": File, "PurePath": File},
    "json": {"load": _json, "loads": _json},
    "yaml": {"safe_load": _of_yaml, "load": _of_yaml, "full_load": _of_yaml},
    **{name: {"load": _toml, "loads": _toml} for name in ("tomllib", "tomli", "toml")},
    "configparser": {"ConfigParser": Parser, "RawConfigParser": Parser, "SafeConfigParser": Parser},
}
"""Modules -> their names that are known without running anything."""
PATHS: Final[dict[str, Callable[..., Any]]] = {
    **{name: getattr(posixpath, name) for name in ("abspath", "basename", "dirname", "splitext")},
    "realpath": posixpath.abspath,
    "fspath": os.fspath,
}
"""Functions of `os.path` that look at no file."""
