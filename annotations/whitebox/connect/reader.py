"""The process in which user code runs and is read: `python -m annotations.whitebox.connect.reader`.

It takes one request as JSON from its standard input, runs the user's code against a session that
has no Spark behind it, and writes what it learned as JSON to the file that the request names. What
the code prints is the business of whoever started the process (`annotations.whitebox.sandbox`).
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

from annotations.whitebox.connect.functions import functions
from annotations.whitebox.connect.pipelines import pipeline
from annotations.whitebox.connect.project import read_sql
from annotations.whitebox.connect.reading import Reading, describe
from annotations.whitebox.connect.scripts import script

_USED: Final = (
    "annotations.whitebox.sql",
    "pandas",
    "pyspark.pipelines",
    "pyspark.pipelines.cli",
    "pyspark.sql.avro.functions",
    "pyspark.sql.connect.avro.functions",
    "pyspark.sql.connect.functions",
    "pyspark.sql.connect.streaming",
    "pyspark.sql.functions",
    "pyspark.sql.pandas.types",
    "pyspark.sql.streaming",
)
"""What most scripts import: once for all of several."""
_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NO_FILES: Final = ("/dev/", "/proc/", "/sys/")
_OUTSIDE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "subprocess.Popen": "it starts a process",
        "os.system": "it starts a process",
        "os.posix_spawn": "it starts a process",
        "os.exec": "it starts a process",
        "os.fork": "it starts a process",
        "socket.connect": "it makes a connection",
        "os.remove": "it removes a file",
        "os.rename": "it renames a file",
    }
)
"""Audit event -> why what came after it need not come again."""


def main() -> int:
    """Answer one request; 0 also where the user's code fails, which is an answer."""
    request = json.load(sys.stdin)
    sys.stdin = io.StringIO()
    sys.dont_write_bytecode = True  # reading leaves nothing beside the user's modules
    if request["kind"] == "several":
        _put(Path(request["answer"]), {"answers": _several(request)})
    elif request.get("twice"):
        _put(Path(request["answer"]), _twice(request))
    else:
        _put(Path(request["answer"]), _answered(Reading(request), request))
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that the user's code has left behind must not keep the process.
    os._exit(0)


def _answered(home: Reading, request: Mapping[str, Any]) -> dict[str, Any]:
    kinds: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
        "functions": partial(functions, home),
        "script": partial(script, home),
        "pipeline": partial(pipeline, home),
        "sql": partial(sql, home),
    }
    seen = Seen()
    answer = kinds[request["kind"]](request)
    answer["seen"] = seen.to_json()
    return answer


def _put(target: Path, answer: Mapping[str, Any]) -> None:
    part = target.with_name(f"{target.name}.part")  # several write at once
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.replace(target)


def _twice(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of functions that are run, and, as `followed`, that of the same functions, which
    another process has followed before: both need the same modules."""
    home = Reading(request)
    target = Path(request["answer"]).with_suffix(".followed")
    child = os.fork()
    if not child:
        with suppress(Exception):  # without an answer all fails
            _put(target, _answered(home, {**request, "follow": True}))
        os._exit(0)
    os.waitpid(child, 0)
    followed = json.loads(target.read_bytes())
    target.unlink()
    answer = _answered(home, request)
    one, other = followed["seen"], answer["seen"]
    answer["seen"] = {
        kind: [*{*one[kind], *other[kind]}] for kind in ("files", "folders", "searched")
    } | {"outside": one["outside"] or other["outside"]}
    return answer | {"followed": followed["functions"]}


def _several(request: Mapping[str, Any]) -> list[dict[str, Any] | None]:
    """The answers to several requests, each in a process of its own that has PySpark already, as
    many at once as there are processors; None where one came to no answer within its time."""

    def target(number: int) -> Path:
        return Path(request["answer"]).with_suffix(f".{number}")

    answers: list[dict[str, Any] | None] = [None for _ in request["requests"]]
    for module in _USED:
        importlib.import_module(module)
    home = Reading({})
    gc.disable()
    gc.freeze()
    waiting = [*enumerate(request["requests"])][::-1]
    running: dict[int, tuple[int, int, float]] = {}
    while waiting or running:
        while waiting and len(running) < len(os.sched_getaffinity(0)):
            number, asked = waiting.pop()
            child = os.fork()
            if not child:
                _answer_alone(home, asked, target(number))
            running[os.pidfd_open(child)] = number, child, time.monotonic() + request["seconds"]
        left = min(end for _, _, end in running.values()) - time.monotonic()
        ended, _, _ = select.select([*running], [], [], max(left, 0))
        late = [fd for fd, (_, _, end) in running.items() if end <= time.monotonic()]
        for pidfd in {*ended, *late}:
            number, child, _ = running.pop(pidfd)
            if pidfd not in ended:
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(pidfd)
            if (answer := target(number)).is_file():
                answers[number] = json.loads(answer.read_bytes())
                answer.unlink()
    return answers


def _answer_alone(home: Reading, asked: Mapping[str, Any], target: Path) -> NoReturn:
    os.setpgid(0, 0)
    os.chdir(asked["folder"])
    try:
        answer = _answered(home, asked)
    except Exception as failed:
        answer = {"error": f"reading it failed, by a mistake of the reader: {describe(failed)}"}
    _put(target, answer)
    os._exit(0)


def sql(home: Reading, request: Mapping[str, Any]) -> dict[str, Any]:
    """The datasets and flows of one file of SQL; none of the user's code runs."""
    with home.failures() as answer:
        answer |= read_sql(home, Path(request["path"]))
    return answer


class Seen:
    """Everything that user code looks at from now on: whether it would say the same again depends
    on it.

    Python's own audit events tell of every file that is opened and every folder that is listed,
    those of imports too; what leads outside (another process, a connection, a file that is written)
    cannot be followed, and is told as the reason why an answer holds for this time only.
    """

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.folders: dict[str, None] = {}
        self.searched: dict[str, None] = {}
        """Folders that were looked through for modules alone."""
        self.outside: str | None = None
        """Why the answer holds for this time only; None where nothing speaks against more."""
        self._before = frozenset(sys.modules)
        self._told: Mapping[str, Callable[..., None]] = {
            "open": self._open,
            "os.listdir": self._list,
            "os.scandir": self._list,
        }
        sys.addaudithook(self._hear)

    def to_json(self) -> dict[str, Any]:
        """Files and folders by their paths, with the files of modules that were imported."""
        for name in set(sys.modules) - self._before:
            file = getattr(sys.modules[name], "__file__", None)
            if isinstance(file, str):
                self.files[_absolute(file)] = None
        return {
            "files": list(self.files),
            "folders": list(self.folders),
            "searched": [item for item in self.searched if item not in self.folders],
            "outside": self.outside,
        }

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in self._told:
            self._told[event](*arguments)
        elif event in _OUTSIDE:
            self.outside = self.outside or _OUTSIDE[event]

    def _open(self, path: Any, mode: Any, flags: Any) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        where = _absolute(path)
        if "__pycache__" in where or where.startswith(_NO_FILES):
            return
        if isinstance(flags, int) and flags & _WRITES:
            self.outside = self.outside or f"it writes {where}"
        else:
            self.files[where] = None

    def _list(self, path: Any = None) -> None:
        if not isinstance(path, int):
            by = sys._getframe(2).f_code.co_filename
            folders = self.searched if by.startswith("<frozen importlib") else self.folders
            folders[_absolute(path or ".")] = None


def _absolute(path: Any) -> str:
    return str(Path(os.fsdecode(path)).absolute())


if __name__ == "__main__":
    sys.exit(main())
