"""Who reads whom in a module: cycles, collections that persist, facts that come a step later.

A rule `<=` holds within a timestep; `<+`, `<+-` and `<-` take effect in the next one, `<~` some
time later. A cycle of rules within a timestep may not go through an operation that new facts can
refute (BLZ092, Bud calls it unstratifiable); later steps may see what was refuted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from annotations.diagnostics import Findings
from annotations.whitebox.bloom.modules import Module, ModuleRule


@dataclass(frozen=True, slots=True)
class Edge:
    """A rule makes `target` of `source`."""

    source: str
    target: str
    rule: ModuleRule
    refutable: bool

    @property
    def later(self) -> bool:
        """True where it takes effect in a later timestep."""
        return self.rule.operator != "<="


class Cycles:
    """The graph of a module's rules."""

    def __init__(self, module: Module, out: Findings) -> None:
        self.module = module
        self.edges = [edge for rule in module.rules for edge in _edges(module, rule)]
        self._giving = [edge for edge in self.edges if edge.rule.operator != "<-"]
        """Without those that only take facts away."""
        self._kept = frozenset(rule.target for rule in module.rules if _identity(module, rule))
        """Scratches that hand their facts on to the next timestep, and so keep them."""
        into: dict[str, set[str]] = {}
        for edge in self.edges:
            if edge.source not in module.inputs:
                into.setdefault(edge.target, set()).add(edge.source)
        self._reach = {name: _reachable(name, into) for name in module.collections}
        """The collections that a collection is made of, inputs aside."""
        self.recursive = frozenset(name for name, seen in self._reach.items() if name in seen)
        self._late: list[int | None] = []
        self._check(out)

    def rules_of(self, name: str) -> tuple[ModuleRule, ...]:
        """The rules of a collection, without the one that only keeps it."""
        return tuple(
            rule for rule in self.module.rules_of(name) if not _identity(self.module, rule)
        )

    def persistent(self, name: str) -> bool:
        """True where the facts of a collection stay."""
        collection = self.module.collections[name]
        return collection.persistent or collection.lattice or name in self._kept

    def reached(self, name: str) -> frozenset[str]:
        """The inputs that a collection is made of."""
        seen = self._reach[name] | {name}
        outside = set(self.module.inputs)
        return frozenset(
            edge.source for edge in self._giving if edge.target in seen and edge.source in outside
        )

    def sources_of(self, name: str) -> tuple[frozenset[str], frozenset[str]]:
        """The inputs that reach a collection through a table, and those that reach it without."""
        asked: set[str] = set()
        seen: set[str] = set()
        todo = [] if self.persistent(name) else [name]
        outside = set(self.module.inputs)
        while todo:
            target = todo.pop()
            for edge in self._giving:
                if edge.target != target or edge.source in seen:
                    continue
                if edge.source in outside:
                    asked.add(edge.source)
                elif not self.persistent(edge.source):
                    seen.add(edge.source)
                    todo.append(edge.source)
        every = self.reached(name)
        through = {
            source
            for table in (*self._reach[name], name)
            if self.persistent(table)
            for source in self.reached(table)
        }
        return frozenset(every & through) | (every - asked), frozenset(asked)

    def unread(self, name: str) -> str | None:
        """Why the rules of a collection cannot be followed; None where they can."""
        if name not in self.recursive or self.persistent(name):
            return None
        inner = {name} | {
            other
            for other in self._reach[name]
            if name in self._reach[other] and not self.persistent(other)
        }
        for edge in self.edges:
            if edge.later and edge.source in inner and edge.target in inner:
                return "a cycle through `<+` hands facts on, so that the number of steps counts"
        return None

    # ---- steps

    @contextmanager
    def through(self, rule: ModuleRule) -> Iterator[None]:
        """While the source of a rule is read, which may be of an earlier timestep."""
        later = {"<=": 0, "<+": 1}.get(rule.operator)
        kind = self.module.collections[rule.target].kind
        if self.persistent(rule.target) or kind in ("channel", "output", "stdio"):
            later = 0
        self._late.append(later)
        try:
            yield
        finally:
            self._late.pop()

    @property
    def step(self) -> int | None:
        """How many timesteps ago what is read now came; None where that is not fixed."""
        if None in self._late:
            return None
        return sum(late or 0 for late in self._late)

    # ---- checks

    def _check(self, out: Findings) -> None:
        instant: dict[str, set[str]] = {}
        for edge in self.edges:
            if not edge.later:
                instant.setdefault(edge.source, set()).add(edge.target)
        for edge in self.edges:
            if edge.later or not edge.refutable:
                continue
            if edge.source in {edge.target} | _reachable(edge.target, instant):
                message = (
                    f"`{edge.target}` depends on what `{edge.source}` does not hold, and "
                    f"`{edge.source}` on `{edge.target}`, within one timestep"
                )
                remedy = "Let one rule of the cycle take effect in the next timestep: `<+`."
                out.add("BLZ092", message, edge.rule.position, remedy)


def _reachable(name: str, steps: Mapping[str, set[str]]) -> frozenset[str]:
    """Collection -> those that one step or more lead to."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        new = steps.get(todo.pop(), set()) - seen
        seen |= new
        todo += new
    return frozenset(seen)


def _edges(module: Module, rule: ModuleRule) -> Iterator[Edge]:
    for name, refutable in module.read_by(rule).items():
        yield Edge(name, rule.target, rule, refutable or rule.operator in ("<-", "<+-"))


def _identity(module: Module, rule: ModuleRule) -> bool:
    """`s <+ s`: the facts of a scratch are handed on."""
    return rule.operator == "<+" and module.named(rule.source, rule.scope) == rule.target
