"""The annotation pass: from a plan (`ir`) to what each source does to the output (`derivation`).

One function for every front end:

    annotate(plan, output_mode="update", lateness={"clicks": 600.0}, fds=(...)) -> Derivation

The pass goes once through the plan, from its sources up, and keeps `facts` about the rows of every
node. An order-sensitive operator is an `Effect` with the partitions that it needs complete; a value
that moves carries its effects along until it is used in a way that asks when. What reaches the
output decides the label: no effect, and nothing kept: CR; something kept: CW; else OR or OW.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from types import MappingProxyType
from typing import Final

from annotations.dataflow import EMPTY, Position, Refusal
from annotations.vocabulary import FunctionalDependency, Gate, Repeats, Rows, Within
from annotations.whitebox import grouping, joining
from annotations.whitebox.context import (
    Context,
    by_key,
    define,
    look,
    opaque,
    sensitive,
    use,
)
from annotations.whitebox.context import test as test_now
from annotations.whitebox.derivation import Assumption, Derivation, DerivedPath, Evidence
from annotations.whitebox.facts import (
    Effect,
    Facts,
    attributes_of,
    both,
    gate_of,
    unique,
)
from annotations.whitebox.ir import (
    Aggregate,
    Column,
    Deduplicate,
    Delete,
    Filter,
    Generate,
    Join,
    JoinKind,
    Limit,
    Opaque,
    Project,
    Ref,
    Relation,
    Reuse,
    Role,
    Sample,
    SetOperation,
    Sort,
    Source,
    Store,
    Union,
    Watermark,
    Window,
    inputs_of,
    nodes_of,
)
from annotations.whitebox.repeats import Copies, repeats_of
from annotations.whitebox.sharing import Occurrences, condensed, used_again
from annotations.whitebox.splitting import splits


def annotate(
    plan: Relation,
    *,
    output_mode: str = "update",
    lateness: Mapping[str, float] = EMPTY,
    fds: Sequence[FunctionalDependency] = (),
    by_partition: bool = True,
) -> Derivation:
    """Derive the path from each source of `plan` to its output.

    `output_mode` is Spark's (`append`, `update`, `complete`); `lateness` promises for a source that
    no record is more than so many seconds of event time behind the newest; `fds` hold for the
    attributes of all sources. Gates are such that the plan can be run partition by partition,
    unless `by_partition` is False: rules of Bloom are never run, groups alone decide there, and a
    table may stand for facts of the inputs.
    Never raises: what is not known is `OW[*]`, with the reason.
    """
    occurrences = Occurrences(plan)
    names = occurrences.names
    context = Context(names, output_mode, lateness, tuple(fds))
    try:
        way = _Pass(plan, context, occurrences, REORDERING if by_partition else {})
        facts = way.facts(plan)
    except RecursionError:
        facts = _unreadable(occurrences, "the query is nested too deeply")
    if any(count > 1 for count in Counter(_places(plan)).values()):
        facts = _unreadable(occurrences, "one node of the plan stands in two places")
    for name, position in facts.mutable:
        text = f"{name} may be changed while the job reads it"
        facts = opaque(facts, "mutable-table", text, position)
    facts = sensitive(facts, *_also_kept(facts, names))
    exposed = [column for column in plan.columns if column in facts.moving]
    facts = sensitive(facts, *facts.raised(exposed))
    facts.fixed = facts.fixed and by_partition
    derivation = _derivation(plan, facts, names, repeats_of(plan, output_mode=output_mode))
    if not by_partition:
        return derivation
    paths = {name: _apart(plan, path, context.fds) for name, path in derivation.paths.items()}
    return replace(derivation, paths=MappingProxyType(paths))


def _also_kept(facts: Facts, names: Mapping[int, Source]) -> Iterator[Effect]:
    """Of what may be too early, that which is no mere request: it is kept as well."""
    stored = {names[occurrence].name for store, _ in facts.stores for occurrence in store}
    for effect in facts.awaiting:
        if any(names[occurrence].name in stored for occurrence in effect.targets):
            text = effect.text.replace(" is kept", " decides, and they come only once")
            yield replace(effect, text=text)


def _places(plan: Relation) -> Iterator[int]:
    """The identities of nodes, one for each place in which a node stands."""
    for node in nodes_of(plan):
        if not isinstance(node, Reuse):
            yield from map(id, inputs_of(node))


def _unreadable(occurrences: Occurrences, reason: str) -> Facts:
    live = frozenset(
        occurrence
        for occurrence in occurrences.of_nodes.values()
        if occurrences.names[occurrence].comes
    )
    facts = Facts(live=live, stores=((live, Evidence("unknown", reason)),))
    return opaque(facts, "unknown", reason, None)


# ---- one rule for each kind of node


class _Pass:
    """One way up through a plan; what stands in several places is gone through once."""

    def __init__(
        self,
        plan: Relation,
        context: Context,
        occurrences: Occurrences,
        reordering: Mapping[type, str],
    ) -> None:
        self.context, self.occurrences, self.reordering = context, occurrences, reordering
        self._inner = frozenset(joining.inner_joins(plan))
        self._shared: dict[int, Facts] = {}

    def facts(self, node: Relation) -> Facts:
        """The facts about the rows of a node."""
        if id(node) not in self.occurrences.shared:
            return self._facts(node)
        if id(node) not in self._shared:
            facts = condensed(self._facts(node), node.columns, self.occurrences)
            self._shared[id(node)] = facts
        return self._shared[id(node)]

    def _facts(self, node: Relation) -> Facts:
        if isinstance(node, Source):
            return _source(node, self.occurrences.of_nodes[id(node)])
        below = [self.facts(source) for source in inputs_of(node)]
        if isinstance(node, Reuse):
            return used_again(node, below[0], self.occurrences)
        if isinstance(node, Join) and id(node) in self._inner:
            node = replace(node, kind=JoinKind.INNER)
        facts = RULES[type(node)](self.context, node, *below)
        return replace(facts, reordered=self.reordering.get(type(node), facts.reordered))


def _source(node: Source, occurrence: int) -> Facts:
    live = frozenset({occurrence} if node.comes else ())
    copied = {column: frozenset({(occurrence, column.name)}) for column in node.columns}
    return Facts(
        live=live,
        asked=live if node.role is Role.REQUEST else frozenset(),
        fixed=not live,
        copies=copied if live else {},
        mutable=((node.name, node.position),) if node.role is Role.MUTABLE else (),
        repeats=node.repeats if live else None,
        assumptions=_staying(node) if node.role is Role.TABLE and node.files else (),
    )


def _staying(node: Source) -> tuple[Assumption, ...]:
    text = f"the files of {node.files} stay as they are, also until the job starts again"
    return (Assumption(text, node.position),)


def _project(context: Context, node: Project, facts: Facts) -> Facts:
    facts = look(facts, *(expression for _, expression in node.outputs))
    projected = replace(facts, copies={}, moving={})
    for column, expression in node.outputs:
        define(projected, column, expression, facts)
    return projected


def _filter(context: Context, node: Filter, facts: Facts) -> Facts:
    for condition in joining.conjuncts(node.condition):
        facts = test_now(facts, condition)
    equal = list(joining.equalities(node.condition))
    pinned = [facts.copies.get(c, frozenset()) for c in joining.constants(node.condition)]
    return replace(
        facts,
        copies=joining.merged(facts, equal),
        pinned=unique((*facts.pinned, *filter(None, pinned))),
    )


def _sort(context: Context, node: Sort, facts: Facts) -> Facts:
    return look(facts, *(key.expression for key in node.keys))


def _sample(context: Context, node: Sample, facts: Facts) -> Facts:
    evidence = Evidence("nondeterministic", "a sample is drawn at random", node.position)
    return replace(facts, chances=unique((*facts.chances, (facts.live, evidence))))


def _generate(context: Context, node: Generate, facts: Facts) -> Facts:
    facts = use(facts, node.generator)
    return replace(facts, copies=facts.copies | dict.fromkeys(node.generated, frozenset()))


def _watermark(context: Context, node: Watermark, facts: Facts) -> Facts:
    marks = []
    for occurrence in sorted(facts.live):
        names = sorted(n for o, n in facts.copies.get(node.column, ()) if o == occurrence)
        marks.append((occurrence, names[0] if names else None, node.delay_s, node.position))
    return replace(facts, watermarks=unique((*facts.watermarks, *marks)))


def _store(context: Context, node: Store, facts: Facts) -> Facts:
    facts = use(facts, *(Ref(column) for column in facts.moving))
    evidence = Evidence("table", f"rows are kept in the table {node.name}", node.position)
    return replace(
        facts,
        asked=frozenset(),
        mixed=False,
        linked=None,
        awaiting=(),
        moving={},
        effects=unique(
            tuple(replace(effect, state=True) for effect in (*facts.effects, *facts.awaiting))
        ),
        repeats=None,
        again=None,
        stores=unique((*facts.stores, (facts.live, evidence))),
    )


def _opaque(context: Context, node: Opaque, *several: Facts) -> Facts:
    facts = both(several)
    facts = use(facts, *(Ref(column) for column in facts.moving))
    construct = "opaque" if node.keys is None else "processor"
    if node.keys:
        facts = by_key(facts, construct, node.reason, node.position, node.keys)
    else:
        facts = opaque(facts, construct, node.reason, node.position)
    evidence = Evidence(construct, node.reason, node.position)
    stores = unique((*facts.stores, (facts.live, evidence))) if node.writes else facts.stores
    chances = facts.chances
    if node.nondeterministic:
        chances = unique((*chances, (facts.live, replace(evidence, construct="nondeterministic"))))
    copies = dict.fromkeys(node.columns, frozenset[tuple[int, str]]())
    assumed = (Assumption(node.assumes, node.position),) if node.assumes else ()
    return replace(
        facts,
        copies=copies,
        moving={},
        stores=stores,
        chances=chances,
        assumptions=unique((*facts.assumptions, *assumed)),
    )


RULES: Final[Mapping[type, Callable[..., Facts]]] = {
    Project: _project,
    Filter: _filter,
    Join: joining.join,
    Aggregate: grouping.aggregate,
    Deduplicate: grouping.deduplicate,
    Union: lambda context, node, *several: joining.union(context, node, list(several)),
    SetOperation: joining.set_operation,
    Window: grouping.window,
    Sort: _sort,
    Limit: grouping.limit,
    Sample: _sample,
    Generate: _generate,
    Watermark: _watermark,
    Store: _store,
    Delete: joining.delete,
    Opaque: _opaque,
}
"""What each kind of node does to what is known of its inputs' rows."""

REORDERING: Final[Mapping[type, str]] = {
    Join: "a join",
    Union: "UNION",
    SetOperation: "a set operation",
    Aggregate: "GROUP BY",
    Deduplicate: "DISTINCT",
    Window: "a window",
    Sort: "a sort or a repartition",
}
"""Nodes whose rows come in any order, whatever that of the records is, and what they are called."""


# ---- what reaches the output


def _derivation(
    plan: Relation, facts: Facts, names: Mapping[int, Source], copies: Copies
) -> Derivation:
    live = {occurrence: names[occurrence] for occurrence in sorted(facts.live)}
    sources = dict.fromkeys(node.name for node in live.values())
    paths = {
        source: _path(source, plan, facts, names, *copies.get(source, (Repeats.CORRUPT, Rows.MANY)))
        for source in sources
    }
    again = facts.repeats or facts.again
    if again is None or not live:
        again = None
    return Derivation(
        paths=MappingProxyType(paths),
        columns=plan.columns,
        repeats=again,
        assumptions=facts.assumptions,
        notes=facts.notes,
    )


def _path(
    source: str,
    plan: Relation,
    facts: Facts,
    names: Mapping[int, Source],
    repeats: Repeats,
    rows: Rows,
) -> DerivedPath:
    mine = frozenset(occurrence for occurrence, node in names.items() if node.name == source)
    effects = [effect for effect in facts.effects if effect.targets & mine]
    gates = [gate_of(effect, names) for effect in effects]
    stores = [evidence for stored, evidence in facts.stores if stored & mine]
    chances = [evidence for seen, evidence in facts.chances if seen & mine or not seen]
    chances += [
        Evidence(
            "nondeterministic",
            f"{effect.text}, and {effect.reordered} below leaves them in any order",
            effect.position,
        )
        for effect in effects
        if effect.reordered
    ]
    shown = [_evidence(effect, gate) for effect, gate in zip(effects, gates, strict=True)]
    thresholds = [evidence for seen, evidence in facts.thresholds if seen & mine]
    return DerivedPath(
        source=source,
        writes=bool(stores),
        gates=unique(tuple(gates)),
        within=_within(effects),
        nondeterministic="; ".join(dict.fromkeys(chance.text for chance in chances)) or None,
        lineage=_lineage(source, plan.columns, facts, names),
        evidence=_in_order([*stores, *thresholds, *shown, *chances]),
        repeats=repeats,
        rows=rows,
    )


def _apart(plan: Relation, path: DerivedPath, fds: tuple[FunctionalDependency, ...]) -> DerivedPath:
    """The path with a gate whose partitions do not meet anywhere else in the query either.

    The groups of one operator lie in partitions of the gate; rows of several partitions may meet in
    another. The gate is then the most of it by which the query splits.
    """
    gate = path.gate
    if gate is None or not gate.attributes:
        return path
    sources = [n for n in nodes_of(plan) if isinstance(n, Source) and n.comes]
    names = sorted(gate.attributes)
    for size in range(len(names), 0, -1):
        for key in combinations(names, size):
            keys = {
                node.name: key for node in sources if {c.name for c in node.columns} >= set(key)
            }
            refusal = splits(plan, keys, fds=fds, broadcast=True) if keys else None
            if size == len(names):
                if refusal is None:
                    return path
                reason = refusal
            elif keys and refusal is None:
                return _narrowed(path, Gate(frozenset(key)), reason)
    return _narrowed(path, Gate(frozenset()), reason)


def _narrowed(path: DerivedPath, gate: Gate, reason: Refusal) -> DerivedPath:
    """The path with a smaller gate, and why."""
    evidence = Evidence("apart", reason.reason, reason.position, gate)
    gates = unique((*path.gates, gate))
    return replace(path, gates=gates, evidence=_in_order([*path.evidence, evidence]))


def _evidence(effect: Effect, gate: Gate) -> Evidence:
    return Evidence(effect.construct, effect.text, effect.position, gate, effect.within)


def _within(effects: Sequence[Effect]) -> Within:
    """A sequence where one of the operators with a gate looks at the order inside of it."""
    sequence = any(effect.within is Within.SEQUENCE for effect in effects)
    return Within.SEQUENCE if sequence else Within.SET


def _lineage(
    source: str, columns: tuple[Column, ...], facts: Facts, names: Mapping[int, Source]
) -> Mapping[str, str]:
    lineage: dict[str, str] = {}
    if facts.fixed:
        return MappingProxyType(lineage)
    live = {occurrence: names[occurrence] for occurrence in facts.live - facts.removing}
    for column in columns:
        copied = attributes_of(facts.copies.get(column, frozenset()), source, live)
        if copied:
            lineage[column.name] = column.name if column.name in copied else min(copied)
    return MappingProxyType(lineage)


def _in_order(evidence: Sequence[Evidence]) -> tuple[Evidence, ...]:
    nowhere = Position("", 0, 0)
    return tuple(sorted(dict.fromkeys(evidence), key=lambda reason: reason.position or nowhere))
