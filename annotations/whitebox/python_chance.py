"""Clocks, dice and services: names in Python whose results are not the same each time."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Final


def _table(**names: str) -> Mapping[str, str]:
    return {name: why.replace("_", " ") for why, text in names.items() for name in text.split()}


CHANCE: Final = _table(
    the_clock="""
    arrow.now arrow.utcnow datetime.date.today datetime.datetime.now datetime.datetime.today
    datetime.datetime.utcnow pandas.Timestamp.now pandas.Timestamp.today pandas.Timestamp.utcnow
    pendulum.now time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns
    time.process_time time.thread_time time.time time.time_ns
    """,
    random_numbers="""
    faker numpy.random os.urandom random secrets torch.rand uuid.uuid1 uuid.uuid4
    """,
    the_machine="""
    getpass.getuser os.cpu_count os.getloadavg os.getlogin os.times os.uname platform.node psutil
    socket subprocess uuid.getnode
    """,
    the_process="""
    os.getpid os.getppid pyspark.TaskContext threading.current_thread threading.get_ident
    threading.get_native_id
    """,
    a_service="""
    aiohttp boto3 httpx openai psycopg2 pymongo pymysql redis requests urllib.request urllib3
    """,
)
"""Function, or module with all that is in it -> what it depends on beside its arguments."""
GIVEN: Final = _table(
    the_clock="time.asctime time.ctime time.gmtime time.localtime time.strftime",
    random_numbers="numpy.random.RandomState numpy.random.default_rng random.Random",
)
"""The same of functions that depend on their arguments alone where they are given one: a time, or
the seed of a generator. The format of a time is none."""
NAMED: Final = _table(the_clock="numpy.datetime64 pandas.Timestamp pandas.to_datetime")
"""The same of functions that depend on their arguments alone but for `now` and `today`."""


def reason_of(name: str) -> str | None:
    """The thing that a function depends on beside its arguments; None: none that is known.

    >>> reason_of("uuid.uuid4"), reason_of("random.choice"), reason_of("uuid.UUID")
    ('random numbers', 'random numbers', None)
    """
    parts = name.split(".")
    prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((CHANCE[prefix] for prefix in prefixes if prefix in CHANCE), None)


def reason_of_call(name: str, arguments: Sequence[object]) -> str | None:
    """The thing that a call depends on beside its arguments; None: none that is known. Only what
    is a text has to be known of the arguments.

    >>> reason_of_call("time.strftime", ["%Y"]), reason_of_call("time.strftime", ["%Y", None])
    ('the clock', None)
    >>> reason_of_call("pandas.Timestamp", ["now"]), reason_of_call("random.Random", [3])
    ('the clock', None)
    """
    if name in GIVEN:
        return None if arguments[name == "time.strftime" :] else GIVEN[name]
    if name in NAMED:
        return NAMED[name] if {"now", "today"} & {*map(str, arguments)} else None
    return reason_of(name)


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Name in a module -> the full name of what it was imported as, wherever in the module.

    >>> imported_names(ast.parse("import os.path, numpy as np; from time import time as now"))
    {'os': 'os', 'np': 'numpy', 'now': 'time.time'}
    """
    imported = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    imported[bound] = alias.name if alias.asname else bound
            case ast.ImportFrom(module=str(module), level=0, names=names):
                for alias in names:
                    imported[alias.asname or alias.name] = f"{module}.{alias.name}"
    return imported
