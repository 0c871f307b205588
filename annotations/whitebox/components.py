"""Annotations of a component out of the SQL that computes its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from annotations.dataflow import EMPTY, Path, Position
from annotations.vocabulary import FunctionalDependency, Within
from annotations.whitebox.derivation import Derivation, DerivedPath
from annotations.whitebox.derive import annotate
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import Role
from annotations.whitebox.sql import Place, Query, read


@dataclass(frozen=True, slots=True)
class Output:
    """What was derived of one output of a component."""

    name: str
    query: Query
    derivation: Derivation
    position: Position | None

    @property
    def confluent(self) -> bool:
        """True where no path to the output is order-sensitive or left to chance."""
        return all(
            path.annotation.kind.confluent and path.nondeterministic is None
            for path in self.derivation.paths.values()
        )

    def paths(self) -> tuple[Path, ...]:
        """The paths, as an author would have written them."""
        return tuple(self._path(each) for each in self.derivation.paths.values())

    def _path(self, path: DerivedPath) -> Path:
        at = next((each.position for each in path.evidence if each.position), self.position)
        return Path(
            source=path.source,
            target=self.name,
            annotation=path.annotation,
            within=path.within if not path.annotation.kind.confluent else Within.SET,
            nondeterministic=path.nondeterministic,
            lineage=None if self.query.open else MappingProxyType(dict(path.lineage)),
            position=at,
        )


def reasons(path: DerivedPath) -> tuple[str, ...]:
    """Why the path has its annotation, a sentence for each construct with its line."""
    if not path.evidence:
        return ("each record is treated by itself, and nothing is kept",)
    return tuple(
        f"{each.text} (line {each.position.line})" if each.position else each.text
        for each in path.evidence
    )


def derive_output(
    name: str,
    sql: str,
    inputs: Mapping[str, Input],
    *,
    place: Place | None = None,
    position: Position | None = None,
    output_mode: str = "append",
    lateness: Mapping[str, float] = EMPTY,
    fds: Sequence[FunctionalDependency] = (),
) -> Output:
    """What the query `sql` over `inputs` makes of the output `name`."""
    query = read(sql, inputs=inputs, place=place)
    found = annotate(query.plan, output_mode=output_mode, lateness=lateness, fds=fds)
    return Output(name, query, found, position)


def claimed_requests(paths: Iterable[Path]) -> frozenset[str]:
    """Inputs that the written paths only read with, while others write: they ask, and are gone."""
    paths = tuple(paths)
    writers = {path.source for path in paths if path.annotation.kind.writes}
    readers = {path.source for path in paths if not path.annotation.kind.writes}
    return frozenset(readers - writers) if writers else frozenset()


def role(name: str, requests: Iterable[str]) -> Role:
    """How an input's records come."""
    return Role.REQUEST if name in requests else Role.STREAM
