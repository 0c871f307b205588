"""Generated records: small domains, so that they meet; the awkward values of every type.

What is drawn for an attribute is drawn for all interfaces alike, or nothing would ever join.
Records keep the declared functional dependencies, because the analysis relies on them.
"""

from __future__ import annotations

import datetime
import decimal
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from annotations.dependencies import closure
from annotations.vocabulary import FunctionalDependency
from blazes.verify.constants import Constants
from blazes.verify.operators import Operator
from blazes.verify.records import Item, Row

EPOCH: Final = datetime.date(2024, 1, 1)
DOUBLES: Final = (1.0, 0.0, -1.0, 0.1, 0.2, 1e16, -1e16)
"""Among them sums that depend on the order: (1e16 + 1.0) - 1e16 is not (1e16 - 1e16) + 1.0."""
TEXTS: Final = ("a", "b", "c", "", "ä", "日本", "a b", "A")
NUMERALS: Final = ("1", "2", "10")
TIMES: Final = ("2024-01-01T12:00:00", "2024-01-01T03:30:00", "2024-01-02T00:00:00")
SEEN_MAX: Final = 12
"""Values of an attribute that are taken from the data."""
TELLING_MAX: Final = 40
APART: Final = 3
"""Values of an attribute that has to differ between records."""
INTEGERS: Final = (1, 2, 3, 0, -1, -5, 7)
INTEGRAL: Final = {
    "TINYINT": 7,
    "BYTE": 7,
    "SMALLINT": 15,
    "SHORT": 15,
    "INT": 31,
    "INTEGER": 31,
    "BIGINT": 63,
    "LONG": 63,
}
"""Type -> bits besides the sign."""


_TYPE: Final = re.compile(
    r"\s*(interval (?:day|hour|minute|second)(?: to \w+)?|\w+)\s*(?:[<(](.*)[>)])?"
    r"(?:\s*collate\s+\w+)?\s*",
    re.DOTALL | re.IGNORECASE,
)


class NoValues(Exception):  # noqa: N818
    """A type that no values are known of."""


def domain(kind: str, constants: Constants) -> list[Any]:
    """Values of a type, the simplest first.

    >>> domain("INT", Constants(numbers=(100,)))[:4], domain("ARRAY<INT>", Constants())[1]
    ([1, 2, 3, 0], (1,))
    """
    name, inner = split_type(kind)
    if name in INTEGRAL:
        limit = 1 << INTEGRAL[name]
        near = [n + by for n in constants.numbers for by in (0, 1, -1)]
        return [v for v in dict.fromkeys((*INTEGERS, *near)) if -limit <= v < limit]
    match name:
        case "BOOLEAN":
            return [True, False]
        case "FLOAT" | "REAL" | "DOUBLE":
            return list(dict.fromkeys((*DOUBLES, *map(float, constants.numbers))))
        case "DECIMAL" | "NUMERIC" | "DEC":
            scale = int(inner[1]) if len(inner) > 1 else 0
            unit = decimal.Decimal(1).scaleb(-scale)
            return [unit * n for n in INTEGERS]
        case "STRING" | "VARCHAR" | "CHAR":
            return list(dict.fromkeys((*constants.texts, *TEXTS)))
        case "BINARY":
            return [b"a", b"b", b""]
        case "DATE":
            return [EPOCH + datetime.timedelta(days=n) for n in range(3)]
        case "TIMESTAMP" | "TIMESTAMP_NTZ" | "TIMESTAMP_LTZ":
            noon = datetime.datetime(EPOCH.year, EPOCH.month, EPOCH.day, 12)
            return [noon + datetime.timedelta(minutes=n) for n in (0, 1, 59, 60, 1440)]
        case interval if interval.startswith("INTERVAL "):
            return [datetime.timedelta(minutes=n) for n in (0, 1, 60, -1, 1440)]
        case "ARRAY":
            some = domain(inner[0], constants)
            return [(), tuple(some[:1]), tuple(some[:2]), (some[0], some[0])]
        case "STRUCT":
            fields = [part.split(":", 1) for part in inner]
            lists = [domain(of, constants) for _, of in fields]
            return [tuple(values[n % len(values)] for values in lists) for n in range(3)]
    raise NoValues(kind)


def split_type(kind: str) -> tuple[str, list[str]]:
    """The name of a type and what is in its brackets.

    >>> split_type("decimal(10, 2)"), split_type("MAP<STRING, ARRAY<INT>>")
    (('DECIMAL', ['10', '2']), ('MAP', ['STRING', 'ARRAY<INT>']))
    >>> split_type("string collate UTF8_LCASE"), split_type("INTERVAL DAY TO SECOND")
    (('STRING', []), ('INTERVAL DAY TO SECOND', []))
    """
    match = _TYPE.fullmatch(kind)
    if match is None:
        raise NoValues(kind)
    parts, depth, start = [], 0, 0
    inner = match[2] or ""
    for at, character in enumerate(inner):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append(inner[start:at].strip())
            start = at + 1
    if inner.strip():
        parts.append(inner[start:].strip())
    return match[1].upper(), parts


@dataclass
class Format:
    """Texts of one kind: words, numerals, times, or what the data have.

    Attributes:
        values: the simplest first.
        prior: how often it is drawn as long as nothing is known.
        ran: records with such a text on which the code ran.
        tried: records with such a text.
    """

    values: tuple[str, ...]
    prior: int
    ran: int = 0
    tried: int = 0

    @property
    def weight(self) -> float:
        """How often it is drawn: what mostly makes the code fail becomes rare."""
        return self.prior * (self.ran + 1) / (self.tried + 1)


@dataclass
class Generator:
    """Makes records for an operator's inputs.

    Attributes:
        operator: whose inputs.
        constants: of its code.
        fds: what records have to keep.
        recorded: input interface -> records seen there.
    """

    operator: Operator
    constants: Constants
    fds: Sequence[FunctionalDependency] = ()
    recorded: Mapping[str, Sequence[Row]] = field(default_factory=dict)

    _formats: dict[str, list[Format]] = field(default_factory=dict, repr=False)
    """Attribute of type STRING -> the formats that its texts may have."""

    _telling: list[Sequence[Item]] = field(default_factory=list, repr=False)
    """Records on which the code put something out."""

    def __post_init__(self) -> None:
        kinds: dict[str, str] = {}
        for schema in self.operator.schemas.values():
            for name, kind in schema.items():
                kinds.setdefault(name, kind)
        self._domains = {name: domain(kind, self.constants) for name, kind in kinds.items()}
        for name, kind in kinds.items():
            if kind.strip().upper() == "STRING":
                self._formats[name] = [
                    Format(tuple(self._domains[name]), 8),
                    *(Format(values, 1) for values in (NUMERALS, TIMES)),
                    *(Format(values, 8) for values in (self._seen(name),) if values),
                ]
        self._unset = {
            (interface, name) for interface, names in self.operator.unset.items() for name in names
        }

    def simpler(self, name: str, value: Any) -> list[Any]:
        """Values of an attribute that are simpler than this one, the simplest first."""
        formats = self._formats.get(name, [])
        format_of = next((format for format in formats if value in format.values), None)
        values = format_of.values if format_of else self._domains[name]
        at = values.index(value) if value in values else len(values)
        simple = list(values[: min(at, 3)])
        if format_of and format_of is not formats[0] and (formats[0].ran or not formats[0].tried):
            simple.insert(0, formats[0].values[0])
        return simple

    def items(
        self,
        rng: random.Random,
        count: int,
        *,
        alike: Iterable[str] = (),
        apart: str | None = None,
    ) -> list[Item]:
        """So many records or fewer, over all interfaces.

        Args:
            rng: source of choices.
            count: how many.
            alike: attributes that have one value, not null, in all records.
            apart: an attribute that has several values.
        """
        way = rng.random() if apart is None else 0.5
        if self.recorded and way < 0.3:
            items = self._recorded(rng, count)
        elif self._telling and way > 0.6:
            items = self._varied(rng, rng.choice(self._telling))
        else:
            items = self._generated(rng, count, frozenset(alike), self._deciding(apart))
        fixed = self._fix(items, frozenset(alike))
        return consistent(fixed, self.operator, self.fds)

    def _deciding(self, name: str | None) -> frozenset[str]:
        """The attributes that have to differ between records for this one to differ."""
        if name is None:
            return frozenset()
        return frozenset(
            attribute for attribute in self._domains if name in closure((attribute,), self.fds)
        )

    def _generated(
        self, rng: random.Random, count: int, alike: frozenset[str], apart: frozenset[str]
    ) -> list[Item]:
        pools = self._pools(rng, alike, apart)
        items = []
        repeats = self._repeats(rng)
        for _ in range(count):
            interface = rng.choice(self.operator.interfaces)
            turn = rng.randrange(APART)
            row = tuple(
                None
                if (interface, name) in self._unset
                else pools[name][turn % len(pools[name])]
                if name in apart
                else rng.choice(pools[name])
                for name in self.operator.schemas[interface]
            )
            times = rng.choice(repeats) if interface in self.operator.writes else 1
            items.append(Item(interface, row, times))
        return items

    def _pools(
        self,
        rng: random.Random,
        alike: frozenset[str] = frozenset(),
        apart: frozenset[str] = frozenset(),
    ) -> dict[str, list[Any]]:
        """Attribute -> the few values that it has in a case.

        Some cases are dense, so that records agree in most attributes; some are pointed, at the
        values that the code names.
        """
        dense, pointed = rng.random() < 0.4, rng.random() < 0.4
        sizes = (1, 1, 1, 2) if dense else (1, 2, 2, 3)
        pools = {}
        for name, domain_of in self._domains.items():
            values: Sequence[Any] = domain_of
            formats = self._formats.get(name)
            if formats:
                values = rng.choices(formats, [format.weight for format in formats])[0].values
            named = values[len(INTEGERS) :] if isinstance(values[0], int) else values[:1]
            size = 1 if name in alike else rng.choice(sizes)
            if name in apart:
                pool = list(values[:APART])
            elif named and rng.random() < (0.7 if pointed else 0.2):
                pool = rng.sample(named, min(size, len(named)))
            elif rng.random() < 0.5:
                pool = list(values[:size])
            else:
                pool = rng.sample(values, min(size, len(values)))
            if name not in alike and rng.random() < 0.15:
                pool.append(None)
            pools[name] = pool
        return pools

    def _varied(self, rng: random.Random, telling: Sequence[Item]) -> list[Item]:
        """Records on which the code put something out, with a few other values."""
        items, pools = list(telling), self._pools(rng)
        for _ in range(rng.randrange(4)):
            place = rng.randrange(len(items))
            item = items[place]
            column, name = rng.choice(list(enumerate(self.operator.schemas[item.interface])))
            if (item.interface, name) not in self._unset:
                items[place] = item.replaced(column, rng.choice(pools[name]))
        return items

    def _seen(self, name: str) -> tuple[str, ...]:
        """Values of an attribute in the recorded records."""
        seen: dict[str, None] = {}
        for interface, rows in self.recorded.items():
            columns = list(self.operator.schemas[interface])
            if name in columns:
                at = columns.index(name)
                seen.update((row[at], None) for row in rows if row[at] is not None)
        return tuple(list(seen)[:SEEN_MAX])

    def learn(self, items: Sequence[Item], *, ran: bool, productive: bool) -> None:
        """Remember whether the code ran on these records or failed, and put something out."""
        if productive and len(self._telling) < TELLING_MAX:
            self._telling.append(items)
        for item in items:
            for name, value in zip(self.operator.schemas[item.interface], item.row, strict=True):
                for format in self._formats.get(name, ()):
                    if value in format.values:
                        format.ran += ran
                        format.tried += 1

    def _repeats(self, rng: random.Random) -> Sequence[int]:
        """How often records may come: mostly once; sometimes near a threshold of the code."""
        if rng.random() < 0.25 and self.constants.counts:
            return (1, rng.choice(self.constants.counts))
        return (1, 1, 1, 2, 3) if rng.random() < 0.3 else (1,)

    def _recorded(self, rng: random.Random, count: int) -> list[Item]:
        """Records that were seen, most of them about the same thing as a first one."""
        places = [name for name in self.operator.interfaces if self.recorded.get(name)]
        first = rng.choice(self.recorded[places[0]])
        about = set(first) - {None, True, False}
        items = []
        for _ in range(count):
            interface = rng.choice(places)
            rows = self.recorded[interface]
            sample = rng.sample(rows, min(len(rows), 12))
            row = max(sample, key=lambda candidate: len(about & set(candidate)) + rng.random())
            items.append(Item(interface, row))
        return items

    def _fix(self, items: list[Item], alike: frozenset[str]) -> list[Item]:
        """The records with one value for each attribute that has to be alike."""
        values: dict[str, Any] = {}
        fixed = []
        for item in items:
            for column, name in enumerate(self.operator.schemas[item.interface]):
                if name in alike:
                    value = item.row[column]
                    if value is None:
                        value = self._domains[name][0]
                    item = item.replaced(column, values.setdefault(name, value))
            fixed.append(item)
        return fixed


def consistent(
    items: Iterable[Item], operator: Operator, fds: Sequence[FunctionalDependency]
) -> list[Item]:
    """The records that keep the dependencies; requests once each.

    Where a record breaks a dependency of an earlier one it takes that one's value, and is left out
    if it then breaks another.
    """
    directed = [(sorted(fd.determinant), sorted(fd.dependent)) for fd in fds]
    directed += [(b, a) for (a, b), fd in zip(directed, fds, strict=True) if fd.injective]
    known: list[dict[tuple[Any, ...], tuple[Any, ...]]] = [{} for _ in directed]
    lawful: list[Item] = []
    for item in items:
        columns = {name: n for n, name in enumerate(operator.schemas[item.interface])}
        usable = [
            (number, rule)
            for number, rule in enumerate(directed)
            if columns.keys() >= {*rule[0], *rule[1]}
        ]
        row = list(item.row)
        for number, (left, right) in usable:
            value = known[number].get(tuple(row[columns[name]] for name in left), ())
            for name, to in zip(right, value, strict=False):
                row[columns[name]] = to
        item = Item(item.interface, tuple(row), item.times)
        values = {name: row[n] for name, n in columns.items()}
        pairs = [
            (number, tuple(values[name] for name in left), tuple(values[name] for name in right))
            for number, (left, right) in usable
        ]
        if any(known[number].get(one, other) != other for number, one, other in pairs):
            continue
        if operator.writes and item.interface in operator.reads and item in lawful:
            continue  # two equal requests to a state are one request
        for number, determinant, dependent in pairs:
            known[number][determinant] = dependent
        lawful.append(item)
    return lawful
