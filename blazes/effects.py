"""The interpreter of the rule tables: what a path does to a label, and what that comes to.

Labels are numbers here: those without keys are their severity, a seal's number says which keys.
Every (shape of path, input label, state sealed or not) is worked out once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import TYPE_CHECKING, Final

from annotations.dependencies import compatible
from annotations.vocabulary import FunctionalDependency, Gate, Key, Label, StreamLabel
from blazes.graph import Lineage, Shape
from blazes.rule_kinds import Conclusion, Facts, Inference, Keeps, RuleSet, StateFault

if TYPE_CHECKING:
    from annotations.dataflow import Refusal

ASYNC: Final = int(Label.ASYNC)
RUN: Final = int(Label.RUN)
WORST: Final = int(Label.DIVERGE)
IMAGES_MAX: Final = 64
"""Names that one key may get behind a path that copies its attributes more than once."""

Verdict = tuple[int, tuple[str, ...]]
"""A label, and the ids of the rules of reconciliation and sharing that added something."""


class Labels:
    """Labels by number, each kept once. 0 stands for a label that is not known yet."""

    def __init__(self) -> None:
        self.values: list[StreamLabel] = [StreamLabel(Label.ASYNC)] * 2
        self.values += [StreamLabel(label) for label in Label if label is not Label.SEAL]
        self._numbers: dict[frozenset[Key], int] = {}
        self._merged: dict[tuple[int, int], int] = {}

    def seal(self, keys: frozenset[Key]) -> int:
        """The number of a seal on these keys; of `Async` where there are none."""
        if not keys:
            return ASYNC
        number = self._numbers.get(keys)
        if number is None:
            number = self._numbers[keys] = len(self.values)
            self.values.append(StreamLabel(Label.SEAL, keys))
        return number

    def merge(self, one: int, other: int) -> int:
        """Labels that meet: the worst wins; seals keep the keys that all have."""
        if one == other:
            return one
        low, high = (one, other) if one < other else (other, one)
        if low <= WORST:
            return low if high > WORST else high
        merged = self._merged.get((low, high))
        if merged is None:
            keys = self.values[low].keys & self.values[high].keys
            merged = self._merged[low, high] = self.seal(keys)
        return merged


@dataclass(slots=True, eq=False)
class Effect:
    """What one shape of path does to one label."""

    fired: tuple[Inference, ...]
    leaves: int
    """The label that leaves the path besides the added ones (2.2)."""
    nd_read: bool = False
    taint: bool = False
    varies: bool = False
    """The path itself is a nondeterministic reader (N1)."""
    agreed: bool = False
    """Its order is agreed on anew in every run: `Run` leaves."""
    unrepeatable: bool = False
    """What it writes to state differs from run to run (S5)."""
    origin: Inference | None = None
    """The rule that fired and that ordering the path would silence."""
    ordered: Effect | None = None
    """What the path does where it is ordered; only where there is an origin."""
    alone: tuple[Verdict, Verdict] = ((0, ()), (0, ()))
    """What it comes to at an output that it alone ends in, without and with `Rep`."""


class Behaviour:
    """All that one shape of path can do."""

    __slots__ = ("_interpreter", "_sealed_on", "effects", "gate", "shape")

    def __init__(self, shape: Shape, interpreter: Interpreter) -> None:
        self.shape = shape
        self.gate = shape.annotation.gate
        self.effects: dict[int, Effect] = {}
        """By twice the input label, plus one where the state is sealed."""
        self._interpreter = interpreter
        self._sealed_on: dict[int, bool] = {}

    def fits(self, label: int) -> bool:
        """True for a seal with a key compatible with the path's gate."""
        if label <= WORST or self.gate is None:
            return False
        fits = self._sealed_on.get(label)
        if fits is None:
            keys = self._interpreter.labels.values[label].keys
            fits = self._sealed_on[label] = any(map(self.takes, keys))
        return fits

    def takes(self, key: Key) -> bool:
        """True for a key that is compatible with the gate, and by which the code splits."""
        if self.gate is None or not self._interpreter.compatible(self.gate, key):
            return False
        return self.refusal(key) is None

    def refusal(self, key: Key) -> Refusal | None:
        """Why whole partitions of this key are not enough for the code (SP-1 to SP-22)."""
        splits = self.shape.splits
        if splits is None or not self._interpreter.rules.splitting:
            return None
        return splits.refusal(key)

    def effect(self, label: int, state_sealed: bool) -> Effect:
        """What the path does to the label; `state_sealed` as `Facts.writers_sealed`."""
        index = 2 * label + state_sealed
        effect = self.effects.get(index)
        if effect is None:
            effect = self._interpreter.work_out(self, label, state_sealed)
            self.effects[index] = effect
        return effect


class Interpreter:
    """One rule set under the dependencies of one dataflow.

    Args:
        rules: the tables.
        fds: the declared functional dependencies.
        dynamic: orders are agreed on anew in every run instead of recorded.
    """

    def __init__(
        self, rules: RuleSet, fds: tuple[FunctionalDependency, ...], *, dynamic: bool = False
    ) -> None:
        self.rules = rules
        self.labels = Labels()
        self._fds = fds
        self.dynamic = dynamic
        self._compatible: dict[tuple[Key | None, Key], bool] = {}
        c1, c2 = map(rules.reconciled, (Conclusion.TAINT, Conclusion.ND_READ))
        self.tainted = tuple(int(c1.label(rep)) for rep in (False, True))
        """What Taint comes to at an output, without and with `Rep`; likewise the next."""
        self.unsafe_read = tuple(int(c2.label(rep)) for rep in (False, True))
        self.varies = (int(Label.RUN), int(Label.INST))
        """What `Conclusion.RUN_OR_INST` adds."""
        self._c1, self._c2 = c1.id, c2.id
        tainted = rules.shares(StateFault.TAINTED)
        unrepeatable = rules.shares(StateFault.UNREPEATABLE)
        self._s4 = tainted.id if tainted else None
        self._s5 = unrepeatable.id if unrepeatable else None
        self.shares_state = bool(rules.sharing)
        self._harmed: dict[tuple[int, bool], tuple[Effect, Effect]] = {}

    def compatible(self, gate: Gate, key: Key) -> bool:
        """Specification 2.5, each question asked once."""
        question = (gate.attributes, key)
        answer = self._compatible.get(question)
        if answer is None:
            answer = compatible(gate, key, self._fds, rules=self.rules.name)
            self._compatible[question] = answer
        return answer

    def work_out(self, behaviour: Behaviour, label: int, state_sealed: bool) -> Effect:
        """Apply the rules of inference and transfer (2.1, 2.2)."""
        shape = behaviour.shape
        kind = shape.annotation.kind
        facts = Facts(behaviour.fits(label), state_sealed, shape.nondeterministic)
        fired = self.rules.fired(self.labels.values[label].label, kind, facts)
        leaves = label if label <= WORST else self._seal_behind(behaviour, label)
        writes_run = kind.writes and label == RUN
        effect = self._effect(fired, leaves, unrepeatable=writes_run)
        if effect.origin is not None:
            rest = tuple(rule for rule in fired if not rule.origin) or (self.rules.default,)
            effect.ordered = self._effect(
                rest,
                label if label <= WORST else ASYNC,
                unrepeatable=writes_run or (kind.writes and self.dynamic),
                agreed=self.dynamic,
            )
        return effect

    def _effect(
        self,
        fired: tuple[Inference, ...],
        leaves: int,
        *,
        unrepeatable: bool,
        agreed: bool = False,
    ) -> Effect:
        conclusions = {rule.conclusion for rule in fired}
        effect = Effect(
            fired=fired,
            leaves=leaves,
            nd_read=Conclusion.ND_READ in conclusions,
            taint=Conclusion.TAINT in conclusions,
            varies=Conclusion.RUN_OR_INST in conclusions,
            agreed=agreed,
            unrepeatable=unrepeatable,
            origin=next((rule for rule in fired if rule.origin), None),
        )
        return self._settled(effect)

    def harmed(self, effect: Effect, *, writes: bool) -> Effect:
        """The effect where repeats corrupt what the path does: Taint where it writes, else N1's."""
        known = self._harmed.get((id(effect), writes))
        if known is None:
            taint, varies = effect.taint or writes, effect.varies or not writes
            harmed = replace(effect, taint=taint, varies=varies)
            self._harmed[id(effect), writes] = known = (effect, self._settled(harmed))
        return known[1]

    def _settled(self, effect: Effect) -> Effect:
        """The effect with what it comes to at an output that it alone ends in."""
        effect.alone = (
            self.reconcile((effect,), exposed=effect.nd_read, rep=False),
            self.reconcile((effect,), exposed=effect.nd_read, rep=True),
        )
        return effect

    def _seal_behind(self, behaviour: Behaviour, label: int) -> int:
        """What a seal is behind the path: on the keys that the rules keep and that survive."""
        keeps = self.rules.keeps(behaviour.shape.annotation.kind)
        gate = behaviour.gate
        keys: Iterable[Key] = self.labels.values[label].keys
        if keeps is Keeps.NONE:
            return ASYNC
        if keeps is Keeps.COMPATIBLE and gate is not None:
            keys = [key for key in keys if behaviour.takes(key)]
        lineage = behaviour.shape.lineage
        if lineage is not None:
            keys = [image for key in keys for image in images(key, lineage)]
        return self.labels.seal(frozenset(keys))

    def reconcile(
        self,
        effects: Iterable[Effect],
        *,
        exposed: bool,
        rep: bool,
        state_tainted: bool = False,
        state_unrepeatable: bool = False,
        least: int = 0,
    ) -> Verdict:
        """The label of an output interface, from what its paths do (2.3).

        Args:
            effects: of every path that ends there.
            exposed: one of them is an unsafe read that is not protected.
            rep: the component is replicated.
            state_tainted: S4, a state that the output shows is tainted.
            state_unrepeatable: S5, such a state differs from run to run.
            least: a label that the output has at least; 0 for none.
        """
        label = least
        taint = added = False
        for effect in effects:
            label = self.labels.merge(label, effect.leaves) if label else effect.leaves
            taint = taint or effect.taint
            added = added or effect.agreed
            if effect.varies:
                label = self.labels.merge(label, self.varies[rep])
        ids = []
        if taint or state_tainted:
            label = self.labels.merge(label, self.tainted[rep])
            ids.append(self._c1)
        if exposed:
            label = self.labels.merge(label, self.unsafe_read[rep])
            ids.append(self._c2)
        if state_tainted and not taint and self._s4:
            ids.append(self._s4)
        if added:
            label = self.labels.merge(label, RUN)
        if state_unrepeatable and self._s5 and not RUN <= label <= WORST:
            label = RUN
            ids.append(self._s5)
        return label, tuple(ids)


def images(key: Key, lineage: Lineage) -> Iterable[Key]:
    """The keys that a key is copied to; none where one of its attributes is lost.

    >>> [sorted(key) for key in images(frozenset({"campaign"}), (("camp", "campaign"),))]
    [['camp']]
    """
    copies = [[out for out, source in lineage if source == name] for name in sorted(key)]
    return (frozenset(names) for names in islice(product(*copies), IMAGES_MAX))
