"""The process in which user code runs and is read: `python -m annotations.whitebox.connect.reader`.

It takes one request as JSON from its standard input, runs the user's code against a session that
has no Spark behind it, and writes what it learned as JSON to the file that the request names. What
the code prints is the business of whoever started the process (`annotations.whitebox.sandbox`).
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from annotations.whitebox.connect.project import read_project
from annotations.whitebox.connect.reading import Reading
from annotations.whitebox.connect.seen import Seen


def main() -> int:
    """Answer one request; 0 also where the user's code fails, which is an answer."""
    request = json.load(sys.stdin)
    sys.stdin = io.StringIO()
    sys.dont_write_bytecode = True  # reading leaves nothing beside the user's modules
    home = Reading(request)
    answered: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
        "functions": home.functions,
        "script": home.script,
        "pipeline": partial(pipeline, home),
    }
    seen = Seen()
    answer = answered[request["kind"]](request)
    answer["seen"] = seen.to_json()
    target = Path(request["answer"])
    part = target.with_suffix(".part")
    part.write_text(json.dumps(answer), encoding="utf-8")
    part.replace(target)
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that the user's code has left behind must not keep the process.
    os._exit(0)


def pipeline(home: Reading, request: Mapping[str, Any]) -> dict[str, Any]:
    """A Declarative Pipelines project: its datasets and flows."""
    with home.failures() as answer:
        answer |= read_project(home, Path(request["path"]))
    return answer


if __name__ == "__main__":
    sys.exit(main())
