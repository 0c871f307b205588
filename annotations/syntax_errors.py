"""The complaints of a YAML parser, in the words of somebody who has to correct the file.

The parser names the token that it did not expect, often far from the mistake. Each rule of `RULES`
recognises one mistake that people make, says where it is, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from annotations.diagnostics import Findings, Mark

_LINE_BREAK: Final = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_BLOCKS: Final = ("while parsing a block mapping", "while parsing a block collection")
_COMPACT: Final = re.compile(r"\w+\[[^\[\]\n]*\]")


@dataclass(frozen=True, slots=True)
class _Complaint:
    """The parser's complaint, and the text around it."""

    problem: str
    context: str
    here: Mark
    began: Mark
    """Where what is being parsed began; `here` where the parser does not say."""
    before: str
    """The line up to the complaint."""
    after: str
    """The line from the complaint on."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """`when` recognises the mistake; `begin` reports it where the construct began."""

    when: Callable[[_Complaint], bool]
    message: str
    remedy: str | None
    begin: bool = False


def _compact_label(complaint: _Complaint) -> str:
    """The unquoted `OW[a, b]` that the complaint is about."""
    line = complaint.before + complaint.after
    for match in _COMPACT.finditer(line):
        if match.start() < len(complaint.before) < match.end():
            return match.group()
    return "OW[word, batch]"


def _is_flow(complaint: _Complaint) -> bool:
    return complaint.context.startswith("while parsing a flow")


RULES: Final = (
    _Rule(
        lambda c: "cannot start any token" in c.problem and c.after.startswith("\t"),
        "a tab indents this line",
        "Indent with spaces; YAML does not allow tabs.",
    ),
    _Rule(
        lambda c: "cannot start any token" in c.problem,
        "an unquoted word cannot begin with `{first}`",
        "Put the value in quotes.",
    ),
    _Rule(
        lambda c: "alphabetic or numeric" in c.problem and "alias" in c.context,
        "an unquoted `*` begins an alias",
        'Put it in quotes: "*"',
        begin=True,
    ),
    _Rule(
        lambda c: "mapping values are not allowed" in c.problem,
        "a key is not allowed here",
        "Indent the line like its neighbours; put a value that contains `: ` in quotes.",
    ),
    _Rule(
        lambda c: "sequence entries are not allowed" in c.problem,
        "a list item is not allowed here",
        "Begin a new line with the `-`.",
    ),
    _Rule(
        lambda c: _is_flow(c) and c.after.startswith("["),
        "`[` inside of `{{ }}` or `[ ]` begins a list of its own",
        'Put the whole annotation in quotes: "{compact}"',
    ),
    _Rule(
        lambda c: _is_flow(c) and c.here.line == c.began.line and c.after != "",
        "expected `,` or the closing bracket before `{first}`",
        "Separate the entries with `,`, and close the bracket.",
    ),
    _Rule(
        _is_flow,
        "the bracket that opens here is not closed before line {line}",
        "Close it.",
        begin=True,
    ),
    _Rule(
        lambda c: "unexpected end of stream" in c.problem and "quoted" in c.context,
        "the quotes that open here are not closed",
        "Close them.",
        begin=True,
    ),
    _Rule(
        lambda c: c.context == "while parsing a block node",
        "an unquoted value cannot begin with `{first}`",
        "Put the value in quotes.",
    ),
    _Rule(
        lambda c: c.context in _BLOCKS and c.before.strip(" -") == "",
        "the indentation of this line does not fit the lines above",
        "Indent it like its neighbours.",
    ),
    _Rule(
        lambda c: c.context in _BLOCKS,
        "`{first}` follows the end of a value",
        "Put the whole value in quotes; a quote inside of single quotes is written twice.",
    ),
    _Rule(lambda c: True, "{context}{problem}", None),
)
"""The first rule that recognises the complaint reports it."""


def report_syntax(error: Any, text: str, findings: Findings) -> None:
    """Note the parser's `error` (a `MarkedYAMLError`) about `text`."""
    here = error.problem_mark or error.context_mark
    line = (_LINE_BREAK.split(text) + [""] * 2)[here.line]
    complaint = _Complaint(
        problem=error.problem or "",
        context=error.context or "",
        here=here,
        began=error.context_mark or here,
        before=line[: here.column],
        after=line[here.column :],
    )
    rule = next(rule for rule in RULES if rule.when(complaint))
    message = rule.message.format(
        first=complaint.after[:1],
        compact=_compact_label(complaint),
        line=here.line + 1,
        context=f"{complaint.context}: " if complaint.context else "",
        problem=complaint.problem.replace("did not find expected", "expected"),
    )
    remedy = rule.remedy and rule.remedy.format(compact=_compact_label(complaint))
    findings.add("BLZ002", message, complaint.began if rule.begin else here, remedy)
