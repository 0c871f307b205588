"""What the text of a function shows that Spark calls for each record."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pandas as pd
import pytest

from annotations.whitebox.following.user_functions import Shown, shown, shown_class

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
PARTS = "a b".split()
summed = spark.sparkContext.accumulator(0)
numbers = itertools.count()
drawn = random.Random(3)
def centred(x): return x - x.mean()
class Scale:
    def fitted(self, x): return x / x.max()
    def doubled(self, x): return x * 2
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
def box_of(): return LIMITS
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
    ("PARTS.append(x)\n    return len(PARTS)", "kept"),
    ("type(shared).n += 1\n    return shared.n", "kept"),
    ("type(shared).marks.append(x)\n    return 1", "kept"),
    ("box_of()['n'] = x\n    return 1", "kept"),
    ("box_of().setdefault(x, 1)\n    return 1", "kept"),
    ("shared.marks_of().append(x)\n    return 1", "kept"),
    ("return [x].copy().pop()", ""),
    ("return dict(x).setdefault('a', 1)", ""),
    ("summed.add(1)\n    return x", ""),
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
    ("return (part.rank() for part in x)", "batch"),
    ("return (part.fillna(0) for part in x)", ""),
    ("return map(lambda part: part.rank(), x)", "batch"),
    ("return map(lambda part: part.fillna(0), x)", ""),
    ("return map(centred, x)", "batch"),
    ("return Scale().fitted(x)", "batch"),
    ("return Scale().doubled(x)", ""),
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


def test_more_code_than_is_looked_through_is_not_taken_for_pure(tmp_path: Path) -> None:
    """Functions that call two others each, which do the same: what they show takes too long."""
    text = "import time\n"
    for level in range(12):
        text += "".join(
            f"def {name}{level}(x): return a{level + 1}(x), b{level + 1}(x)\n" for name in "ab"
        )
    text += "def a12(x): return x\ndef b12(x): return time.time()\n"
    file = tmp_path / "deep.py"
    file.write_text(text)
    names: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), names)
    assert shown(names["a0"]).kept == "more code than is looked through"
    assert shown(names["a9"]) == Shown(chance="time.time")


_FRAMES: Final = int(os.environ.get("BLAZES_RANDOM_FRAMES", "75"))
"""Random functions of frames; more of them are tried by hand."""
_COLUMNS: Final = (
    "pdf['v']", "pdf.v", "pdf['v'] * LIMIT", "-pdf.v + pdf['w']", "pdf['v'].fillna(0)",
    "np.log1p(pdf.w.clip(0, 9))", "np.where(pdf.v > 1, pdf.w, 0)", "pdf.w.map({1.0: 5.0})",
    "pdf.w.round(1).abs()", "pdf['v'].mask(pdf.w > 1, 0)", "pdf.w.astype(float)",
    # what sees other records, or the place of one
    "pdf.v.rank()", "pdf.v - pdf.v.mean()", "pdf.v.fillna(pdf.v.max())", "pdf.index", "len(pdf)",
    "pdf.v.shift()", "pdf.v.cumsum()", "pdf.v.values[::-1]", "pdf.v.map(pdf.v.value_counts())",
    "pdf.v + WEIGHTS", "pdf.v.isin(pdf.w)", "np.maximum(pdf.v, pdf.v.min())", "pdf.v.iloc[0]",
    "pdf.v.interpolate()", "pdf.v.mask(pdf.v.duplicated(), 0)", "np.cumsum(pdf.w)", "pdf.v @ pdf.w",
    "MODEL.predict(pdf[['v', 'w']])", "pdf.v - LIMIT * MODEL.predict(pdf)",
    "pdf.s.str.cat(sep='-')", "pdf.w.map(lambda x: x - pdf.v.min())", "pdf.v.hasnans", "seen(pdf)",
)  # fmt: skip
_STEPS: Final = (
    "pdf['x'] = <c>", "pdf = pdf.assign(y=<c>)", "pdf = pdf[pdf.v > 0]", "pdf = pdf[<c> > 1]",
    "pdf = pdf.dropna(subset=['v'])", "pdf = pdf.query('v > 0')", "x = <c>\npdf['y'] = x",
    "pdf = pdf[pdf['s'].str.upper() != 'A']", "pdf = pdf.query('v > v.mean()')",
    "pdf = pdf.head(2)",
    "pdf = pdf.drop_duplicates('s')", "pdf = pdf.query('index > 0')", "pdf = pdf.sort_values('v')",
    "if pdf.empty: continue", "pdf = pdf.dropna(axis=1)",
    "pdf = pdf.drop(columns=['w'])\npdf['w'] = <c>", "pdf['z'] = pdf.v - last\nlast = pdf.v",
    "last = pdf.w.max()", "pdf['z'] = last",
)  # fmt: skip
_BEFORE: Final = ("", "    import math\n", "    last = 0\n", "    'a text'\n    last = 1\n")


def _made(random: Random) -> str:
    steps = [random.choice(_STEPS).replace("<c>", random.choice(_COLUMNS))
             for _ in range(random.randint(1, 2))]  # fmt: skip
    lines = [f"        {line}\n" for step in steps for line in step.split("\n")]
    head = f"def asked(frames):\n{random.choice(_BEFORE)}    for pdf in frames:\n"
    return "".join([head, *lines, "        yield pdf\n"])


@pytest.mark.filterwarnings("ignore:Boolean Series key will be reindexed")
@pd.option_context("mode.chained_assignment", None)  # drawn functions write into what they filter
def test_a_function_of_frames_that_maps_each_record_does_so_however_they_are_divided(
    tmp_path: Path,
) -> None:
    """Run by pandas, on the same records in one frame and in several."""
    head = "import numpy as np, pandas as pd\nLIMIT = 2\nWEIGHTS = pd.Series([1.0, 2.0, 3.0])\n"
    head += "def seen(pdf): return float(len(pdf))\n"
    head += "class Model:\n    def predict(self, rows): return rows.v.to_numpy() * 2\n"
    head += "MODEL = Model()\n"
    table = pd.DataFrame(
        {
            "v": [1.0, 2.0, None, -1.0, 2.0, 4.0],
            "w": [0.5, 1.0, 1.0, 3.0, 0.0, -2.0],
            "s": [*"abcaab"],
        }
    )
    random, by_record, differing = Random(int(os.environ.get("BLAZES_SEED", "5"))), 0, 0
    for number in range(_FRAMES):
        text = _made(random)
        file = tmp_path / f"frames_{number}.py"
        file.write_text(head + text)
        names: dict[str, Any] = {}
        exec(compile(head + text, str(file), "exec"), names)
        results = []
        for ends in ([6], [1, 3, 6], [2, 6]):
            parts = [table.iloc[a:b].reset_index(drop=True).copy()
                     for a, b in zip([0, *ends], ends, strict=False)]  # fmt: skip
            try:
                rows = [r for made in names["asked"](parts) for r in made.to_dict("records")]
            except (
                ValueError,
                TypeError,
                AttributeError,
                KeyError,
                IndexError,
                NameError,
                pd.errors.UndefinedVariableError,
            ):
                rows = [{"failed": ""}]
            results.append(sorted(repr(sorted(row.items())) for row in rows))
        same = all(result == results[0] for result in results)
        differing += not same
        if shown(names["asked"]).by_record:
            by_record += 1
            assert same, text
    assert by_record > _FRAMES / 10
    assert differing > _FRAMES / 10
