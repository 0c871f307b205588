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
from typing import Any, Final, NoReturn

from annotations.whitebox.connect.functions import functions
from annotations.whitebox.connect.pipelines import pipeline
from annotations.whitebox.connect.project import read_sql
from annotations.whitebox.connect.reading import Reading, describe
from annotations.whitebox.connect.scripts import script
from annotations.whitebox.connect.seen import Seen

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


if __name__ == "__main__":
    sys.exit(main())
