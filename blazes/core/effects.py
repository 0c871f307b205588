"""Effects of a path on a label, and their result at an output: the rule tables, interpreted.

Every question (a shape of path, an input label, its state sealed or not) is worked out once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Final, NamedTuple

from annotations.dataflow import Refusal
from annotations.dependencies import compatible
from annotations.vocabulary import (
    ASYNC,
    FunctionalDependency,
    Key,
    Label,
    StreamLabel,
)
from blazes.core.graph import Lineage, Shape
from blazes.core.rule_kinds import Conclusion, Facts, Inference, Keeps, RuleSet, StateFault

IMAGES_MAX: Final = 64
"""Names that one key may get behind a path that copies its attributes more than once."""
_UNSEALED: Final[dict[Label, StreamLabel]] = {
    label: StreamLabel(label) for label in Label if label is not Label.SEAL
}


def sealed(keys: frozenset[Key]) -> StreamLabel:
    """A seal on these keys; `Async` where there are none."""
    return StreamLabel(Label.SEAL, keys) if keys else ASYNC


def merge(one: StreamLabel | None, other: StreamLabel) -> StreamLabel:
    """Labels that meet: the worst wins; seals keep the keys that all have. None is no label."""
    if one is None or one is other:
        return other
    if one.label is other.label:
        return sealed(one.keys & other.keys) if one.keys else one
    return one if one.label > other.label else other


def at_least(label: StreamLabel, least: Label) -> StreamLabel:
    """The label, or the other one where that is worse; which is none of `Seal`."""
    return label if label.label >= least else _UNSEALED[least]


class Verdict(NamedTuple):
    """The label of an output."""

    label: StreamLabel
    rules: tuple[str, ...]
    """The ids of the rules of reconciliation and sharing that added something."""


@dataclass(frozen=True, slots=True, eq=False)
class Effect:
    """The effect of one shape of path on one label."""

    fired: tuple[Inference, ...]
    leaves: StreamLabel
    """The label that leaves the path besides the added ones (2.2)."""
    nd_read: bool = False
    taint: bool = False
    varies: bool = False
    """The path itself is a nondeterministic reader (N1)."""
    agreed: bool = False
    """Its order is agreed on anew in every run: `Run` leaves."""
    unrepeatable: bool = False
    """What it writes to state differs from run to run (S5)."""
    ordered: Effect | None = None
    """What the path does where it is ordered; only where there is an origin."""

    @property
    def origin(self) -> Inference | None:
        """The rule that fired and that ordering the path would silence."""
        return next((rule for rule in self.fired if rule.origin), None)


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
        self.dynamic = dynamic
        self._fds = fds
        self._compatible: dict[tuple[Shape, Key], bool] = {}
        self._fits: dict[tuple[Shape, StreamLabel], bool] = {}
        self._effects: dict[tuple[Shape, StreamLabel, bool, bool], Effect] = {}
        self._harmed: dict[tuple[Effect, bool], Effect] = {}
        self._verdicts: dict[tuple[object, ...], Verdict] = {}
        self._taint = rules.reconciled(Conclusion.TAINT)
        self._nd_read = rules.reconciled(Conclusion.ND_READ)
        self._tainted_state = rules.shares(StateFault.TAINTED)
        self._unrepeatable_state = rules.shares(StateFault.UNREPEATABLE)

    def consequence(self, conclusion: Conclusion, *, rep: bool) -> Label:
        """The result of an internal label at an output of a component, replicated or not."""
        if conclusion is Conclusion.RUN_OR_INST:
            return Label.INST if rep else Label.RUN
        return self.rules.reconciled(conclusion).label(rep)

    # ---- gates and keys

    def dependencies(self, shape: Shape) -> tuple[FunctionalDependency, ...]:
        """The dependencies that count on a path; the published rules go by names alone."""
        return shape.fds if self.rules.splitting else self._fds

    def compatible(self, shape: Shape, key: Key) -> bool:
        """Specification 2.5, each question asked once."""
        answer = self._compatible.get((shape, key))
        if answer is None:
            fds, gate = self.dependencies(shape), shape.gate
            answer = gate is not None and compatible(gate, key, fds, rules=self.rules.name)
            self._compatible[shape, key] = answer
        return answer

    def fits(self, shape: Shape, label: StreamLabel) -> bool:
        """True for a seal with a key that the path can wait for."""
        if not label.keys or shape.gate is None:
            return False
        answer = self._fits.get((shape, label))
        if answer is None:
            answer = any(self.takes(shape, key) for key in label.keys)
            self._fits[shape, label] = answer
        return answer

    def takes(self, shape: Shape, key: Key) -> bool:
        """True for a key that is compatible with the gate, and by which the code splits."""
        return self.compatible(shape, key) and self.refusal(shape, key) is None

    def refusal(self, shape: Shape, key: Key) -> Refusal | None:
        """Why whole partitions of this key are not enough for the code (SP-1 to SP-22)."""
        if shape.splits is None or not self.rules.splitting:
            return None
        return shape.splits.refusal(key)

    # ---- a path

    def effect(self, shape: Shape, label: StreamLabel, *, fits: bool, state_sealed: bool) -> Effect:
        """The effect on the label (2.1, 2.2); `state_sealed` as `Facts.writers_sealed`."""
        effect = self._effects.get((shape, label, fits, state_sealed))
        if effect is None:
            effect = self._infer(shape, label, Facts(fits, state_sealed, shape.nondeterministic))
            self._effects[shape, label, fits, state_sealed] = effect
        return effect

    def _infer(self, shape: Shape, label: StreamLabel, facts: Facts) -> Effect:
        fired = self.rules.fired(label.label, shape.kind, facts)
        leaves = self._seal_behind(shape, label) if label.keys else label
        writes_run = shape.writes and label.label is Label.RUN
        effect = _effect(fired, leaves, unrepeatable=writes_run)
        if effect.origin is None:
            return effect
        rest = tuple(rule for rule in fired if not rule.origin) or (self.rules.default,)
        ordered = _effect(
            rest,
            ASYNC if label.keys else label,
            unrepeatable=writes_run or (shape.writes and self.dynamic),
            agreed=self.dynamic,
        )
        return replace(effect, ordered=ordered)

    def harmed(self, effect: Effect, *, writes: bool) -> Effect:
        """The effect where repeats corrupt what the path does: Taint where it writes, else N1's."""
        harmed = self._harmed.get((effect, writes))
        if harmed is None:
            taint, varies = effect.taint or writes, effect.varies or not writes
            harmed = replace(effect, taint=taint, varies=varies)
            self._harmed[effect, writes] = harmed
        return harmed

    def _seal_behind(self, shape: Shape, label: StreamLabel) -> StreamLabel:
        """The seal behind the path: on the keys that the rules keep and that survive."""
        keeps = self.rules.keeps(shape.kind)
        keys: Iterable[Key] = label.keys
        if keeps is Keeps.NONE:
            return ASYNC
        if keeps is Keeps.COMPATIBLE and shape.gate is not None:
            keys = [key for key in keys if self.takes(shape, key)]
        if shape.lineage is not None:
            keys = [image for key in keys for image in images(key, shape.lineage)]
        return sealed(frozenset(keys))

    # ---- an output

    def reconcile(
        self,
        effects: tuple[Effect, ...],
        *,
        exposed: bool,
        rep: bool,
        faults: frozenset[StateFault] = frozenset(),
        least: StreamLabel | None = None,
    ) -> Verdict:
        """The label of an output interface, from what its paths do (2.3).

        Args:
            effects: of every path that ends there.
            exposed: one of them is an unsafe read that is not protected.
            rep: the component is replicated.
            faults: of the states that the output shows (S4, S5).
            least: a label that the output has at least.
        """
        question = (effects, exposed, rep, faults, least)
        verdict = self._verdicts.get(question)
        if verdict is None:
            verdict = self._reconcile(effects, exposed, rep, faults, least)
            self._verdicts[question] = verdict
        return verdict

    def _reconcile(
        self,
        effects: tuple[Effect, ...],
        exposed: bool,
        rep: bool,
        faults: frozenset[StateFault],
        least: StreamLabel | None,
    ) -> Verdict:
        label = least
        for effect in effects:
            label = merge(label, effect.leaves)
        assert label is not None
        if any(effect.varies for effect in effects):
            label = at_least(label, self.consequence(Conclusion.RUN_OR_INST, rep=rep))
        rules = []
        taint = any(effect.taint for effect in effects)
        if taint or StateFault.TAINTED in faults:
            label = at_least(label, self._taint.label(rep))
            rules.append(self._taint.id)
        if exposed:
            label = at_least(label, self._nd_read.label(rep))
            rules.append(self._nd_read.id)
        if StateFault.TAINTED in faults and not taint and self._tainted_state:
            rules.append(self._tainted_state.id)
        if any(effect.agreed for effect in effects):
            label = at_least(label, Label.RUN)
        unrepeatable = StateFault.UNREPEATABLE in faults and label.label < Label.RUN
        if unrepeatable and self._unrepeatable_state:
            label = at_least(label, Label.RUN)
            rules.append(self._unrepeatable_state.id)
        return Verdict(label, tuple(rules))


def _effect(
    fired: tuple[Inference, ...],
    leaves: StreamLabel,
    *,
    unrepeatable: bool,
    agreed: bool = False,
) -> Effect:
    conclusions = {rule.conclusion for rule in fired}
    return Effect(
        fired,
        leaves,
        nd_read=Conclusion.ND_READ in conclusions,
        taint=Conclusion.TAINT in conclusions,
        varies=Conclusion.RUN_OR_INST in conclusions,
        agreed=agreed,
        unrepeatable=unrepeatable,
    )


def images(key: Key, lineage: Lineage) -> Iterable[Key]:
    """The keys that a key is copied to; none where one of its attributes is lost.

    >>> [sorted(key) for key in images(frozenset({"campaign"}), (("camp", "campaign"),))]
    [['camp']]
    """
    copies = [[out for out, source in lineage if source == name] for name in sorted(key)]
    return (frozenset(names) for names in islice(product(*copies), IMAGES_MAX))
