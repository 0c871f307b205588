"""Stand-ins for what only the place knows where a script runs: arguments, environment, services.

`Outside` is a value that is not known here: a text that shows where it comes from (`$BROKERS`,
`$boto3.client()`), of which every attribute, item and call is such a value again. So a script comes
as far as its queries without any of them. A loop over such a value is read once; it is noted, once
for each line, and so is every module for which another stands in.
"""

from __future__ import annotations

import ast
import dis
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, MutableSequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox.connect.places import caller

SERVICES: Final = frozenset(
    {
        *("airflow", "boto3", "botocore", "confluent_kafka", "delta", "elasticsearch"),
        *("great_expectations", "httpx", "kafka", "mlflow", "psycopg2", "pymongo", "pymysql"),
        *("redis", "requests", "snowflake", "sqlalchemy", "urllib3"),
    }
)
"""Modules that reach outside: another stands in for them, whether they are installed or not."""

NOTES: Final[dict[tuple[str, Position | None], None]] = {}
"""What could not be followed, in the order in which it was met."""


def note(text: str) -> None:
    """Say once that something cannot be followed here."""
    NOTES.setdefault((text, caller()))


MADE: Final[set[str]] = set()
"""Texts that stand for values which are not known."""
DECIDED: Final[dict[str, None]] = {}
"""Those of them that were taken for a number, or decided what the script did."""


_UNPACK: Final = dis.opmap["UNPACK_SEQUENCE"]


class Outside(str):
    """A value that is not known: the text `$` and where it comes from."""

    __slots__ = ()

    def __new__(cls, text: str) -> Outside:
        """A value that is called by this text."""
        MADE.add(text)
        return str.__new__(cls, text)

    def __eq__(self, other: object) -> bool:
        if _users(sys._getframe(1).f_code.co_filename):
            DECIDED[str(self)] = None
        return str.__eq__(self, other)

    __hash__ = str.__hash__

    def __bool__(self) -> bool:
        if _users(sys._getframe(1).f_code.co_filename):
            DECIDED[str(self)] = None
        return True

    def __len__(self) -> int:
        if _users(sys._getframe(1).f_code.co_filename):
            DECIDED[str(self)] = None
        return str.__len__(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Outside(f"{self}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Another such value; a column or a DataFrame of which nothing is known, given one."""
        from pyspark.sql.connect.column import Column
        from pyspark.sql.connect.dataframe import DataFrame

        given = (*arguments, *named.values())
        frame = next((each for each in given if isinstance(each, DataFrame)), None)
        if frame is not None:
            return frame.hint(UNREAD, f"what `{self[1:]}` does is not known here")
        if any(isinstance(each, Column) for each in given):
            from pyspark.sql.connect.functions import builtin

            columns = [each for each in given if isinstance(each, Column)]
            return builtin.call_function(self[1:], *columns)
        if len(given) == 1 and isinstance(given[0], Callable | type):  # type: ignore[arg-type]
            return given[0]  # a decorator
        return Outside(f"{self}()")

    def __getitem__(self, key: Any) -> Any:
        return str.__getitem__(self, key) if isinstance(key, slice) else Outside(f"{self}[{key}]")

    def __iter__(self) -> Iterator[Any]:
        caller_ = sys._getframe(1)
        operation, count = caller_.f_code.co_code[caller_.f_lasti : caller_.f_lasti + 2]
        if operation == _UNPACK:
            return iter([self[place] for place in range(count)])
        DECIDED[str(self)] = None
        note(f"a loop over `{self}`, which is not known here, was read once")
        return iter([Outside(f"{self}[]")])

    def __int__(self) -> int:
        DECIDED[str(self)] = None
        return 1

    def __float__(self) -> float:
        DECIDED[str(self)] = None
        return 1.0

    def __index__(self) -> int:
        DECIDED[str(self)] = None
        return 1

    def __enter__(self) -> Outside:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __mro_entries__(self, _: Any) -> tuple[type, ...]:
        return ()


def root(value: str) -> str:
    """The module that a value which is not known comes from: `click` of `$click.command()`."""
    return re.split(r"\W", value.lstrip("$"), maxsplit=1)[0]


def lost(value: Any, name: str) -> Any:
    """What is known of a value that may be another one by now: what a DataFrame reads."""
    if type(value).__name__ == "DataFrame" and hasattr(value, "hint"):
        return value.hint(UNREAD, f"`{name}` may be another one, as nothing was run")
    return Outside(f"${name}")


BOTH: Final[list[str]] = []
"""What was not known, of every place that was read both ways."""


class Open:
    """What may have another value where the script runs: conditions on it are not decided here."""


class Default(str, Open):
    """The text that an argument, a variable or a parameter has where nobody gives it another."""

    def __eq__(self, other: object) -> bool:
        if _users(sys._getframe(1).f_code.co_filename):
            DECIDED[str(self)] = None
        return str.__eq__(self, other)

    __hash__ = str.__hash__

    def __int__(self) -> int:
        if _users(sys._getframe(1).f_code.co_filename):
            DECIDED[str(self)] = None
        return int(str(self))

    def lower(self) -> Default:
        """The same in small letters."""
        return Default(str.lower(self))

    def upper(self) -> Default:
        """The same in capital letters."""
        return Default(str.upper(self))

    def strip(self, chars: str | None = None) -> Default:
        """The same without blanks around it."""
        return Default(str.strip(self, chars))


class DefaultNumber(int, Open):
    """A number by default."""


class Defaults(list[Any], Open):
    """Arguments of a script, or parts of one, of which there may be others."""

    def __contains__(self, asked: object) -> bool:
        if _users(sys._getframe(1).f_code.co_filename):
            DECIDED[f"{asked!r} in the arguments"] = None
        return list.__contains__(self, asked)


def by_default(value: Any, name: str) -> Any:
    """What was made of a value by default: another one, where it is a text, number or list."""
    if isinstance(value, bool | None):
        return Outside(f"${name}")
    made: Any = {str: Default, int: DefaultNumber, list: Defaults}.get(type(value))
    return value if made is None else made(value)


UNREAD: Final = "blazes_unread"
"""A hint of this name marks a DataFrame that went through unknown code; its parameter is why."""


class _StandIn(ModuleType):
    """A module whose every name is a value that is not known."""

    __path__: MutableSequence[str] = []  # noqa: RUF012 - nothing is put in

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Outside(f"${self.__name__}.{name}")


class _Finder(MetaPathFinder, Loader):
    """Finds what stands in for a module: made here, or a `_StandIn`."""

    def __init__(self, first: bool) -> None:
        self.first = first
        """It stands before the finders of Python: for services alone."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        root = name.partition(".")[0]
        if name in MODULES or ((root in SERVICES) == self.first and (self.first or _of_user())):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        made = MODULES.get(spec.name)
        if made is not None:
            return made()
        if not self.first:
            note(f"the module `{spec.name}` is not installed here, and what it does is not known")
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Everything is there already."""


MODULES: Final[dict[str, Callable[[], ModuleType]]] = {}
"""Modules that are made here: name -> what makes them."""


def _of_user() -> bool:
    """Whether it is the user's code that imports."""
    frame = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and _users(frame.f_code.co_filename)


def _users(file: str) -> bool:
    return not file.startswith(("<", sys.prefix, sys.base_prefix)) and "/annotations/" not in file


def stand_ins(text: str, path: str) -> None:
    """Let every way to the outside lead to stand-ins, for a script with this text."""
    sys.meta_path.insert(0, _Finder(first=True))
    sys.meta_path.append(_Finder(first=False))
    arguments(text, path, run=True)
    time.sleep = lambda _: None
    _environment()
    _json()


def arguments(text: str, path: str, *, run: bool) -> list[str]:
    """The arguments that stand in for those of a script, its own name first. Where it is not run,
    nothing is decided by what a parser gives."""
    import argparse

    sys.argv = Defaults([path, *arguments_of(text)])
    parse = argparse.ArgumentParser.parse_known_args

    def parsed(parser: Any, args: Any = None, namespace: Any = None) -> Any:
        given, rest = parse(parser, _required(parser) if args is None else args, namespace)
        for name, value in [] if run else vars(given).items():
            setattr(given, name, by_default(value, name))
        return given, rest

    argparse.ArgumentParser.parse_known_args = parsed  # type: ignore[assignment,method-assign]
    return sys.argv


def _environment() -> None:
    found = type(os.environ).__getitem__

    def get(environment: Any, key: Any) -> Any:
        try:
            return found(environment, key)
        except KeyError:
            if _users(sys._getframe(1).f_code.co_filename):
                return Outside(f"${key}")
            raise

    def get_or(environment: Any, key: Any, default: Any = None) -> Any:
        if key in environment:
            return found(environment, key)
        if not _users(sys._getframe(1).f_code.co_filename):
            return default
        return Outside(f"${key}") if default is None else by_default(default, str(key))

    def getenv(key: Any, default: Any = None) -> Any:
        if key in os.environ or not _users(sys._getframe(1).f_code.co_filename):
            return os.environ.get(key, default)
        return Outside(f"${key}") if default is None else by_default(default, str(key))

    setattr(type(os.environ), "__getitem__", get)  # noqa: B010
    setattr(type(os.environ), "get", get_or)  # noqa: B010
    os.getenv = getenv


def _json() -> None:
    loads = json.loads

    def known(text: Any, **options: Any) -> Any:
        return text if isinstance(text, Outside) else loads(text, **options)

    json.loads = known  # type: ignore[assignment]


def arguments_of(text: str) -> list[Outside]:
    """As many arguments as a script asks for, each called by its place.

    >>> arguments_of("if len(sys.argv) != 3: exit(1)")
    ['$1', '$2']
    """
    most, asked = 0, None
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Subscript(value=value, slice=ast.Constant(value=int(place))) if _argv(value):
                most = max(most, place)
            case ast.Assign(targets=[ast.Tuple(elts=several)], value=value) if _argv(value):
                asked = len(several) - 1
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="len"), args=[value]),
                ops=[op],
                comparators=[ast.Constant(value=int(number))],
            ) if _argv(value) and asked is None:
                if isinstance(op, ast.NotEq | ast.Eq | ast.Lt | ast.GtE):
                    asked = number - 1
                elif isinstance(op, ast.LtE):
                    asked = number
    count = most if asked is None else asked
    return [Outside(f"${place}") for place in range(1, count + 1)]


def _argv(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute | ast.Name) and "argv" in ast.unparse(node)


def _required(parser: Any) -> list[str]:
    """Arguments that a parser accepts: what it asks for, and nothing else."""
    made: list[str] = []
    groups = {
        id(a): group
        for group in parser._mutually_exclusive_groups
        if group.required
        for a in group._group_actions[:1]
    }
    for action in parser._actions:
        wanted = action.required or id(action) in groups
        if not wanted or action.nargs in ("*", "...", 0):
            made += action.option_strings[:1] if wanted and action.nargs == 0 else []
            continue
        count = action.nargs if isinstance(action.nargs, int) else 1
        made += [*action.option_strings[-1:], *[_value(action)] * count]
    return made


def _value(action: Any) -> str:
    if action.choices:
        return Default(next(iter(action.choices)))
    value = Outside(
        f"${action.metavar or action.dest}"
        if isinstance(action.metavar, str)
        else f"${action.dest}"
    )
    if action.type is None:
        return value
    try:
        action.type(value)
    except Exception:
        DECIDED[str(value)] = None
        return "1"
    return value
