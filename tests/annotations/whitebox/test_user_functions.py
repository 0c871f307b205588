"""What the text of a function shows that Spark calls for each record."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from annotations.whitebox.connect.user_functions import Shown, shown, shown_class

HEAD = """\
import random, time, itertools, requests, numpy as np, os, glob, hashlib, heapq, sys, user_agents
import contextvars, pandas as pd, pyarrow.compute as pc, umap
from pathlib import Path
from functools import lru_cache, partial
from concurrent.futures import as_completed
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
    def __init__(self): self.seen = set()
    def bump(self, x):
        self.seen |= {x}
        return len(self.seen)
    def pure(self, x): return x
shared = Kept()
held = contextvars.ContextVar("held")
boxed = partial(next, itertools.count())
RATES = open("rates.json").read()
REGION = os.environ["REGION"]
STARTED = time.time()
ROOT = Path("/ref")
SET = {}
SET["t"] = time.time()
zeros = np.zeros(1)
class Config:
    started = time.time()
def put(box, x): box[x] = 1
@lru_cache(None)
def slow(x): return x
def ticks():
    yield 1
tick = ticks()
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
    ("return str(STARTED) + x", "chance"),
    ("return len(os.listdir(x))", "chance"),
    ("return glob.glob(x)", "chance"),
    ("return pd.read_csv(x).iloc[0, 0]", "chance"),
    ("return (ROOT / x).read_text()", "chance"),
    ("return SET['t']", "chance"),
    ("return Config.started", "chance"),
    ("np.add.at(zeros, 0, 1)\n    return zeros[0]", "kept"),
    ("return open(x).read()", "chance"),
    ("return Path(x).read_text()", "chance"),
    ("return Path(x).stem", ""),
    ("return os.path.basename(x)", ""),
    ("return os.path.exists(x)", "chance"),
    ("return id(x)", "chance"),
    ("return repr(object())", "chance"),
    ("return getattr(time, 'time')()", "chance"),
    ("return [f.result() for f in as_completed(x)]", "chance"),
    ("return hashlib.md5(str(x).encode()).hexdigest()", ""),
    ("digest = hashlib.md5()\n    digest.update(x)\n    return digest.hexdigest()", ""),
    ("return slow(x)", ""),
    ("slow(x)\n    return slow.cache_info().misses", "kept"),
    ("asked.calls = 1\n    return x", "kept"),
    ("return boxed()", "kept"),
    ("held.set(x)\n    return held.get()", "chance"),
    ("return tick.send(None)", "kept"),
    ("return shared.bump(x)", "kept"),
    ("return Kept().bump(x)", ""),
    ("c = totals\n    c[x] = 1\n    return len(c)", "kept"),
    ("put(totals, x)\n    return len(totals)", "kept"),
    ("mine = {}\n    put(mine, x)\n    return len(mine)", ""),
    ("list.append(seen, x)\n    return len(seen)", "kept"),
    ("heapq.heappush(seen, x)\n    return seen[0]", "kept"),
    ("totals.__setitem__(x, 1)\n    return len(totals)", "kept"),
    ("return os.environ['REGION'] + x", "rests_on"),
    ("return REGION + x", "rests_on"),
    ("return RATES + x", "rests_on"),
    ("return hash(x)", "rests_on"),
    ("return sys.argv[1] + x", "rests_on"),
    ("return time.tzname[0] + x", "rests_on"),
    ("return now_of.fromtimestamp(x)", "rests_on"),
    ("return now_of(2024, 1, 1).astimezone()", "rests_on"),
    ("return user_agents.parse(x)", "rests_on"),
    ("return ','.join(set(str(x).split()))", "rests_on"),
    ("return ','.join(sorted(set(str(x).split())))", ""),
    ("for part in set(str(x).split()):\n        return part", "rests_on"),
    ("return pd.Series(x.index)", "batch"),
    ("return pd.Series(x.to_list(), index=x.index)", ""),
    ("return x.loc[0] - x", "batch"),
    ("return x.reset_index()['index']", "batch"),
    ("return x.astype('category').cat.codes", "batch"),
    ("return pd.cut(x, 4)", "batch"),
    ("return x / np.linalg.norm(x)", "batch"),
    ("return x / np.linalg.norm(x.to_numpy())", "batch"),
    ("return model.fit_predict(X=x.to_frame())", "batch"),
    ("return umap.UMAP().transform(x)", "rests_on"),
    ("return x.values[::-1]", "batch"),
    ("return x.sample(frac=0.5)", "chance"),
    ("return x.sample(frac=0.5, random_state=1)", "batch"),
    ("return pc.subtract(x, pc.mean(x))", "batch"),
    ("return pc.utf8_upper(x)", ""),
    ("return x.pipe(lambda q: q - q.shift(1))", "batch"),
    ("return getattr(x, 'rank')()", "batch"),
    ("return pd.Series(list(itertools.accumulate(x)))", "batch"),
    ("return np.where(np.isnan(x), 0, np.log1p(x)).round(2)", ""),
    ("return x.clip(0, 1).fillna(0).isin([1]).astype(int)", ""),
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
    assert [name for name in ("chance", "kept", "batch", "rests_on") if getattr(found, name)] == (
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


def test_files_that_call_each_other_come_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the folder is the one that the command is run in."""
    monkeypatch.chdir(tmp_path)
    for name, other, call in (("one", "two", "None"), ("two", "one", "time.time()")):
        Path(f"{name}.py").write_text(
            "import time\n"
            "from . import nothing\n"
            f"from .{other} import Kind as Other, call as of_other\n"
            "def call(x): return of_other(x)\n"
            "class Kind:\n"
            "    def handleInputRows(self, key, rows, times):\n"
            "        nothing.of(Other()); of_other(time)\n"
            f"        return {call}\n"
        )
    assert shown_class(Path("one.py"), "Kind").chance == "time.time"
    Path("three.py").write_text(
        "from . import two, broken\n"
        "class Kind:\n"
        "    def handleInputRows(self, key, rows, times): return two.Kind(), broken.call()\n"
    )
    Path("broken.py").write_text("def call(:")
    assert shown_class(Path("three.py"), "Kind").chance == "time.time"
