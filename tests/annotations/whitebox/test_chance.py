"""Functions of the user whose text shows that their results depend on more than their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from annotations.whitebox.connect.chance import by_chance

HEAD: Final = """\
import random, time, uuid, os, datetime as dt, numpy as np
from datetime import datetime
from random import randint
SEEN, COUNTS, TURNS, PRICES = {}, [], iter(range(9)), {1: 2}
NUMBER = 0
class Holder: value = 0
def drawn(x): return x + randint(0, 3)
def priced(x): return PRICES.get(x, 0) + 1
"""
DEPENDS: Final = (
    "f = lambda x: random.random()",
    "f = lambda x: list(map(random.choice, [x]))",
    "f = lambda x: random.Random().randint(0, x)",
    "f = lambda x: drawn(x) + 1",
    "f = lambda x: int(time.time())",
    "f = lambda x: str(uuid.uuid4())",
    "f = lambda x: datetime.now().isoformat()",
    "f = lambda x: dt.date.today().isoformat()",
    "f = lambda x: float(np.random.rand())",
    "f = lambda x: os.urandom(x)",
    "f = lambda x: __import__('random').random()",
    "f = lambda x: next(TURNS)",
    "f = lambda x: COUNTS.append(x) or len(COUNTS)",
    "def f(x, seen=[]):\n    seen.append(x)\n    return len(seen)",
    "def f(x, *, seen={}):\n    seen[x] = 1\n    return len(seen)",
    "def f(x):\n    SEEN[x] = SEEN.get(x, 0) + 1\n    return SEEN[x]",
    "def f(x):\n    global NUMBER\n    NUMBER += 1\n    return NUMBER",
    "def f(x):\n    Holder.value += x\n    return Holder.value",
    "def f(x):\n    import secrets\n    return secrets.randbelow(x)",
    "def around():\n    box = [0]\n    def f(x):\n        box[0] += 1\n        return box[0]\n"
    "    return f\nf = around()",
)
"""Texts of functions that do."""
ALONE: Final = (
    "f = lambda x: priced(x)",
    "f = lambda x: random.Random(x).randint(0, 5)",
    "f = lambda x: dt.date(2024, 1, x).isoformat()",
    "f = lambda x: datetime.fromtimestamp(x, dt.timezone.utc).isoformat()",
    "f = lambda x: sorted([x, 1])[0]",
    "def f(x):\n    seen = {}\n    seen[x] = 1\n    seen.update(seen)\n    return len(seen)",
    "def f(x, by=2):\n    return x * by",
    "def f(row):\n    row['n'] = row['n'] + 1\n    return row",
    "def f(x):\n    time = x + 1\n    return time",
)
"""Texts of functions that do not."""


@pytest.mark.parametrize(
    ("text", "expected"), [*((t, True) for t in DEPENDS), *((t, False) for t in ALONE)]
)
def test_what_outlives_a_call_is_seen(text: str, expected: bool, tmp_path: Path) -> None:
    file = tmp_path / "functions.py"
    file.write_text(HEAD + text, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(HEAD + text, str(file), "exec"), names)
    assert by_chance(names["f"]) is expected
