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
import threading
import time
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final, cast

from annotations.dataflow import Position
from annotations.whitebox.following.places import caller
from annotations.whitebox.python_chance import Chance, reason_of

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
    """Say once for each place that something cannot be followed here."""
    NOTES.setdefault((text, caller()))


def note_once(text: str) -> None:
    """Say once, at the first place, what is taken for granted."""
    if all(text != noted for noted, _ in NOTES):
        note(text)


class Refused(Exception):  # noqa: N818 - it is the user's code that meets it
    """The code asked for something that only data, and so a running Spark, can answer."""


class Asked(Refused):
    """It was asked for outside of the function of a micro-batch."""


MADE: Final[dict[str, type[Outside]]] = {}
"""Texts that stand for values which are not known -> their class; `Outside` of several classes."""
DECIDED: Final[dict[str, None]] = {}
"""Those of them that were taken for a number, or decided what the script did."""


ASKED: Final[dict[str, None]] = {}
"""What code that is run asked of the place, where nothing tells what became of it."""


def left_to_the_place() -> str:
    """A text that decided, or may have, what code that is run did; empty: nothing that is known."""
    return next(iter((*DECIDED, *ASKED)), "")


def forget() -> None:
    """Know nothing any more of what was asked of the place."""
    DECIDED.clear()
    ASKED.clear()


CHANGED: Final[list[str]] = []
"""What was done to data that had been written before: rows or files removed, or changed."""
REMOVED: Final[list[str]] = []
"""Texts that were given to what removes files."""
_CHANGING: Final = re.compile(
    r"(rm|mv|rmtree|unlink|remove|delete\w*|truncate|drop\w*)", re.IGNORECASE
)
_MODEL: Final = "spark_udf"
"""Makes a function of a model of MLflow's; the session is for finding the model."""
_SCORING: Final = re.compile(
    r"(pyspark\.ml\.[\w.]*(Model|Pipeline)\.(load|read\(\)\.load)|mlflow\.spark\.load_model)\(\)"
    r"(\.(bestModel|stages\[-?\d+\]))?\.transform"
)
"""A model that was kept, of Spark's own library."""
_SHELL: Final = re.compile(r"-?rm(r|dir)?")
_EXECUTING: Final = re.compile(r"execute\w*|run|sql|query", re.IGNORECASE)
_ADDING: Final = re.compile(
    r"(\s|\(|--.*\n|/\*.*?\*/)*(SELECT|WITH|FROM|VALUES|TABLE|INSERT\s+INTO|SET|USE|SHOW|DESC\w*|EXPLAIN"
    r"|CREATE\s+(?!OR\s+REPLACE\s+TABLE)|REFRESH|RESET|ANALYZE|(UN)?CACHE|OPTIMIZE|VACUUM|MSCK|ADD|COMMENT"
    r"|ALTER\s+TABLE\s+\S+\s+(ADD|SET)|DECLARE|CLEAR|BEGIN|COMMIT|MERGE|INSERT\s+OVERWRITE)\b",
    re.IGNORECASE,
)
"""Statements that change no rows which were there; what a merge or an overwrite does is read."""


def changing(statement: str) -> None:
    """Note a statement that may change rows which were written before."""
    if not _ADDING.match(statement):
        CHANGED.append(" ".join(statement.split())[:60])


_UNPACK: Final = dis.opmap["UNPACK_SEQUENCE"]


class Outside(str):
    """A value that is not known: the text `$` and where it comes from."""

    __slots__ = ()

    def __new__(cls, text: str) -> Outside:
        """A value that is called by this text."""
        MADE[text] = cls if MADE.get(text, cls) is cls else Outside
        return str.__new__(cls, text)

    @classmethod
    def module(cls, name: str) -> Outside:
        """A module that is not there, which says nothing as long as nothing of it is used."""
        foreign = root(name) not in {*sys.stdlib_module_names, *SERVICES}
        return str.__new__(Held if foreign else cls, f"${name}")

    def __eq__(self, other: object) -> bool:
        if of_user(sys._getframe(1)):
            DECIDED[str(self)] = None
        return str.__eq__(self, other)

    __hash__ = str.__hash__

    def __bool__(self) -> bool:
        if of_user(sys._getframe(1)):
            DECIDED[str(self)] = None
        return True

    def __len__(self) -> int:
        if of_user(sys._getframe(1)):
            DECIDED[str(self)] = None
        return str.__len__(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return member(self, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Another such value; a column or a DataFrame of which nothing is known, given one."""
        from pyspark.sql.connect.column import Column
        from pyspark.sql.connect.dataframe import DataFrame
        from pyspark.sql.connect.session import SparkSession

        given = (*arguments, *named.values())
        called = self.rpartition(".")[2]
        if _CHANGING.fullmatch(called):
            CHANGED.append(f"{self[1:]}()")
            REMOVED.extend(str(argument) for argument in given)
        elif any(map(_SHELL.fullmatch, words := _words(given))):
            REMOVED.extend(words)
        elif _EXECUTING.fullmatch(called):
            for statement in (argument for argument in given if isinstance(argument, str)):
                changing(statement)
        if any(isinstance(argument, SparkSession) for argument in given) and called != _MODEL:
            note(f"`{self[1:]}` is given the session, and what it does is not known here")
        frames = [argument for argument in given if isinstance(argument, DataFrame)]
        if frames:
            frame = frames[0]
            for other in frames[1:]:
                frame = cast(DataFrame, frame.union(other))
            kind = (
                [MODEL] if len(frames) == len(given) == 1 and _SCORING.fullmatch(self[1:]) else []
            )
            return frame.hint(UNREAD, f"what `{self[1:]}` does is not known here", *kind)
        if any(isinstance(argument, list | dict | set) for argument in given):
            ASKED[str(self)] = None  # it may put something in
        if any(isinstance(argument, Column) for argument in given):
            from pyspark.sql.connect.functions import builtin

            columns = [argument for argument in given if isinstance(argument, Column)]
            return builtin.call_function(self[1:], *columns)
        known = [argument for argument in given if not isinstance(argument, Outside)]
        if len(given) == 1 and known and isinstance(known[0], Callable | type):  # type: ignore[arg-type]
            return Outside(f"{self}()") if reason_of(self[1:]) else given[0]  # a decorator
        if called == "get" and known == [*given[:1]]:
            return entry(self.without_last(), given[0])
        return self._gives(called, known) if len(known) == len(given) else Outside(f"{self}()")

    def _gives(self, called: str, given: Sequence[Any]) -> Outside:
        """The result of a call that is given these values."""
        return Outside(f"{self}()")

    def without_last(self) -> Outside:
        """The value that it is a member of."""
        return type(self)(str.rpartition(self, ".")[0])

    def __getitem__(self, key: Any) -> Any:
        return str.__getitem__(self, key) if isinstance(key, slice) else Outside(f"{self}[{key}]")

    def __iter__(self) -> Iterator[Any]:
        caller_ = sys._getframe(1)
        operation, count = caller_.f_code.co_code[caller_.f_lasti : caller_.f_lasti + 2]
        if operation == _UNPACK:
            return iter([self[place] for place in range(count)])
        DECIDED[str(self)] = None
        note(f"a loop over `{shown(self)}`, which is not known here, was read once")
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


def _words(given: Any) -> list[str]:
    """The words of texts, and of lists of such."""
    if isinstance(given, list | tuple):
        return [word for argument in given for word in _words(argument)]
    return str.split(given) if isinstance(given, str) else []


def root(value: str) -> str:
    """The module that a value which is not known comes from: `click` of `$click.command()`."""
    return re.split(r"\W", value.lstrip("$"), maxsplit=1)[0]


UNSEEN: Final = "unknown_stream"
"""The source of what is not known to read a stream, and may."""
_SESSION: Final = re.compile(r"\w*(spark|session)\w*(\(\))?", re.IGNORECASE)
_OF_SESSION: Final = frozenset(
    {"catalog", "conf", "createDataFrame", "range", "read", "sql", "streams", "table", "udf"}
)


def member(owner: Outside, name: str) -> Any:
    """A member of a value that is not known: of the session, where it must be that or is called
    so, and of a DataFrame of which nothing is known, where it is written as a stream."""
    from pyspark.sql.connect.session import SparkSession

    called = str.rpartition(owner, ".")[2].lstrip("$")
    named = _SESSION.fullmatch(called) and root(owner) not in SERVICES
    if name == "readStream" or (name in _OF_SESSION and named):
        note_once(f"`{owner[1:]}` is not known here, and taken for the session")
        return getattr(SparkSession.getActiveSession(), name)
    if name == "writeStream" and root(owner) != "DataFrame":  # whose rows are no stream
        session = cast(SparkSession, SparkSession.getActiveSession())
        why = f"what `{owner[1:]}` is is not known here"
        return session.readStream.table(UNSEEN).hint(UNREAD, why).writeStream
    kind = type(owner) if isinstance(owner, Setting) else Outside
    return kind(f"{owner}.{name}")


def shown(value: str) -> str:
    """The name of a value that is not known, in messages.

    >>> shown("$2"), shown("$settings.key")
    ('sys.argv[2]', 'settings.key')
    """
    text = value.removeprefix("$")
    return f"sys.argv[{text}]" if text.isdecimal() else text


def entry(owner: str, key: Any) -> Outside:
    """The entry that a value that is not known has under a key."""
    kind = type(owner) if isinstance(owner, Setting) else Outside
    return kind(f"{owner}.{key}" if re.fullmatch(r"\w+", str(key)) else f"{owner}[{key}]")


def lost(value: Any, name: str) -> Any:
    """A value that may be another one by now: of a DataFrame, it is known what it reads."""
    if type(value).__name__ == "DataFrame" and hasattr(value, "hint"):
        return value.hint(UNREAD, f"`{name}` may be another one, as nothing was run")
    chance = Chance.of(value)
    return Outside(f"${name}" if chance is None else f"${chance.text}()")


BOTH: Final[list[str]] = []
"""What was not known, of every place that was read both ways."""


class Open:
    """A value that may be another one where the script runs: no condition on it is decided here."""


class Default(str, Open):
    """The text that an argument, a variable or a parameter has where nobody gives it another."""

    def __eq__(self, other: object) -> bool:
        if of_user(sys._getframe(1)):
            DECIDED[str(self)] = None
        return str.__eq__(self, other)

    __hash__ = str.__hash__

    def __int__(self) -> int:
        if of_user(sys._getframe(1)):
            DECIDED[str(self)] = None
        return int(str(self))


class DefaultNumber(int, Open):
    """A number by default."""


class DefaultFloat(float, Open):
    """A number with a fraction by default."""


class DefaultBytes(bytes, Open):
    """Bytes of a text by default."""


class DefaultDict(dict[Any, Any], Open):
    """Settings by default, of which there may be others."""


class Defaults(list[Any], Open):
    """Arguments of a script, or parts of one, of which there may be others."""

    of = "the arguments"

    def __iter__(self) -> Iterator[Any]:
        return list.__iter__(self._asked())

    def __len__(self) -> int:
        return list.__len__(self._asked())

    def __getitem__(self, place: Any) -> Any:
        item = list.__getitem__(self, place)
        return Defaults(item) if isinstance(place, slice) else item

    def _asked(self) -> Defaults:
        if of_user(sys._getframe(2)):
            ASKED[self.of] = None
        return self

    def __contains__(self, asked: object) -> bool:
        if of_user(sys._getframe(1)):
            DECIDED[f"{asked!r} in {self.of}"] = None
        return list.__contains__(self, asked)


class Columns(Defaults):
    """The names of the columns of a DataFrame that may have more."""

    of = "the columns of a table"

    def _asked(self) -> Columns:
        return self


def _methods(kind: type[Default | Outside]) -> None:
    """Let what is made of a text that is not known be such a text, and what is asked of it decide
    what the script does."""

    def of(function: Callable[..., Any]) -> Callable[..., Any]:
        def method(text: str, *arguments: Any, **named: Any) -> Any:
            result = function(text, *arguments, **named)
            if not of_user(sys._getframe(1)):
                return result
            if isinstance(result, str):
                return kind(result)
            if isinstance(result, bytes):
                return DefaultBytes(result) if kind is Default else kind(text)
            if isinstance(result, list):
                return Defaults(map(kind, result))
            if isinstance(result, tuple):
                return tuple(map(kind, result))
            DECIDED[str(text)] = None
            return result

        return method

    for name, function in vars(str).items():
        tests = ("__contains__", "__lt__", "__le__", "__gt__", "__ge__")
        left = ("maketrans", "join", "format", "format_map")
        if name in tests or not name.startswith(("_", *left)):
            setattr(kind, name, of(function))


_methods(Outside)
_methods(Default)


class Setting(Outside):
    """A text that the place decides where the script runs: an argument, a variable of the
    environment."""

    def _gives(self, called: str, given: Sequence[Any]) -> Outside:
        kind = type(self) if hasattr(str, called) and Chance.of([*given]) is None else Outside
        return kind(f"{self}()")


_methods(Setting)


class Held(Setting):
    """A module that is not there, and what it holds: members, items, and what is looked up in it by
    a text. What its functions give is none of it, but for those that load settings."""

    @property
    def setting(self) -> bool:
        """Whether it is called like a setting, and the script has set nothing in its module."""
        named = str.rpartition(self, ".")[2].isupper() or _OF_SETTINGS.search(self)
        return bool(named) and not any(f"{self}.".startswith(f"{owner}.") for owner in SET)

    def _gives(self, called: str, given: Sequence[Any]) -> Outside:
        plain = all(isinstance(argument, str | int | float) for argument in given)
        if not plain or Chance.of([*given]) is not None:
            return Outside(f"{self}()")
        if given and _LOOKING_UP.fullmatch(called):
            return entry(self.without_last(), given[0] if len(given) == 1 else str([*given]))
        loads = called[:1].isupper() or called.startswith(("get_", "load_", "read_"))
        if loads and _OF_SETTINGS.search(called):
            return Held(f"{self}()")
        return super()._gives(called, given)


SET: Final[set[str]] = set()
"""Modules that are not there, and parts of them, in which the script has set something."""
_OF_SETTINGS: Final = re.compile(
    r"(?:(?<![A-Za-z])|(?<=[a-z]))(settings?|config\w*|conf|cfg|const(ant)?s?|limits?|opt(ion)?s|param(eter)?s"
    r"|thresholds?)(?![a-z])",
    re.IGNORECASE,
)
_LOOKING_UP: Final = re.compile(
    r"get(_?(bool(ean)?|float|int|list|option|param(eter)?|setting|str(ing)?|value))?"
)


def by_default(value: Any, name: str) -> Any:
    """A value made of one by default: by default too, where it is a text, number or list."""
    if isinstance(value, bool | set | None):
        return Outside(f"${name}")
    kind: Any = _BY_DEFAULT.get(type(value))
    return value if kind is None else kind(value)


_BY_DEFAULT: Final[dict[type, type]] = {
    str: Default,
    int: DefaultNumber,
    float: DefaultFloat,
    bytes: DefaultBytes,
    list: Defaults,
    dict: DefaultDict,
}


def as_default(value: Any) -> Any:
    """Texts and numbers by default, and what consists of such, all the way down."""
    if isinstance(value, dict):
        return DefaultDict({key: as_default(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        parts = [as_default(item) for item in list(value)]
        return tuple(parts) if isinstance(value, tuple) else Defaults(parts)
    return by_default(value, str(value))


UNREAD: Final = "blazes_unread"
"""A hint of this name marks a DataFrame that went through unknown code; its parameter is why. A
second one, `PLACE`, says that the place where the script runs decides what was done, or `MODEL`
that a model has added columns to each record."""
PLACE: Final = "place"
MODEL: Final = "model"


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
        if name in MODULES or (
            (root in SERVICES) == self.first and (self.first or _users_import())
        ):
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        maker = MODULES.get(spec.name)
        if maker is not None:
            return maker()
        if not self.first:
            note(f"the module `{spec.name}` is not installed here, and what it does is not known")
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Everything is there already."""


MODULES: Final[dict[str, Callable[[], ModuleType]]] = {}
"""Modules that are made here: name -> what makes them."""


def _users_import() -> bool:
    """Whether it is the user's code that imports."""
    frame = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and of_user(frame)


def of_user(frame: FrameType) -> bool:
    """Whether a frame runs code of the user."""
    return _users(frame.f_code.co_filename)


@cache
def _users(file: str) -> bool:
    return not file.startswith(("<", sys.prefix, sys.base_prefix)) and "/annotations/" not in file


def stand_ins(tree: ast.AST, path: str) -> None:
    """Let every way to the outside lead to stand-ins, for a script with this syntax tree."""
    sys.meta_path.insert(0, _Finder(first=True))
    sys.meta_path.append(_Finder(first=False))
    arguments(tree, path, run=True)
    time.sleep = lambda _: None
    _environment()
    _json()
    watch()


def watch() -> None:
    """Note what code that is run asks of the place: which files there are, Spark's settings and
    tables, its version; and what it leaves to chance."""
    sys.setprofile(_heard)
    threading.setprofile(_heard)
    from pyspark.sql.connect.catalog import Catalog
    from pyspark.sql.connect.conf import RuntimeConf
    from pyspark.sql.connect.session import SparkSession

    def noted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def asked(*arguments: Any, **named: Any) -> Any:
            if of_user(sys._getframe(1)):
                ASKED[f"{name}({', '.join(map(repr, arguments[-1:]))})"] = None
            return function(*arguments, **named)

        return asked

    def setting(conf: Any, key: str, *default: Any, **named: Any) -> Any:
        value = get(conf, key, *default, **named)
        return by_default(value, key) if of_user(sys._getframe(1)) else value

    get = RuntimeConf.get
    RuntimeConf.get = setting  # type: ignore[method-assign,assignment]
    SparkSession.version = property(  # type: ignore[assignment]
        lambda session: Default(session._client._analyze("spark_version").spark_version)
    )
    for owner, names in _OF_PLACE.items():
        for name in names.split():
            setattr(owner, name, noted(getattr(owner, name), name))
    for name in dir(Catalog):
        if name.startswith(("current", "get", "is", "list")) or name.endswith("Exists"):
            setattr(Catalog, name, noted(getattr(Catalog, name), f"spark.catalog.{name}"))


def _heard(frame: FrameType, event: str, function: Any) -> None:
    """Note a call by the user's code whose result is another one each time."""
    by = frame if event == "c_call" else frame.f_back if event == "call" else None
    if by is None or not of_user(by):
        return
    if event == "call":
        name = f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}"
    else:
        owner = getattr(function, "__self__", None)
        kind = owner if isinstance(owner, type) else type(owner)
        of_module = owner is None or isinstance(owner, ModuleType)
        module = getattr(function, "__module__", "") if of_module else kind.__module__
        name = f"{module}.{'' if of_module else f'{kind.__name__}.'}{function.__name__}"
    if reason_of(name) is not None:
        ASKED[f"{name}()"] = None


_OF_PLACE: Final[dict[Any, str]] = {
    os.path: "exists isdir isfile islink lexists",
    Path: "exists is_dir is_file",
    os: "access",
}
"""What tells which files there are."""


def arguments(tree: ast.AST, path: str, *, run: bool) -> list[str]:
    """The arguments that stand in for those of a script, its own name first. Where it is not run,
    nothing is decided by what a parser gives."""
    import argparse

    sys.argv = Defaults([path, *arguments_of(tree)])
    parse = argparse.ArgumentParser.parse_known_args

    def parsed(parser: Any, args: Any = None, namespace: Any = None) -> Any:
        ways = [args] if args is not None else _ways(parser)
        given, rest = parse(parser, ways[0], namespace)
        others = [] if run else [vars(parse(parser, way, None)[0]) for way in ways[1:]]
        for name in {name for other in others for name in other}:
            several = [argument[name] for argument in (vars(given), *others) if name in argument]
            setattr(given, name, Several(several))
        for name, value in vars(given).items():
            if run and not isinstance(value, str):
                OPEN_ARGUMENTS.add(name)
            else:
                missing = value is None
                setattr(given, name, Setting(f"${name}") if missing else by_default(value, name))
        return given, rest

    def looked_at(namespace: Any, name: str) -> Any:
        if name in OPEN_ARGUMENTS and of_user(sys._getframe(1)):
            ASKED[f"${name}"] = None
        return object.__getattribute__(namespace, name)

    argparse.ArgumentParser.parse_known_args = parsed  # type: ignore[assignment,method-assign]
    if run:
        argparse.Namespace.__getattribute__ = looked_at  # type: ignore[method-assign]
    return sys.argv


OPEN_ARGUMENTS: Final[set[str]] = set()
"""Arguments of a script whose values are none that could tell that they were asked for."""


def _environment() -> None:
    lookup = type(os.environ).__getitem__

    def get(environment: Any, key: Any) -> Any:
        try:
            return lookup(environment, key)
        except KeyError:
            if of_user(sys._getframe(1)):
                return Outside(f"${key}")
            raise

    def get_or(environment: Any, key: Any, default: Any = None) -> Any:
        if key in environment:
            return lookup(environment, key)
        if not of_user(sys._getframe(1)):
            return default
        return Outside(f"${key}") if default is None else by_default(default, str(key))

    def getenv(key: Any, default: Any = None) -> Any:
        if key in os.environ or not of_user(sys._getframe(1)):
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


def arguments_of(tree: ast.AST) -> list[Setting]:
    """As many arguments as a script asks for, each called by its place.

    >>> arguments_of(ast.parse("if len(sys.argv) != 3: exit(1)"))
    ['$1', '$2']
    """
    most, asked = 0, None
    for node in ast.walk(tree):
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
    return [Setting(f"${place}") for place in range(1, count + 1)]


def _argv(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute | ast.Name) and "argv" in ast.unparse(node)


@dataclass(frozen=True)
class Several:
    """Values of which a script has one, and it is not known which."""

    values: list[Any]


def _ways(parser: Any) -> list[list[str]]:
    """Arguments that a parser accepts, for each of its commands where it has some."""
    several = [action.choices for action in parser._actions if _has_commands(action)]
    commands: dict[str, Any] = several[0] if several else {}
    ways = [
        [*_required(parser), name, *way] for name, inner in commands.items() for way in _ways(inner)
    ]
    return ways or [_required(parser)]


def _has_commands(action: Any) -> bool:
    return type(action).__name__ == "_SubParsersAction"


def _required(parser: Any) -> list[str]:
    """Arguments that a parser accepts: what it asks for, and nothing else."""
    texts: list[str] = []
    groups = {
        id(a): group
        for group in parser._mutually_exclusive_groups
        if group.required
        for a in group._group_actions[:1]
    }
    for action in parser._actions:
        if _has_commands(action):
            continue
        wanted = action.required or id(action) in groups
        if not wanted or action.nargs in ("*", "...", 0):
            texts += action.option_strings[:1] if wanted and action.nargs == 0 else []
            continue
        count = action.nargs if isinstance(action.nargs, int) else 1
        texts += [*action.option_strings[-1:], *[_value(action)] * count]
    return texts


def _value(action: Any) -> str:
    if action.choices:
        return Default(next(iter(action.choices)))
    named = isinstance(action.metavar, str) and action.metavar
    value = Setting(f"${named or action.dest}")
    if action.type is None:
        return value
    try:
        action.type(value)
    except Exception:
        DECIDED[str(value)] = None
        return "1"
    return value
