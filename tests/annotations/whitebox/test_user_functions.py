"""What the text of a function shows that Spark calls for each record."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from annotations.whitebox.connect.user_functions import Shown, shown

HEAD = """\
import random, time, itertools, requests, numpy as np
from collections import Counter, defaultdict
from datetime import datetime as now_of, timedelta
from uuid import uuid4, uuid5
counts, totals, LIMITS, client = Counter(), defaultdict(int), {"a": 1}, None
api = requests.Session()
seen = set()
numbers = itertools.count()
drawn = random.Random(3)
def centred(x): return x - x.mean()
model = None
def helper(x): return uuid4().hex + x
def keeps(x):
    totals[x] += 1
    return totals[x]
class Kept:
    n = 0
"""
CASES = [
    ("return x + 1", ""),
    ("return LIMITS.get(x, 0)", ""),
    ("local = {}\n    local[x] = 1\n    local.update(b=2)\n    return len(local)", ""),
    ("return random.Random(x).random()", ""),
    ("return uuid5(x, 'a').hex", ""),
    ("global model\n    if model is None:\n        model = len(LIMITS)\n    return x * model", ""),
    ("return x + timedelta(days=1)", ""),
    ("return random.random()", "chance"),
    ("return uuid4().hex", "chance"),
    ("return helper(x)", "chance"),
    ("return now_of.now().isoformat()", "chance"),
    ("return time.time() - x", "chance"),
    ("return np.random.normal(x)", "chance"),
    ("return requests.get(x).text", "chance"),
    ("return list(map(random.choice, [x]))", "chance"),
    ("return random.Random().random()", "chance"),
    ("drawn = random.Random()\n    return drawn.random()", "chance"),
    ("drawn = random.Random(x)\n    return drawn.random()", ""),
    ("return __import__('random').random()", "chance"),
    ("random = x + 1\n    return random", ""),
    ("return api.get(x).json()", "chance"),
    ("seen.add(x)\n    return len(seen)", "kept"),
    ("return keeps(x)", "kept"),
    ("counts[x] += 1\n    return counts[x]", "kept"),
    ("Kept.n += 1\n    return Kept.n", "kept"),
    ("return next(numbers)", "kept"),
    ("global model\n    model = x\n    return model", "kept"),
    ("global model\n    if model is None:\n        model = x\n    return model", "kept"),
    ("return time.strftime('%H')", "chance"),
    ("return time.strftime('%H', time.gmtime(x))", ""),
    ("return np.datetime64('now') - x", "chance"),
    ("return np.datetime64(x)", ""),
    ("return eval('random.random()')", "chance"),
    ("return drawn.random()", "chance"),
    ("globals()['model'] = x\n    return model", "kept"),
    ("return x * len(x)", "batch"),
    ("return np.array([1] * len(x))", ""),
    ("return x - x[0]", "batch"),
    ("return x / x.size", "batch"),
    ("return x - sum(x)", "batch"),
    ("return centred(x)", "batch"),
    ("return x.apply(lambda v: len(v) + v[0])", ""),
    ("return x - x.mean()", "batch"),
    ("return x.rolling(3).max()", "batch"),
    ("return x.max(axis=1)", ""),
    ("return x.str.count('a') + x.apply(lambda v: max(v))", ""),
    (
        "total = 0\n    for part in x:\n        total += part.size\n        yield part + total",
        "batch",
    ),
]


@pytest.mark.parametrize(("body", "expected"), CASES)
def test_what_a_function_shows(body: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(f"{HEAD}def asked(x):\n    {body}\n")
    line = HEAD.count("\n") + 1
    code = SimpleNamespace(co_filename=str(file), co_firstlineno=line, co_name="asked")
    found = shown(SimpleNamespace(__code__=code))
    assert [name for name in ("chance", "kept", "batch") if getattr(found, name)] == (
        [expected] if expected else []
    ), found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("asked = lambda x: random.random() + x", "chance"),
        ("asked = lambda x: seen.add(x) or len(seen)", "kept"),
        ("asked = lambda x: x + 1", ""),
        ("asked = [lambda x: x, lambda x: time.time()][0]", "chance"),  # which one is not known
        ("def asked(x, *, by={}):\n    by[x] = 1\n    return len(by)", "kept"),
        ("def asked(x, *, by={}):\n    return by.get(x)", ""),
        ("def around():\n    box = [0]\n    def inner(x):\n        box[0] += x\n"
         "        return box[0]\n    return inner\nasked = around()", "kept"),
    ],
)  # fmt: skip
def test_what_another_kind_of_function_shows(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(HEAD + text)
    names: dict[str, Any] = {"__name__": "module", "requests": None}
    exec(compile("seen = set()\n" * HEAD.count("\n") + text, str(file), "exec"), names)
    found = shown(names["asked"])
    assert [n for n in ("chance", "kept") if getattr(found, n)] == ([expected] if expected else [])


def test_a_function_without_a_text_shows_nothing() -> None:
    assert shown(len) == Shown()
