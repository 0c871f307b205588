"""The walks of docs/explanation/walks.md: every step exists and is taken in this order."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from blazes.cli import main

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "explanation" / "walks.md"
FILES_MAX = 10
"""Files that a stranger opens on one walk."""
STEP = re.compile(r"^\| (\d+) \| `([\w.]+)` \| `([\w.]+)` \|", re.MULTILINE)

WORDCOUNT = """
name: wordcount
components:
  Splitter:
    annotation: {from: tweets, to: words, label: CR}
    sql: SELECT batch, explode(split(text, ' ')) AS word FROM tweets
  Count:
    annotation: {from: words, to: counts, label: "OW[word, batch]"}
    sql: SELECT batch, word, count(*) AS n FROM words GROUP BY batch, word
streams:
  tweets:
    to: Splitter.tweets
    seal: [batch]
    schema: {batch: BIGINT, text: STRING, producer: STRING, sealed: BOOLEAN, count: BIGINT}
    source: {format: json, path: data}
    producer: producer
    punctuation: {when: sealed, count: count}
    producers: [relay]
  words: {from: Splitter.words, to: Count.words}
  counts: {from: Count.counts, sink: {format: json}}
"""
TWEETS = (
    {"batch": 1, "text": "a b a", "producer": "relay"},
    {"batch": 1, "producer": "relay", "sealed": True, "count": 1},
)
TRACED = """
import json, runpy, sys, threading
sys.path.insert(0, {tests!r})
from tests.test_walks import Tracer
tracer = Tracer({steps!r})
threading.setprofile(tracer)
sys.setprofile(tracer)
sys.argv = [{job!r}, "--available-now", "--master", "local[1]"]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    sys.setprofile(None)
    with open({out!r}, "w") as file:
        json.dump(tracer.calls, file)
"""


def walks() -> dict[str, list[str]]:
    """Heading -> the steps below it, each `module:function`."""
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {
        section.partition("\n")[0]: [f"{m}:{f}" for _, m, f in STEP.findall(section)]
        for section in sections
    }


WALKS = walks()


class Tracer:
    """A profiler that notes the calls of some functions, each `module:function`."""

    def __init__(self, steps: Collection[str]) -> None:
        self.calls: list[str] = []
        self._steps = frozenset(steps)

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            name = f"{frame.f_globals.get('__name__')}:{frame.f_code.co_qualname}"
            if name in self._steps:
                self.calls.append(name)


def traced(steps: Collection[str], run: Callable[[], object]) -> list[str]:
    """The calls of these functions while something runs."""
    tracer = Tracer(steps)
    before = sys.getprofile()
    sys.setprofile(tracer)
    try:
        run()
    finally:
        sys.setprofile(before)
    return tracer.calls


def not_taken(steps: Iterable[str], calls: Iterable[str]) -> str | None:
    """The first step that does not come after those before it; None: all are taken in order."""
    rest = iter(calls)
    return next((step for step in steps if step not in rest), None)


def numbered() -> Iterator[tuple[str, list[int]]]:
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        yield section.partition("\n")[0], [int(number) for number, _, _ in STEP.findall(section)]


def test_a_walk_opens_few_files() -> None:
    assert len(WALKS) == 3
    for name, numbers in numbered():
        assert numbers == list(range(1, len(numbers) + 1)), name
        assert len(numbers) >= FILES_MAX, name
        assert len({step.partition(":")[0] for step in WALKS[name]}) <= FILES_MAX, name


@pytest.mark.parametrize("step", [step for steps in WALKS.values() for step in steps])
def test_a_step_is_where_the_page_says(step: str) -> None:
    module, _, path = step.partition(":")
    place: Any = importlib.import_module(module)
    for name in path.split("."):
        place = getattr(place, name)
    assert inspect.unwrap(place).__module__ == module


@pytest.mark.parametrize(
    ("walk", "command"), [("A file becomes labels", "analyze"), ("A plan becomes a job", "compile")]
)
def test_a_command_takes_the_steps(walk: str, command: str, tmp_path: Path) -> None:
    file = str(ROOT / "examples" / "wordcount" / "wordcount.yaml")
    target = ["-o", str(tmp_path / "project")] if command == "compile" else []
    calls = traced(WALKS[walk], lambda: main([command, file, *target]))
    assert not_taken(WALKS[walk], calls) is None
    assert not_taken(WALKS[walk][::-1], calls) is not None


@pytest.mark.spark
def test_a_record_takes_the_steps(tmp_path: Path) -> None:
    steps = WALKS["A record goes through a job"]
    (tmp_path / "data").mkdir()
    lines = (json.dumps(record) for record in TWEETS)
    (tmp_path / "data" / "0.json").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "w.yaml").write_text(WORDCOUNT, encoding="utf-8")
    project, out = tmp_path / "project", tmp_path / "calls.json"
    assert main(["compile", str(tmp_path / "w.yaml"), "-o", str(project)]) == 0
    text = TRACED.format(tests=str(ROOT), steps=steps, job=str(project / "job.py"), out=str(out))
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=project, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    calls = json.loads(out.read_text(encoding="utf-8"))
    assert not_taken(steps, calls) is None
    assert not_taken(steps[::-1], calls) is not None
