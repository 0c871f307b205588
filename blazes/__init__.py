"""Coordination analysis of dataflows: labels, the plan, reports and the command line.

After Alvaro, Conway, Hellerstein and Maier, "Blazes: Coordination Analysis for Distributed
Programs" (ICDE 2014). A dataflow of `annotations` becomes:

- `analysis`: labels and derivations of every stream, made by the package `core`;
  `delivery_checks`: assumptions about repeats, and dangers.
- `coordination`: the plan, a seal, an order or nothing for every path. `seals` finds keys to wait
  on, `repairs` what to do about records that come again, `choice` how much of the plan a job gets.
- `advice`, `advice_text`: changes of the dataflow that would make coordination needless.
- `declarations`: a dataflow declared in Python.

`from blazes import component, source, sql, sink, stream, dataflow` declares, and `blazes.load`,
`analyze`, `plan`, `compile` and `run` are the commands as functions (`cli.interface`). Importing
the package imports nothing else.

`report` says it in words and data, `document` shows it. `verify` tries annotations out, `simulate`
whole dataflows, `demo` shows what goes wrong without coordination; `cli` is the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from blazes.declarations import component, dataflow, sink, source, sql, stream

if TYPE_CHECKING:
    from blazes.cli.interface import analyze, compile, load, plan, run

__all__ = [
    "analyze",
    "compile",
    "component",
    "dataflow",
    "load",
    "plan",
    "run",
    "sink",
    "source",
    "sql",
    "stream",
]

_COMMANDS: Final = ("analyze", "compile", "load", "plan", "run")


def __getattr__(name: str) -> Any:
    """The functions of the commands, which are imported where they are first used."""
    if name in _COMMANDS:
        from blazes.cli import interface

        return getattr(interface, name)
    raise AttributeError(f"module 'blazes' has no attribute {name!r}")
