"""How many records a micro-batch has, and a part of it, while its function is called to be read.

What a function does may depend on these and on the number of the micro-batch. Each is a `Counted`,
which notes what the code compares it with: numbers around those are tried as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from annotations.whitebox.connect.grouping import has_aggregate
from annotations.whitebox.following.permitted import plain

MANY: Final = 1_000_003
"""A number of a micro-batch, or of its records, that no code expects."""
_MET_MAX: Final = 8
"""So many numbers that code compares with are tried, the first ones."""
MET: Final[dict[int, None]] = {}
"""Numbers that were compared, or reckoned, with a count."""


class Counted(int):
    """A number that depends on how records are divided into micro-batches."""


def _noting(name: str) -> Callable[[int, Any], Any]:
    of_numbers = getattr(int, name)

    def method(count: int, other: Any) -> Any:
        if isinstance(other, int) and not isinstance(other, Counted):
            MET[int(other)] = None
        result = of_numbers(count, other)
        return Counted(result) if type(result) is int else result

    return method


for _name in ("lt", "le", "gt", "ge", "eq", "ne", "mod", "floordiv", "mul", "add", "sub", "rsub"):
    setattr(Counted, f"__{_name}__", _noting(f"__{_name}__"))
Counted.__hash__ = int.__hash__  # type: ignore[method-assign]


@dataclass(frozen=True)
class Counts:
    """The numbers of a micro-batch that a function is called with."""

    number: int
    whole: int
    """Its records."""
    part: int
    """Records of what the function makes of it, and of tables."""
    batch: str
    """The name of the table that stands for it."""
    empty: list[bytes] = field(default_factory=list)
    """Relations of which the function has heard that they have no records."""

    def of(self, relation: Any) -> int:
        """How many records a relation has."""
        inner = relation
        while inner.WhichOneof("rel_type") in _KEEPING:
            inner = getattr(inner, inner.WhichOneof("rel_type")).input
        is_batch = inner.read.named_table.unparsed_identifier.strip("`") == self.batch
        count = self.whole if is_batch else self.part
        if not count:
            self.empty.append(plain(relation))
        return count

    def is_empty(self, relation: Any) -> bool:
        """Whether a relation has no records because one that it is made of has none."""
        while plain(relation) not in self.empty:
            kind = relation.WhichOneof("rel_type")
            if kind == "project" and any(map(has_aggregate, relation.project.expressions)):
                return False
            if kind not in _KEEPING | {"filter", "project", "deduplicate", "limit", "drop_na"}:
                return False
            relation = getattr(relation, kind).input
        return True


_KEEPING: Final = frozenset(
    {"drop", "hint", "repartition", "repartition_by_expression", "sort", "subquery_alias"}
    | {"to_df", "to_schema", "with_columns", "with_columns_renamed", "collect_metrics"}
)
"""Relations that have as many records as their input."""


def tried(batch: str) -> Iterator[Counts]:
    """The numbers to call a function with: first those of a micro-batch with one record."""
    yield Counts(0, 1, 1, batch)
    yield Counts(MANY, 1, 1, batch)
    yield Counts(0, MANY, MANY, batch)
    yield Counts(0, 0, 0, batch)
    yield Counts(0, MANY, 0, batch)
    near = {number + by: None for number in [*MET][:_MET_MAX] for by in (-1, 0, 1)}
    for count in (number for number in near if number > 1):
        yield Counts(count, 1, 1, batch)
        yield Counts(0, count, 1, batch)
        yield Counts(0, count, count, batch)
