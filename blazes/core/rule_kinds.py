"""Rules of the analysis: their kinds, its conditions and conclusions, and a set of rules.

The rules themselves stand in `blazes.core.rules`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from annotations.vocabulary import AnnotationKind, Delivery, Label, Repeats


class Facts(NamedTuple):
    """Facts that a condition may ask about a path and what enters it."""

    compatible: bool
    """The input is sealed, and one of its keys is compatible with the gate."""
    writers_sealed: bool
    """Every write path of the state group reads an input sealed compatibly with the gate."""
    nondeterministic: bool
    """The path is declared `nondeterministic`."""


class Condition(enum.Enum):
    """The side condition of a rule of inference."""

    ALWAYS = enum.auto()
    NONDETERMINISTIC = enum.auto()
    SEAL_DOES_NOT_FIT = enum.auto()
    SEAL_DOES_NOT_FIT_OR_STATE_IS_OPEN = enum.auto()
    SEAL_FITS_BUT_STATE_IS_OPEN = enum.auto()


CONDITIONS: Final[Mapping[Condition, Callable[[Facts], bool]]] = {
    Condition.ALWAYS: lambda facts: True,
    Condition.NONDETERMINISTIC: lambda facts: facts.nondeterministic,
    Condition.SEAL_DOES_NOT_FIT: lambda facts: not facts.compatible,
    Condition.SEAL_DOES_NOT_FIT_OR_STATE_IS_OPEN: (
        lambda facts: not (facts.compatible and facts.writers_sealed)
    ),
    Condition.SEAL_FITS_BUT_STATE_IS_OPEN: (
        lambda facts: facts.compatible and not facts.writers_sealed
    ),
}


class Conclusion(enum.Enum):
    """An addition of a rule of inference to the labels of the output interface."""

    NOTHING = enum.auto()
    ND_READ = enum.auto()
    """`NDRead[g]`"""
    TAINT = enum.auto()
    """`Taint`"""
    RUN_OR_INST = enum.auto()
    """`Inst` where the component is replicated, else `Run`"""


class Keeps(enum.Enum):
    """Which keys of a sealed input are still sealed behind a path."""

    SURVIVING = enum.auto()
    """those whose attributes all survive"""
    COMPATIBLE = enum.auto()
    """of the surviving ones, those that are compatible with the gate"""
    NONE = enum.auto()


class Rendezvous(enum.Enum):
    """Writers that a read can meet, and which must be sealed to protect it."""

    STATE_GROUP = enum.auto()
    """the write paths of the same state group"""
    SAME_OUTPUT = enum.auto()
    """the other paths that end in the same output interface"""


class Cycles(enum.Enum):
    """How a cycle is labelled (specification 2.6)."""

    FIXPOINT = enum.auto()
    """least fixpoint of the rules, starting from `Async`"""
    COLLAPSE = enum.auto()
    """one path with the most severe annotation of its members"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The parts that every rule has; `when` over the line, `adds` under it."""

    id: str
    sets: tuple[str, ...]
    """The rule sets that have it."""
    when: str
    adds: str
    text: str
    """The rule in a sentence or two."""
    why: str
    example: str
    source: str
    """Where it comes from: a figure or section of the paper, or that it is ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference(Rule):
    """A rule about one path: an input label meets an annotation (figure 9)."""

    labels: frozenset[Label]
    kinds: frozenset[AnnotationKind]
    condition: Condition = Condition.ALWAYS
    conclusion: Conclusion
    origin: bool = False
    """True where a total order over the path's inputs repairs what the rule found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation(Rule):
    """A rule about an output interface: what an internal label comes to there (figure 10)."""

    trigger: Conclusion
    replicated: Label
    single: Label

    def label(self, rep: bool) -> Label:
        """The label that is added where the component is, or is not, replicated."""
        return self.replicated if rep else self.single


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer(Rule):
    """A rule about what becomes of a seal behind a path."""

    kinds: frozenset[AnnotationKind]
    keeps: Keeps


class StateFault(enum.Enum):
    """Faults that the contents of a state can have."""

    TAINTED = enum.auto()
    """a write path got `Taint`"""
    UNREPEATABLE = enum.auto()
    """a write path reads `Run`, or its order is agreed on anew in every run"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing(Rule):
    """A rule about state: what a fault in it means for every output that reads it."""

    trigger: StateFault


class Copies(NamedTuple):
    """Facts that a condition may ask about a path and what enters it."""

    repeats: Repeats
    writes: bool
    nondeterministic: bool
    gate: bool
    """The path waits for whole partitions."""
    counted: bool
    """What enters and may repeat is counted until its partition is complete, by the path or so
    that one behind it can wait; a watermark counts nothing."""
    identified: bool
    """Every stream that enters and may repeat has an id, and is counted."""
    sealed_state: bool
    """The path reads state that it waits for."""
    makes: bool
    """The path puts a row out again, though each record comes once."""


class Leaves(enum.Enum):
    """The delivery behind a path."""

    AS_ENTERED = enum.auto()
    ABSORBED = enum.auto()
    """As entered; `Once` where the path absorbs."""
    ONCE = enum.auto()
    AGAIN = enum.auto()
    """`Repeat[id]` with all attributes of the row, or `Repeat`."""
    CORRUPT = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage(Rule):
    """A rule about one path."""

    enters: frozenset[Delivery]
    holds: Callable[[Copies], bool]
    leaves: Leaves
    harms: bool = False
    """The order label gets worse: `Taint` where the path writes, else `Rep ? Inst : Run`."""
    origin: bool = False
    """A repair in front of the path silences the rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """One set of rules; the analyser has no other knowledge of what is and is not allowed."""

    name: str
    """Also the notion of compatibility (`annotations.dependencies.compatible`)."""
    text: str
    inference: tuple[Inference, ...]
    """All that apply fire."""
    default: Inference
    """`p`, which fires where none of them does."""
    reconciliation: tuple[Reconciliation, ...]
    transfer: tuple[Transfer, ...]
    sharing: tuple[Sharing, ...]
    rendezvous: Rendezvous
    cycles: Cycles
    splitting: bool
    """Whether a seal has to be enough for a component's code, too (SP-1 to SP-22)."""
    delivery: bool
    """Whether records may come again (D1 to D14); else each is taken to come once."""
    _fired: dict[tuple[Label, AnnotationKind, Facts], tuple[Inference, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules of the set."""
        return (*self.inference, self.default, *self.transfer, *self.reconciliation, *self.sharing)

    def fired(self, label: Label, kind: AnnotationKind, facts: Facts) -> tuple[Inference, ...]:
        """The rules that fire where input with this label meets such a path."""
        key = (label, kind, facts)
        if key not in self._fired:
            self._fired[key] = tuple(
                rule
                for rule in self.inference
                if label in rule.labels and kind in rule.kinds and CONDITIONS[rule.condition](facts)
            ) or (self.default,)
        return self._fired[key]

    def keeps(self, kind: AnnotationKind) -> Keeps:
        """The seal behind such a path (2.2)."""
        for rule in self.transfer:
            if kind in rule.kinds:
                return rule.keeps
        return Keeps.SURVIVING if kind.confluent else Keeps.NONE

    def reconciled(self, trigger: Conclusion) -> Reconciliation:
        """The rule that says what an internal label comes to."""
        return next(rule for rule in self.reconciliation if rule.trigger is trigger)

    def shares(self, fault: StateFault) -> Sharing | None:
        """The rule that carries a fault of the state to its readers, if the set has one."""
        return next((rule for rule in self.sharing if rule.trigger is fault), None)
