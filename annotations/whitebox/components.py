"""Annotations of an output out of the code that computes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from annotations.dataflow import EMPTY, Path, Position, Reason
from annotations.vocabulary import FunctionalDependency, Within
from annotations.whitebox.datatypes import Family
from annotations.whitebox.derivation import Derivation, DerivedPath
from annotations.whitebox.derive import annotate
from annotations.whitebox.ir import Role
from annotations.whitebox.sql import Query
from annotations.whitebox.type_text import schema_text

UNDESCRIBED: Final = frozenset({"BLZ089", "BLZ093"})
"""Codes of Python functions of which nothing is known: not run, and run without success."""
_MAY_BE_TIMES: Final = frozenset({Family.TIMESTAMP, Family.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a component with what was derived of it."""

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

    @property
    def undescribed(self) -> bool:
        """True where a Python function was not run to be read, or could not be read."""
        return self.query.problem is not None and self.query.code in UNDESCRIBED

    @property
    def schema(self) -> Mapping[str, str] | None:
        """The output's columns with their types, `?` where one is not known; None: not known."""
        if self.query.open or self.query.problem is not None:
            return None
        columns = self.derivation.columns
        return {
            column.name: schema_text(column.type) + ("" if column.nullable else " NOT NULL")
            for column in columns
        }

    def read_record_by_record(self) -> str | None:
        """The only input, where each of its records is treated by itself and keeps its times.

        What was promised of the lateness of such an input's records holds of the output's.
        """
        paths = list(self.derivation.paths.values())
        if len(paths) != 1 or self.query.open or self.query.problem is not None:
            return None
        (path,) = paths
        columns = self.derivation.columns
        times = [column.name for column in columns if column.type.family in _MAY_BE_TIMES]
        by_itself = not path.writes and not path.gates and path.nondeterministic is None
        return path.source if by_itself and path.lineage.keys() >= set(times) else None

    def paths(self) -> tuple[Path, ...]:
        """The paths, as an author would have written them."""
        return tuple(self._path(path) for path in self.derivation.paths.values())

    def _path(self, path: DerivedPath) -> Path:
        at = next(
            (evidence.position for evidence in path.evidence if evidence.position), self.position
        )
        lineage = None if self.query.open else MappingProxyType(dict(path.lineage))
        return replace(
            written_path(path, self.name),
            lineage=lineage,
            position=at,
            derived=reasons(path),
            assumed=tuple(Reason(a.text, a.position) for a in self.derivation.assumptions),
            annotated=not self.undescribed,
        )


def written_path(path: DerivedPath, target: str) -> Path:
    """The path to an output with what an author would have to say of it, its lineage aside."""
    return Path(
        source=path.source,
        target=target,
        annotation=path.annotation,
        within=path.within if not path.annotation.kind.confluent else Within.SET,
        nondeterministic=path.nondeterministic,
        repeats=path.repeats,
        rows=path.rows,
    )


def reasons(path: DerivedPath) -> tuple[Reason, ...]:
    """Why the path has its annotation, a reason for each construct that decides."""
    if not path.evidence:
        return (Reason("each record is treated by itself, and nothing is kept"),)
    return tuple(
        dict.fromkeys(Reason(evidence.text, evidence.position) for evidence in path.evidence)
    )


def derive_output(
    name: str,
    query: Query,
    *,
    position: Position | None = None,
    output_mode: str = "append",
    lateness: Mapping[str, float] = EMPTY,
    fds: Sequence[FunctionalDependency] = (),
    by_partition: bool = True,
) -> Output:
    """The output `name` that a query gives."""
    derivation = annotate(
        query.plan,
        output_mode=output_mode,
        lateness=lateness,
        fds=fds,
        by_partition=by_partition,
    )
    return Output(name, query, derivation, position)


def lineage_to_write(
    lineage: Mapping[str, str], outputs: Collection[str], inputs: Collection[str] | None
) -> Mapping[str, str] | None:
    """The lineage as a file has to say it; None where it is the one by equal names.

    `outputs` and `inputs` are the attributes of both ends, `inputs` None where they are not known.

    >>> lineage_to_write({"id": "id"}, ["id", "n"], ["id", "word"])
    >>> lineage_to_write({"id": "id"}, ["id", "n"], ["id", "n"])
    {'id': 'id'}
    """
    lost = set(outputs) - lineage.keys()
    renamed = any(name != copy for name, copy in lineage.items())
    if renamed or (lost if inputs is None else lost & set(inputs)):
        return lineage
    return None


def claimed_requests(paths: Iterable[Path]) -> frozenset[str]:
    """Inputs that the written paths only read with, while others write: they ask, and are gone."""
    paths = tuple(paths)
    writers = {path.source for path in paths if path.annotation.kind.writes}
    readers = {path.source for path in paths if not path.annotation.kind.writes}
    return frozenset(readers - writers) if writers else frozenset()


def role(name: str, requests: Iterable[str]) -> Role:
    """How an input's records come."""
    return Role.REQUEST if name in requests else Role.STREAM
