"""The coordination plan: for every order-sensitive path seal, order or none. (Types only so far.)"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from annotations.dataflow import Path
from annotations.vocabulary import Key, Label, StreamLabel
from blazes.analysis import Analysis


class Strategy(enum.Enum):
    """What a path gets; `spec` section 3."""

    SEAL = "seal"
    ORDER = "order"
    NONE = "none"


class Scope(enum.Enum):
    """What a total order ranges over."""

    GATE = "gate"
    GLOBAL = "global"


class Mode(enum.Enum):
    """Whether an order is stored for replays (`async` target) or only agreed on (`run`)."""

    RECORDED = "recorded"
    DYNAMIC = "dynamic"


class Vote(enum.Enum):
    """Whether a partition needs one producer's word or everybody's."""

    NONE = "none"
    UNANIMOUS = "unanimous"


class Release(enum.Enum):
    """How a sealed partition is handed over: as a multiset, or sorted by a total key (SE-11)."""

    WHOLE = "whole"
    SORTED = "sorted"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A seal that would make an order unnecessary."""

    seal: Key
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """The plan for one order-sensitive path."""

    component: str
    path: Path
    strategy: Strategy
    inputs: tuple[str, ...]
    """Input interfaces that wait (seal) or are ordered (order), sorted; empty for none."""
    cause: str | None = None
    """The rule that makes the path an origin: R1, S1, R2, R4 or S2; None where it is none."""
    # seal
    key: Key | None = None
    streams: tuple[str, ...] = ()
    """Names of the sealed streams that are waited for."""
    vote: Vote | None = None
    release: Release | None = None
    # order
    scope: Scope | None = None
    mode: Mode | None = None
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Inherited:
    """Nondeterminism that no coordination repairs: a declared source, or rule N1 or N2."""

    origin: str
    """Stream name, or `Component: from->to`."""
    label: Label
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The least coordination that brings every sink within the target."""

    analysis: Analysis
    target: Label
    entries: tuple[Entry, ...]
    """Order-sensitive paths only, in the order of the dataflow."""
    repaired: Mapping[str, StreamLabel]
    """Stream name -> label under the plan."""
    inherited: tuple[Inherited, ...]
    verdict: Label
    """The highest severity at any sink under the plan."""
