"""Clocks, dice, files and services: names in Python whose results are not the same each time, and
those that depend on their arguments alone. Of Python's own library only what is listed does; of
other modules it is taken for granted, and said."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _table(**names: str) -> Mapping[str, str]:
    return {name: why.replace("_", " ") for why, text in names.items() for name in text.split()}


CHANCE: Final = _table(
    the_clock="""
    arrow.now arrow.utcnow datetime.date.today datetime.datetime.now datetime.datetime.today
    datetime.datetime.utcnow django.utils.timezone.now email.utils.localtime pandas.Period.now
    pandas.Timestamp.now pandas.Timestamp.today pandas.Timestamp.utcnow pendulum.now
    pendulum.today pendulum.tomorrow pendulum.yesterday time.clock_gettime time.clock_gettime_ns
    time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns time.process_time
    time.process_time_ns time.thread_time time.thread_time_ns time.time time.time_ns
    """,
    random_numbers="""
    bson.ObjectId cuid email.utils.make_msgid faker ksuid nanoid numpy.random os.urandom random
    secrets shortuuid ssl.RAND_bytes tempfile.NamedTemporaryFile tempfile.TemporaryDirectory
    tempfile.TemporaryFile tempfile.mkdtemp tempfile.mkstemp tempfile.mktemp tensorflow.random
    torch.bernoulli torch.multinomial torch.normal torch.rand torch.rand_like torch.randint
    torch.randn torch.randn_like torch.randperm ulid uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7
    uuid.uuid8 uuid6 uuid_utils
    """,
    the_machine="""
    getpass.getuser multiprocessing.cpu_count os.cpu_count os.getloadavg os.getlogin os.popen
    os.system os.times os.uname platform.node psutil shutil.disk_usage socket subprocess
    uuid.getnode
    """,
    the_process="""
    gc id multiprocessing.current_process os.getpid os.getppid pyspark.SparkContext.applicationId
    pyspark.TaskContext resource threading.active_count threading.current_thread
    threading.get_ident threading.get_native_id
    """,
    the_order_in_which_threads_end="""
    asyncio.as_completed asyncio.wait concurrent.futures.as_completed concurrent.futures.wait
    """,
    a_service="""
    aiohttp boto3 botocore cassandra clickhouse_driver elasticsearch ftplib
    google.cloud grpc http.client httpx imaplib kafka ldap3 mysql openai oracledb paho paramiko
    pika psycopg psycopg2 pymongo pymysql pyodbc redis requests smtplib snowflake sqlalchemy
    urllib.request urllib3 websocket
    """,
    what_tables_hold="DataFrame",
)
"""Function, or module with all that is in it -> what it depends on beside its arguments."""
FILES: Final = _names(
    """
    fileinput fsspec glob numpy.fromfile numpy.genfromtxt numpy.load numpy.loadtxt numpy.memmap
    open os.listdir os.path.exists os.path.getatime os.path.getctime os.path.getmtime
    os.path.getsize os.path.isdir os.path.isfile os.scandir os.stat os.walk pyarrow.csv
    pyarrow.dataset pyarrow.fs pyarrow.parquet read_text s3fs smart_open sqlite3 tempfile
    """
)
"""Functions and modules that read files, and what files there are, as they are then."""
GIVEN: Final = _table(
    the_clock="arrow.get email.utils.formatdate time.asctime time.ctime time.gmtime time.localtime "
    "time.strftime",
    random_numbers="numpy.random.RandomState numpy.random.default_rng random.Random",
)
"""The same of functions that depend on their arguments alone where they are given one: a time, or
the seed of a generator. The format of a time is none."""
NAMED: Final = _table(the_clock="numpy.datetime64 pandas.Timestamp pandas.to_datetime")
"""The same of functions that depend on their arguments alone but for `now` and `today`."""
PLACED: Final = _names(
    """
    datetime.datetime.fromtimestamp dateutil hash locale os.environ os.getcwd os.getenv platform
    sys time.altzone time.ctime time.daylight time.localtime time.mktime time.timezone time.tzname
    """
)
"""Functions, modules and values that are the same as long as the place is where they are asked: its
variables, time zone and locale, the seed of `hash`."""
READING: Final = _names("is_dir is_file iterdir read_bytes read_text rglob")
"""Methods that only paths have."""
_ASKING: Final = _names(
    "exists glob is_dir is_file iterdir open read_bytes read_text rglob stat touch"
)
"""Methods of a path that look at files."""
_PURE: Final = _names(
    """
    abc array ast asyncio base64 binascii bisect builtins calendar cmath codecs collections
    colorsys concurrent.futures contextlib copy csv dataclasses datetime decimal
    difflib email enum errno fnmatch fractions functools graphlib hashlib heapq hmac html
    inspect io.BytesIO io.StringIO ipaddress itertools json keyword logging marshal math
    mimetypes numbers operator os.fspath os.path os.sep pathlib pickle posixpath pprint
    quopri re shlex statistics string stringprep struct textwrap time.gmtime time.sleep
    time.strftime time.strptime time.struct_time traceback types typing unicodedata
    urllib.error urllib.parse uuid warnings xml zlib zoneinfo numpy pandas pyarrow
    pyspark pytz typing_extensions
    """
)


def reason_of(name: str) -> str | None:
    """The thing that a function depends on beside its arguments; None: none that is known.

    >>> reason_of("uuid.uuid4"), reason_of("random.choice"), reason_of("uuid.UUID")
    ('random numbers', 'random numbers', None)
    """
    parts = name.split(".")
    prefixes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((CHANCE[prefix] for prefix in prefixes if prefix in CHANCE), None)


def alone(name: str) -> bool | None:
    """Whether what an imported name stands for depends on its arguments alone; None: that is taken
    for granted.

    >>> alone("math.sqrt"), alone("shutil.copy"), alone("os.environ"), alone("user_agents.parse")
    (True, False, None, None)
    """
    parts = name.split(".")
    prefixes = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    if name.startswith("pandas.read_") or parts[-1] in READING:
        return False
    if name.startswith("pathlib.Path.") and parts[-1] in _ASKING:
        return False
    for prefix in prefixes:
        if prefix in CHANCE or prefix in FILES:
            return False
        if prefix in PLACED:
            return None
        if prefix in _PURE:
            return True
    return False if parts[0] in sys.stdlib_module_names and len(parts) > 1 else None


def placed(name: str) -> bool:
    """Whether it is something of the place where it is asked for."""
    parts = name.split(".")
    return any(".".join(parts[:end]) in PLACED for end in range(1, len(parts) + 1))


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
    >>> imported_names(ast.parse("from .clock import now; from . import clock"))
    {'now': '.clock.now', 'clock': '.clock'}
    """
    imported = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    imported[bound] = alias.name if alias.asname else bound
            case ast.ImportFrom(module=module, level=level, names=names):
                within = "." * level + (f"{module}." if module else "")
                for alias in names:
                    imported[alias.asname or alias.name] = within + alias.name
    return imported


@dataclass(frozen=True)
class Chance:
    """A value that is another one each time, or was read from files."""

    text: str
    """What gives it."""

    @property
    def of_file(self) -> bool:
        """Whether it is another one only where files are read anew, by every micro-batch."""
        return _CALLED.match(f"${self.text}()") is None

    @property
    def decides(self) -> bool:
        """Whether a path is another one by it each time: what a service, a file or a table says is
        taken for a setting."""
        return not self.of_file and reason_of(self.text) not in ("a service", "what tables hold")

    @classmethod
    def of(cls, value: object) -> Chance | None:
        """The one that a value which is not known, or a part of it, stands for, rather none of a
        file; None: none."""
        if isinstance(value, dict):
            return cls.of([*value.values()])
        if isinstance(value, list | tuple | set):
            parts = [*filter(None, map(cls.of, value))]
            return min(parts, key=lambda part: part.of_file, default=None)
        return _chance_in(str(value)) if isinstance(value, str) and "$" in value else None


@lru_cache(maxsize=1 << 16)
def _chance_in(text: str) -> Chance | None:
    call = _CALLED.search(text) or _READ.search(text)
    return None if call is None else Chance(call[1])


def _calling(names: Collection[str]) -> re.Pattern[str]:
    return re.compile(
        r"\$((?:" + "|".join(map(re.escape, sorted(names))) + r")(?:\.\w+)*(?=\()|"
        r"(?:" + "|".join(map(re.escape, (*GIVEN, *NAMED))) + r")(?=\(\)))"
    )


_CALLED: Final = _calling([*CHANCE, "hash"])
"""A call in the text of what is not known; of some functions one whose arguments are left out."""
_READ: Final = re.compile(
    r"\$((?:" + "|".join(map(re.escape, sorted(FILES))) + r")(?:\.\w+)*)(?=\()"
)
