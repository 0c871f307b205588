"""Changes of a job between two starts: what each means for the state that is there.

`changes` compares what the state depends on (`flux_runtime.spark.fingerprint`) as it was at the
last start with what it is now, and with what the state holds at this moment. Each change *goes on*,
with what follows from it, or is *refused*, with the reason and the remedy; a job starts only if all
of them go on. The rule is one: what one text of a component began, no other text ends. A record, a
sealed partition and an answer are of one text each. An aggregate is never finished, and stays with
the text that it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from flux_runtime.observe.gates import BUFFER, CHECKPOINT, REQUESTS, UNITS
from flux_runtime.spark.context import file_name
from flux_runtime.spark.ends.retention import units_behind
from flux_runtime.spark.ends.source import FILE_FORMATS
from flux_runtime.spark.feed import Feed
from flux_runtime.spark.fingerprint import Fingerprint
from flux_runtime.spark.function_text import columns_of_ddl, is_narrow, may_read
from flux_runtime.spark.job import Job
from flux_runtime.spark.units import FluxUnit, NativeUnit, SealUnit, StatefulUnit, Unit

GO_BACK: Final = (
    "go back to that plan, or start afresh with --fresh, which deletes the state and its results"
)
RELEASE_FIRST: Final = (
    "run the plan before until it waits for no partition (`blazes seals` lists them), and change "
    "it then; or start afresh with --fresh, which deletes the state and its results"
)

TEXTS: Final = frozenset({"function", "inputs", "modules", "partial"})
"""Fields of a unit that are texts of functions; of `inputs`, all but who feeds which interface."""
NOTHING: Final = frozenset({"channel", "stateless"})
"""Fields of a unit that nothing depends on by themselves."""
RUNS_ON: Final[Mapping[str, str]] = {
    "sites": "its partitions are spread over the new number; the order and their states stay",
    "copies": "the order and the kept states are those of any number of copies",
}
"""Field of a unit -> what follows where it changes and the unit goes on."""
OF_PLAN: Final[Mapping[str, str]] = {
    "kind": "it runs in another way, on a state of another form",
    "key": "what is buffered is counted and released by the old key",
    "renamed": "what is buffered is counted and released by the old key",
    "forward": "its consumers know partitions by the old key",
    "output_mode": "Spark does not take the state of one output mode for another",
    "watermark": "the state that was let go of followed the old watermark",
    "monotone": "what it has put out followed the old rule",
    "changed_by": "what it has put out followed the old rule",
    "order_by": "what it has put out followed the old order",
    "replicas": "each replica has a state of its own",
    "partitions": "its records are spread over that many partitions for the life of the state",
    "steps": "the sites keep what the old text made",
}
"""Field of a unit -> why it cannot change."""
OF_SOURCE: Final[Mapping[str, str]] = {
    "format": "how far it has been read is written down for the old format",
    "producer": "partitions are counted by the old column",
    "punctuation": "partitions are counted by the old punctuation",
    "id": "partitions are counted without repeats of the old id",
    "value": "records were read from other parts of the messages",
}
"""Field of a source -> why it cannot change while a unit goes on that reads it."""
OF_POSITION: Final = frozenset({"subscribe", "subscribepattern", "assign"})
"""Options that offsets belong to, in lower case."""
AT_FIRST: Final = frozenset({"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"})
"""Options that say where a source begins that has not been read, in lower case."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a source, unit, sink or loop.

    Args:
        name: `unit Count.counts`.
        what: what is another one: `another function`.
        goes_on: whether the job goes on from its state after it.
        because: what follows from it, or why the job cannot go on.
        remedy: how to go on instead; empty where it goes on.
    """

    name: str
    what: str
    goes_on: bool
    because: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.name}: {self.what}; {self.because}"
        return text if self.goes_on else f"{text}. To do: {self.remedy}"

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "name": self.name,
            "what": self.what,
            "goes_on": self.goes_on,
            "because": self.because,
            "remedy": self.remedy,
        }


def changes(then: Fingerprint, now: Fingerprint, job: Job, state: Path) -> list[Change]:
    """All changes since the last start, those that are refused first.

    Args:
        then: the fingerprint that the state was last used with.
        now: that of the job.
        job: whose channels are assigned.
        state: the state folder.
    """
    changes = list(Comparison(then, now, job, state).all())
    return sorted(changes, key=lambda change: (change.goes_on, change.name))


@dataclass(frozen=True, slots=True)
class UnitState:
    """The content of a unit's part of the state folder."""

    folder: Path

    @property
    def exists(self) -> bool:
        """Whether the unit has run."""
        return self.folder.is_dir()

    @property
    def of_spark(self) -> bool:
        """Whether Spark keeps a state for its query."""
        stores = self.folder / CHECKPOINT / "state"
        return stores.is_dir() and any(stores.iterdir())

    @property
    def in_flight(self) -> bool:
        """Whether Spark has planned a micro-batch that it has not committed."""
        checkpoint = self.folder / CHECKPOINT
        return _newest(checkpoint / "offsets") > _newest(checkpoint / "commits")

    @property
    def requests(self) -> bool:
        """Whether requests wait for partitions."""
        return any(_visible(of_input) for of_input in _visible(self.folder / REQUESTS))

    def buffered(self, origin: str) -> frozenset[str] | None:
        """The columns that all buffered records of an origin have; None: nothing is buffered."""
        columns: frozenset[str] | None = None
        for chunk in _visible(self.folder / BUFFER / file_name(origin)):
            for file in sorted(chunk.glob("*.parquet"))[:1]:
                names = frozenset(pq.read_schema(file).names)
                columns = names if columns is None else columns & names
        return columns


class Comparison:
    """Two fingerprints, the job of the second one, and the state of the first."""

    def __init__(self, then: Fingerprint, now: Fingerprint, job: Job, state: Path) -> None:
        self.then, self.now, self.job, self.state = then, now, job, state
        self.mixed: dict[str, str] = {}
        """Unit -> the unit before it whose rows are of two texts."""

    def all(self) -> Iterator[Change]:
        """The changes, in no order."""
        for name in sorted(self.then.keys() | self.now.keys()):
            kind, _, of = name.partition(" ")
            if kind == "sink":
                yield from self._sink(name, of)
            elif kind == "loop" and name in self.then and self.then.get(name) != self.now.get(name):
                change = "another one" if name in self.now else "it is gone"
                yield _refused(name, change, "the units around it keep what went through it")
        yield from self._units()
        for name in self.job.sources:
            yield from self._source(f"source {name}", name)

    # ---- units

    def _units(self) -> Iterator[Change]:
        for name in self.then:
            if name.startswith("unit ") and name not in self.now:
                yield Change(name, "it is gone", True, "its state stays, unused; so do its results")
        for unit in self.job.units.values():
            name = f"unit {unit.name}"
            if name not in self.then:
                yield self._new(name, unit)
                continue
            differences = list(self._unit(name, unit))
            yield from differences
            if any(change.goes_on and change.what in _TEXT_CHANGES for change in differences):
                self.mixed[unit.name] = unit.name
        yield from self._behind()

    def _new(self, name: str, unit: Unit) -> Change:
        if self._state_of(unit).exists:
            because = "there was one of that name before, whose state has missed what came since"
            return _refused(name, "it is new", because, f"give it another name, or {GO_BACK}")
        fed_by = [u.name for _, feed in unit.inputs() for u in units_behind(feed)]
        if old := sorted({unit_name for unit_name in fed_by if f"unit {unit_name}" in self.then}):
            because = f"what {', '.join(old)} has put out until now is not kept for it"
            return _refused(name, "it is new", because)
        return Change(name, "it is new", True, "it reads its sources from where they begin")

    def _unit(self, name: str, unit: Unit) -> Iterator[Change]:
        then, now = self.then[name], self.now[name]
        changed = sorted(
            field
            for field in then.keys() & now.keys()
            if then[field] != now[field] and field not in NOTHING
        )
        if "kind" in changed:
            yield _refused(name, "another kind", OF_PLAN["kind"])
            return
        for field in changed:
            if field in OF_PLAN:
                yield _refused(name, f"another {field}", OF_PLAN[field])
            elif field in RUNS_ON:
                yield Change(name, f"another {field}", True, RUNS_ON[field])
        if "inputs" in changed and _origins(then["inputs"]) != _origins(now["inputs"]):
            because = "its state says how far the old ones have been read"
            yield _refused(name, "other inputs", because)
        elif texts := sorted(TEXTS & {*changed}):
            yield self.text(name, unit, then, now, texts)

    def text(
        self, name: str, unit: Unit, then: Mapping[str, Any], now: Mapping[str, Any], of: list[str]
    ) -> Change:
        """Another text of a unit's functions."""
        state = self._state_of(unit)
        change = _TEXT if {"function", "partial"} & {*of} else _TEXT_BEFORE
        if now.get("channel") and not then.get("channel", True) and state.in_flight:
            because = "a micro-batch is on its way to several places, and may be in one of them"
            remedy = f"run the plan before with --available-now, and change it then; or {GO_BACK}"
            return _refused(name, change, because, remedy)
        match unit:
            case NativeUnit(stateless=True) if not state.of_spark:
                return Change(
                    name,
                    change,
                    True,
                    "records that are read from now on go through the new text; results of those "
                    "before stay as they are",
                )
            case SealUnit():
                return self._sealed_text(name, change, unit, then, now)
            case NativeUnit():
                because = "Spark's state holds what the old text made"
            case StatefulUnit():
                because = "what it keeps and has put out is of the old text"
            case _:
                because = "the sites keep what the old text made"
        return _refused(name, change, because)

    def _sealed_text(
        self,
        name: str,
        change: str,
        unit: SealUnit,
        then: Mapping[str, Any],
        now: Mapping[str, Any],
    ) -> Change:
        state = self._state_of(unit)
        buffered = {origin: state.buffered(origin) for origin in unit.waiting()}
        first = [(of["partial"] or [None])[0] for of in (then, now)]
        if first[0] != first[1] and any(of is not None for of in buffered.values()):
            because = "partial aggregates of the old text are buffered"
            return _refused(name, change, because, RELEASE_FIRST)
        asking = {interface for interface, feeds in unit.reads.items() if feeds}
        before, after = ([i for i in of["inputs"] if i[0] in asking] for of in (then, now))
        if before != after and state.requests:
            because = "requests wait that went through the old text"
            return _refused(name, change, because, RELEASE_FIRST)
        if unit.partial is None:
            for feed in (feed for feeds in unit.waits.values() for feed in feeds):
                missing = self.not_buffered(feed, buffered[feed.origin.name])
                texts = [step.apply for step in feed.transforms]
                if read := may_read([*texts, unit.fn], missing):
                    because = (
                        f"the new text may read {_names(read)} of {feed.origin.name}, which is not "
                        "buffered, since the old one did not"
                    )
                    return _refused(name, change, because, RELEASE_FIRST)
        return Change(
            name,
            change,
            True,
            "partitions that are released from now on are whole ones of the new text; those before "
            "stay as they are",
        )

    def not_buffered(self, feed: Feed, buffered: frozenset[str] | None) -> frozenset[str]:
        """Columns that an origin had and its buffered records lack; of a unit: any it may have."""
        if buffered is None:
            return frozenset()
        ddl = self.then.get(f"source {feed.origin.name}", {}).get("schema")
        if not ddl:
            return _ANY
        return frozenset(columns_of_ddl(ddl)) - buffered

    def _behind(self) -> Iterator[Change]:
        """Units that keep something of the rows of units whose text is another one."""
        waiting = list(self.mixed)
        while waiting:
            before = waiting.pop(0)
            for unit in self.job.units.values():
                feeds = [f for _, f in unit.inputs() if before in {u.name for u in units_behind(f)}]
                if not feeds or unit.name in self.mixed or f"unit {unit.name}" not in self.then:
                    continue
                self.mixed[unit.name] = before
                waiting.append(unit.name)
                if self._keeps(unit):
                    yield _refused(
                        f"unit {unit.name}",
                        f"rows of another text of {before}",
                        "it keeps what it made of rows of the old one",
                    )

    def _keeps(self, unit: Unit) -> bool:
        """Whether what a unit makes of a row goes into what it makes of later ones."""
        match unit:
            case NativeUnit():
                return not unit.stateless or self._state_of(unit).of_spark
            case SealUnit():
                return False  # its partitions come whole, each of one text
        return True

    # ---- sources

    def _source(self, name: str, of: str) -> Iterator[Change]:
        then, now = self.then.get(name), self.now[name]
        readers = [
            unit
            for unit in self.job.units.values()
            if f"unit {unit.name}" in self.then
            and any(feed.origin.name == of for _, feed in unit.inputs())
        ]
        if then is None or not readers:
            return
        for field, because in OF_SOURCE.items():
            if field == "value" and "options" not in then:  # older states do not say
                continue
            if then.get(field) != now.get(field):
                yield _refused(name, f"another {field}", because)
        yield from self._schema(name, then["schema"], now["schema"], readers)
        if "path" in then and then["path"] != now["path"]:
            yield Change(
                name,
                "another path",
                True,
                "all files there are read, also those that were read at the old path and moved",
            )
        options = then.get("options", now["options"])
        for option in sorted(options.keys() | now["options"].keys()):
            if options.get(option) != now["options"].get(option):
                yield self._option(name, option)

    def _option(self, name: str, option: str) -> Change:
        change = f"another option {option}"
        if option.lower() in OF_POSITION:
            return _refused(
                name, change, "how far it has been read is written down for the old one"
            )
        if option.lower() in AT_FIRST:
            return Change(name, change, True, "it is read on from where it was; this has no effect")
        return Change(name, change, True, "what is read from now on is read with it")

    def _schema(self, name: str, then: str, now: str, readers: Sequence[Unit]) -> Iterator[Change]:
        if then == now:
            return
        if not then or not now:
            yield _refused(name, "another schema", "what is kept of it was read without one")
            return
        before, after = columns_of_ddl(then), columns_of_ddl(now)
        added = [column for column in after if column not in before]
        other = [column for column, of in before.items() if after.get(column) != of]
        other += [column for column in added if after[column].endswith("NOT NULL")]
        names = ", ".join(other or added)
        for unit in readers:
            if other and self._keeps_records(unit):
                change = f"another schema ({names})"
                because = f"{unit.name} keeps records that have the old columns"
                yield _refused(name, change, because)
            elif added and self.keeps_column(unit, name.removeprefix("source ")):
                change = f"a new column ({names})"
                because = f"{unit.name} keeps whole records, which have all columns that there were"
                yield _refused(name, change, because)
        if other:
            because = "records that are read from now on have the new columns"
            yield Change(name, f"another schema ({names})", True, because)
        elif added:
            because = "records that were read before have NULL in it"
            yield Change(name, f"a new column ({names})", True, because)
        else:
            because = "what is read from now on has it; what is kept goes by names"
            yield Change(name, "another order of columns", True, because)

    def _keeps_records(self, unit: Unit) -> bool:
        return self._keeps(unit) or isinstance(unit, SealUnit)

    def keeps_column(self, unit: Unit, origin: str) -> bool:
        """Whether a new column of a source would come into what a unit keeps."""
        for interface, feed in unit.inputs():
            if feed.origin.name != origin:
                continue
            texts = [step.apply for step in feed.transforms]
            match unit:
                case NativeUnit():
                    wide = self._keeps(unit) and not is_narrow([*texts, unit.fn])
                case StatefulUnit():
                    summary = unit.summaries.get(interface)
                    wide = not is_narrow([*texts, *([summary[0]] if summary else [])])
                case FluxUnit():
                    wide = not is_narrow(texts)
                case SealUnit():
                    digest = self.job.sources[origin].punctuation
                    asked = interface in unit.reads and self._state_of(unit).requests
                    digested = digest is not None and digest.digest is not None
                    wide = digested or (asked and not is_narrow(texts))
                case _:
                    wide = True
            if wide:
                return True
        return False

    # ---- sinks

    def _sink(self, name: str, of: str) -> Iterator[Change]:
        then, now = self.then.get(name), self.now.get(name)
        if now is None:
            because = "its rows stay where they are, and it gets no more"
            yield Change(name, "it is gone", True, because)
        elif then is None:
            if any(key.startswith("sink ") for key in self.then):  # older states name none
                units = [feed.origin.name for feed in self.job.sinks[of].feeds]
                if any(f"unit {unit}" in self.then for unit in units):
                    because = "it gets the rows of commits from now on, and none of those before"
                    yield Change(name, "it is new", True, because)
        else:
            moved = then["path"] != now["path"]
            if then["format"] != now["format"] and not moved and now["format"] in FILE_FORMATS:
                yield _refused(
                    name,
                    "another format",
                    f"{now['path']} has files of {then['format']}",
                    f"give it another path, or {GO_BACK}",
                )
            elif then["format"] != now["format"] or moved:
                because = (
                    "it gets the rows of commits from now on; those before stay where they are"
                )
                yield Change(name, "another place", True, because)
            if then["text"] != now["text"]:
                because = "rows of commits from now on go through the new text"
                yield Change(name, _TEXT_BEFORE, True, because)

    def _state_of(self, unit: Unit) -> UnitState:
        return UnitState(self.state / UNITS / file_name(unit.name))


_ANY: Final = frozenset({"*"})
_TEXT: Final = "another text"
_TEXT_BEFORE: Final = "another text of what is before it"
_TEXT_CHANGES: Final = (_TEXT, _TEXT_BEFORE)


def _refused(name: str, change: str, because: str, remedy: str = GO_BACK) -> Change:
    return Change(name, change, False, because, remedy)


def _names(columns: frozenset[str]) -> str:
    return "a column" if columns == _ANY else ", ".join(sorted(columns))


def _origins(inputs: Iterable[Any]) -> list[tuple[str, str]]:
    return [(interface, steps[0]) for interface, steps in inputs]


def _visible(folder: Path) -> list[Path]:
    entries = folder.iterdir() if folder.is_dir() else iter(())
    return sorted(entry for entry in entries if entry.is_dir() and entry.name[0] not in "._")


def _newest(log: Path) -> int:
    names = [entry.name for entry in log.iterdir()] if log.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)
