"""The time of deriving a chain of CTEs, each of which reads the one before twice, by its length.

    python benchmarks/cte_chains.py [--lengths 5,10,20,40] [--form NAME]

Each line shows a form of the chain: CPU milliseconds of reading and annotating for each length
(the median of five), and in brackets the nodes of the plan. The time should grow like the text.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from annotations.whitebox.derive import annotate
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import Role, nodes_of
from annotations.whitebox.sql import read

CLICKS: Final = {"k": "INT NOT NULL", "u": "INT", "v": "INT", "ts": "TIMESTAMP"}
FORMS: Final[Mapping[str, tuple[str, str, str]]] = {
    "join": (
        "SELECT k, u, v FROM clicks",
        "SELECT a.k, a.u, b.v FROM {0} a JOIN {0} b ON a.k = b.k",
        "SELECT k, count(*) AS n FROM {0} GROUP BY k",
    ),
    "join of two keys": (
        "SELECT k, u, v FROM clicks WHERE u = 3",
        "SELECT a.k, b.u, b.v FROM {0} a JOIN {0} b ON a.k = b.k AND a.u = b.v WHERE a.v > {1}",
        "SELECT * FROM {0} WHERE k = 7",
    ),
    "columns that change places": (
        "SELECT k, u, v FROM clicks",
        "SELECT a.u AS k, b.v AS u, a.k AS v FROM {0} a JOIN {0} b ON a.k = b.u",
        "SELECT k, u, v FROM {0}",
    ),
    "outer join": (
        "SELECT k, u, v FROM clicks",
        "SELECT a.k, coalesce(a.u, b.u) AS u, b.v FROM {0} a FULL JOIN {0} b ON a.k = b.k",
        "SELECT k, u, v FROM {0}",
    ),
    "groups": (
        "SELECT k, u, v FROM clicks WHERE rand() < 0.5",
        "SELECT a.k, max(b.u) AS u, count(*) AS v FROM {0} a JOIN {0} b ON a.k = b.k GROUP BY a.k",
        "SELECT k, u FROM {0} WHERE v > 3",
    ),
    "windows": (
        "SELECT k, u, v FROM clicks",
        "SELECT a.k, row_number() OVER (PARTITION BY b.k ORDER BY a.u) AS u, b.v "
        "FROM {0} a JOIN {0} b ON a.k = b.k",
        "SELECT k, u, v FROM {0}",
    ),
    "sets": (
        "SELECT k, u, v FROM clicks",
        "SELECT k, u, v FROM {0} WHERE u > {1} UNION SELECT k, u, v FROM {0} WHERE v > {1}",
        "SELECT DISTINCT k, u FROM {0}",
    ),
    "subqueries": (
        "SELECT k, u, v FROM clicks",
        "SELECT k, u, v FROM {0} WHERE u NOT IN (SELECT v FROM {0} WHERE k = {1})",
        "SELECT k, u FROM {0}",
    ),
    "requests": (
        "SELECT k, u, v FROM clicks",
        "SELECT a.k, a.u, b.v FROM {0} a JOIN {0} b ON a.k = b.k",
        "SELECT r.k, count(*) AS n FROM {0} a JOIN asks r ON a.k = r.k GROUP BY r.k",
    ),
    "groups for requests": (
        "SELECT k, u, v FROM clicks",
        "SELECT a.k, max(b.u) AS u, count(*) AS v FROM {0} a JOIN {0} b ON a.k = b.u GROUP BY a.k",
        "SELECT r.k, a.v FROM {0} a JOIN asks r ON a.k = r.k",
    ),
}
"""Form -> first query, each next one over the one before, and the query that reads the last."""


def chain(form: str, length: int, first: str = "") -> str:
    """A query whose `length` CTEs each read the one before twice, the first one `first`."""
    default, step, last = FORMS[form]
    ctes = [f"c0 AS ({first or default})"]
    ctes += [f"c{at} AS ({step.format(f'c{at - 1}', at)})" for at in range(1, length + 1)]
    return "WITH " + ",\n".join(ctes) + "\n" + last.format(f"c{length}", length)


def main() -> int:
    """Measure the forms."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lengths", default="5,10,20,40")
    parser.add_argument("--form", choices=[*FORMS])
    options = parser.parse_args()
    inputs = {"clicks": Input(CLICKS), "asks": Input({"k": "INT"}, Role.REQUEST)}
    for form in [options.form] if options.form else FORMS:
        cells = []
        for length in map(int, options.lengths.split(",")):
            text = chain(form, length)
            times = []
            for _ in range(5):
                start = time.process_time()
                query = read(text, inputs=inputs)
                annotate(query.plan)
                times.append(time.process_time() - start)
            nodes = sum(1 for _ in nodes_of(query.plan))
            cells.append(f"{length}: {statistics.median(times) * 1000:.0f} ms [{nodes}]")
            if query.problem is not None:
                cells.append(query.problem)
        print(f"{form:30}", *cells, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
