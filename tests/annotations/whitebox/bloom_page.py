"""The table of constructs in `docs/reference/bloom.md`, out of `tests/cases/bloom.md`.

Write it with `python -m tests.annotations.whitebox.bloom_page`.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.annotations.whitebox.bloom_cases import NEVER_SEEN, NOT_RUN, Case, cases

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "bloom.md"
_TABLE = re.compile(r"(<!-- The table is .*? -->\n).*?(<!-- End of the table. -->)", re.DOTALL)


def table() -> str:
    """The rows."""
    lines = ["| construct | rule | derived | |", "|---|---|---|---|"]
    lines += [_row(case) for case in cases()]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with the current table."""
    text = PAGE.read_text(encoding="utf-8")
    return _TABLE.sub(lambda match: match[1] + table() + match[2], text)


def _row(case: Case) -> str:
    body = re.findall(r"^  bloom do\n(.*?)^  end$", case.text, re.MULTILINE | re.DOTALL)[-1]
    rules = [" ".join(line.split()) for line in _statements(body)]
    plain = [rule for rule in rules if rule not in ("as <= a", "bs <= b")] or rules
    shown = "<br>".join(f"`{rule}`".replace("|", "\\|") for rule in plain)
    derived = "<br>".join(line.replace("  ", " ").replace("->", "→") for line in case.expected)
    seen = "not seen" if case.title in NEVER_SEEN else "not run" if case.title in NOT_RUN else ""
    return f"| {case.title} | {shown} | {derived} | {seen} |"


def _statements(body: str) -> list[str]:
    """The rules; one that goes over several lines is one."""
    found: list[str] = []
    for line in body.splitlines():
        if re.match(r"    \S+ (<|:)|    temp ", line) and not line.startswith("     "):
            found.append(line)
        elif found:
            found[-1] += " " + line
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
