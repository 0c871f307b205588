"""Labels for every stream of a dataflow, with the derivation of each. (Types only so far.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from annotations.dataflow import Dataflow, Path
from annotations.vocabulary import Gate, Label, StreamLabel


@dataclass(frozen=True, slots=True)
class NDRead:
    """Internal label: a read of state that may still change, by gate (figure 8)."""

    gate: Gate

    def __str__(self) -> str:
        return f"NDRead[{self.gate}]"


@dataclass(frozen=True, slots=True)
class Taint:
    """Internal label: state may be corrupted by the order of arrival (figure 8)."""

    def __str__(self) -> str:
        return "Taint"


@dataclass(frozen=True, slots=True)
class Step:
    """One inference step: an input label meets a path."""

    path: Path
    input: StreamLabel
    rule: str
    """`R1` ... `R4`, `S1`, `S2`, `N1`, `N2`, or `p` where nothing is added."""
    adds: tuple[NDRead | Taint | StreamLabel, ...]


@dataclass(frozen=True, slots=True)
class Derivation:
    """How the label of one output interface came about (section V-A)."""

    component: str
    output: str
    steps: tuple[Step, ...]
    rep: bool
    reconciled: tuple[str, ...]
    """`C1`, `C2`, `S4`, in that order, where they added something."""
    label: StreamLabel


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result of `analyze`: everything a report or the plan needs."""

    dataflow: Dataflow
    rules: str
    """`blazes` or `icde14`."""
    labels: Mapping[str, StreamLabel]
    """Stream name -> label, for every stream, in the order of the file."""
    rep: Mapping[str, bool]
    """Stream name -> replicated."""
    replicated: Mapping[str, bool]
    """Component name -> replicated."""
    derivations: tuple[Derivation, ...]
    """In the order of the dataflow: a derivation stands after those it depends on."""
    verdict: Label
    """The highest severity at any sink."""
