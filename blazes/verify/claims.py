"""The claims of a dataflow's annotations, each a thing that can be refuted.

`KINDS` says of each kind of claim what it means, how its two ways are called where a refutation is
shown, and what would repair a refuted one. A label claims as `CLAIMS` lists; a worse label than
necessary claims nothing false and is never refuted.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from annotations.dataflow import Path, Position
from annotations.vocabulary import AnnotationKind, FunctionalDependency, Key, Within
from blazes.analysis import Analysis
from blazes.verify.operators import Operator, leaving


class Kind(enum.Enum):
    """The kinds of claim."""

    FUNCTION = "function"
    CONFLUENT = "confluent"
    READ_ONLY = "read-only"
    GATE = "gate"
    SET = "set"
    KEY = "key"
    FD = "fd"


@dataclass(frozen=True, slots=True)
class About:
    """A kind of claim in words."""

    means: str
    broken: str
    """What a refutation shows."""
    ways: tuple[str, str]
    """Headings of the two ways."""
    tried: str
    """What one try was."""
    remedy: str


KINDS: Final[Mapping[Kind, About]] = {
    Kind.FUNCTION: About(
        means="the same input gives the same output",
        broken="The same records in the same order gave another output the second time.",
        ways=("first time", "second time"),
        tried="run twice",
        remedy="Declare the path `nondeterministic:` with its reason, or take the clock, the "
        "random number or the outside call out of it.",
    ),
    Kind.CONFLUENT: About(
        means="what is emitted does not depend on the order and batching of the input",
        broken="The same records in another order and other micro-batches emit something else.",
        ways=("all at once", "as they came"),
        tried="in other batches",
        remedy="Label the path order-sensitive: OR where it keeps nothing, OW where it does, with "
        "the attributes it groups or joins by as its gate.",
    ),
    Kind.READ_ONLY: About(
        means="a record leaves nothing behind that later records meet",
        broken="What a record makes the component emit depends on other records of the input.",
        ways=("all at once", "batch by batch"),
        tried="batch by batch",
        remedy="Label the path as a writer: CW if it is confluent, else OW.",
    ),
    Kind.GATE: About(
        means="the output of a gate partition depends on that partition alone",
        broken="Together the partitions emit something else than each by itself.",
        ways=("partitions together", "each by itself"),
        tried="partition by partition",
        remedy="Use a coarser gate, with fewer attributes, or `*`.",
    ),
    Kind.SET: About(
        means="inside a gate partition the order does not matter",
        broken="The same gate partitions, the records of one in another order, give another "
        "output.",
        ways=("one order", "another order"),
        tried="in another order",
        remedy="Say `within: sequence` (and `order_by:`), or make the result independent of the "
        "order: a total ORDER BY, integers or decimals instead of floating point.",
    ),
    Kind.KEY: About(
        means="records leave with the key that they came with",
        broken="Records with one value of the key leave with another.",
        ways=("came with", "left with"),
        tried="keys followed",
        remedy="Say with `lineage:` which output attribute is the copy of the key, or none: "
        "`lineage: {}`.",
    ),
    Kind.FD: About(
        means="the data keep the functional dependency",
        broken="Two records agree on the left side and differ on the right.",
        ways=("one record", "another record"),
        tried="streams checked",
        remedy="Remove the dependency from `fds:`, or mend the data.",
    ),
}

CR, CW, OR, OW = AnnotationKind
CLAIMS: Final[Mapping[AnnotationKind, tuple[Kind, ...]]] = {
    CR: (Kind.CONFLUENT, Kind.READ_ONLY),
    CW: (Kind.CONFLUENT,),
    OR: (Kind.READ_ONLY, Kind.GATE, Kind.SET),
    OW: (Kind.GATE, Kind.SET),
}
"""What a label claims of its path, as far as its gate and `within` go (`claimed`)."""


def claimed(path: Path) -> tuple[Kind, ...]:
    """The kinds of claims that a path makes.

    What is said of partitions, that they are apart and that the order inside of one does not
    matter, is said of the partitions of the gate. Those of `*` are unknown, and of one record each
    as far as anybody may rely on them: nothing is claimed of them.
    """
    gate = path.annotation.gate
    known = gate is not None and gate.known
    wanted = {Kind.GATE: known, Kind.SET: known and path.within is Within.SET}
    return tuple(kind for kind in CLAIMS[path.annotation.kind] if wanted.get(kind, True))


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim about a path, about a whole output (no path), or about the data (no operator).

    Attributes:
        kind: what is claimed.
        operator: the code it is about; None for a dependency.
        path: the path; None where it is about the output or the data.
        gate: with `Kind.GATE` and `Kind.SET`: the attributes.
        copies: with `Kind.KEY`: (input attribute, output attribute) pairs.
        fd: with `Kind.FD`: the dependency.
    """

    kind: Kind
    operator: Operator | None
    path: Path | None = None
    gate: Key = frozenset()
    copies: tuple[tuple[str, str], ...] = ()
    fd: FunctionalDependency | None = None

    @property
    def position(self) -> Position | None:
        """Where the claim stands in the file."""
        if self.path is not None:
            return self.path.position
        if self.operator is not None and self.operator.code is not None:
            return self.operator.code.position
        return None

    @property
    def nothing(self) -> str:
        """Why there is nothing in it that could be wrong; empty where there is."""
        if self.kind is Kind.GATE and self.path is not None and self.kind not in claimed(self.path):
            return "the gate is `*`: of partitions, and of the order in them, nothing is said"
        return ""

    @property
    def where(self) -> str:
        """The place: `Component: input -> output`, `Component.output`, or the dependency."""
        if self.operator is None:
            return str(self.fd)
        if self.path is None:
            return self.operator.name
        return f"{self.operator.component}: {self.path.source} -> {self.path.target}"

    @property
    def text(self) -> str:
        """The claim in a few words, as the file makes it."""
        label = str(self.path.annotation) if self.path is not None else ""
        match self.kind:
            case Kind.FUNCTION:
                return "a function of its input"
            case Kind.CONFLUENT:
                return f"{label}: confluent"
            case Kind.READ_ONLY:
                return f"{label}: read-only"
            case Kind.GATE if self.nothing:
                return f"{label}: no gate is known"
            case Kind.GATE:
                return f"{label}: keeps gate partitions apart"
            case Kind.SET:
                return f"{label}: within: set"
            case Kind.KEY:
                pairs = (a if a == b else f"{a} as {b}" for a, b in self.copies)
                return f"copies {', '.join(pairs)}"
            case Kind.FD:
                return "holds in the data"


def claims_of(operator: Operator, analysis: Analysis) -> Iterator[Claim]:
    """Every claim about an output, in the order in which they are tried."""
    yield Claim(Kind.FUNCTION, operator)
    for path in operator.own:
        gate = path.annotation.gate
        attributes = (gate.attributes if gate is not None else None) or frozenset()
        for kind in claimed(path):
            yield Claim(kind, operator, path, gate=attributes)
        if gate is not None and not gate.known:
            yield Claim(Kind.GATE, operator, path)
        copies = copies_of(operator, path, analysis)
        if copies:
            yield Claim(Kind.KEY, operator, path, copies=copies)


def copies_of(operator: Operator, path: Path, analysis: Analysis) -> tuple[tuple[str, str], ...]:
    """(input, output) attributes that have to be equal: stated lineage, and keys that leave sealed.

    A key whose attributes the output lacks ends there; the labels of the streams say so.
    """
    leaving_streams = leaving(analysis.dataflow, operator.component, operator.output)
    sealed = {key for stream in leaving_streams for key in analysis.labels[stream.name].keys}
    pairs = {(source, target) for target, source in (path.lineage or {}).items()}
    for derivation in analysis.derivations:
        if derivation.component != operator.component or derivation.output != operator.output:
            continue
        for step in derivation.steps:
            if step.path == path:
                for key in sealed.intersection(step.leaves.keys):
                    for target in key:
                        pairs.add((path.lineage[target] if path.lineage else target, target))
    columns = operator.schemas[path.source]
    return tuple(sorted((source, target) for source, target in pairs if source in columns))
