"""The tables of events and instructions: each is carried out, and the page shows them.

python -m tests.flux_runtime.site.test_step_tables     writes the tables into the documentation
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from flux_runtime.site import leader_steps, site_steps
from flux_runtime.site.leader import Leader
from flux_runtime.site.leader_state import LeaderState
from flux_runtime.site.site_state import SiteState
from flux_runtime.site.steps import table
from flux_runtime.site.worker import Worker

PAGE: Final = Path(__file__).parents[3] / "docs" / "explanation" / "flux-on-spark.md"
END: Final = "<!-- end of the tables -->"
TABLES: Final = {
    "<!-- the tables of the leader -->\n": (leader_steps, (Leader, LeaderState)),
    "<!-- the tables of a site -->\n": (site_steps, (Worker, SiteState)),
}
"""Where the tables of steps begin on the page -> the steps, and who carries them out."""


def written(begin: str) -> str:
    steps, _ = TABLES[begin]
    return begin + "\n".join(table(steps.EVENTS, steps.INSTRUCTIONS)) + END


@pytest.mark.parametrize(("steps", "classes"), TABLES.values(), ids=["leader", "site"])
def test_what_the_table_names_is_carried_out(
    steps: ModuleType, classes: tuple[type[Any], ...]
) -> None:
    text = "".join(map(inspect.getsource, classes))
    for kind in steps.EVENTS:
        assert re.search(rf"case {kind.__name__}\(", text), kind
        assert re.search(rf"steps\.{kind.__name__}\(", text), f"nobody hands in {kind}"
    for kind in steps.INSTRUCTIONS:
        assert re.search(rf"case steps\.{kind.__name__}\(", text), kind


def test_the_page_has_the_tables() -> None:
    assert all(written(begin) in PAGE.read_text(encoding="utf-8") for begin in TABLES)


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    for begin in TABLES:
        between = re.compile(re.escape(begin) + ".*?" + re.escape(END), re.DOTALL)
        page = between.sub(lambda _, begin=begin: written(begin), page)
    PAGE.write_text(page, encoding="utf-8")
