"""A past range, brought in beside a running job: the same plan, once, in a state of its own.

A range is files, or messages of topics, that the running job does not read. It has a name, which
tells its commits, its application in ZooKeeper and its folder (`backfills/NAME` in the data folder)
from those of the job; so each of its rows is committed once, however often it is killed, and the
job is not touched.

Refused, before anything starts, is what cannot be promised: components whose answers are of more
than a record or a sealed partition, sinks that may repeat rows, and what the running job, or
another range for the same sink, brings in as well. The ends of a range of messages are resolved to
offsets once, and kept.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from flux_runtime.observe.gates import CHECKPOINT, UNITS
from flux_runtime.past_range import (
    FOLDER,
    Backfill,
    Offsets,
    absolute,
    ends,
    is_local,
    shared,
    total,
)
from flux_runtime.sealing.storage import LocalStorage, Storage
from flux_runtime.sealing.tracker import Registered
from flux_runtime.spark.ends.kafka_source import KafkaReader, KafkaSourceError, began
from flux_runtime.spark.ends.source import FILE_FORMATS, Source
from flux_runtime.spark.ends.tables import Table
from flux_runtime.spark.job import Job
from flux_runtime.spark.units import NativeUnit, SealUnit, Unit

RANGE: Final = "range.json"
"""In the folder of a range: what it is, and whether all of it is in."""

Seen = tuple[int, ...]
"""Device, inode, size and time of a file: the same for all of its names."""


def restrict(job: Job, backfill: Backfill) -> None:
    """Leave of a job what brings the range in.

    Raises:
        ValueError: the job has no such sources or sinks.
    """
    only = backfill.only
    problems = [
        f"there is no sink {name}; there are {', '.join(sorted(job.sinks))}"
        for name in only
        if name not in job.sinks
    ]
    if only:
        job.sinks = {name: sink for name, sink in job.sinks.items() if name in only}
    needed: set[Any] = set()
    waiting = [feed.origin for sink in job.sinks.values() for feed in sink.feeds]
    while waiting:
        origin: Any = waiting.pop()
        if origin not in needed:
            needed.add(origin)
            if isinstance(origin, Unit):
                waiting += [feed.origin for _, feed in origin.inputs()]
            elif not isinstance(origin, Source):
                problems.append(f"{origin.name} is a cycle, which has no past range")
    job.units = {name: unit for name, unit in job.units.items() if unit in needed}
    job.sources = {name: source for name, source in job.sources.items() if source in needed}
    known = ", ".join(sorted(job.sources))
    for name in backfill.sources.keys() - job.sources.keys():
        problems.append(f"no component of the range reads {name}; they read {known}")
    for name in job.sources.keys() - backfill.sources.keys():
        problems.append(f"where is the range of {name}? Say --source {name}=RANGE")
    if problems:
        raise ValueError("\n".join(sorted(problems)))


def refused(job: Job, backfill: Backfill) -> Iterator[str]:
    """The reasons why a range cannot be brought in once, by a job that was restricted to it."""
    for source in job.sources.values():
        if source.format not in FILE_FORMATS and source.format != "kafka":
            yield (
                f"source {source.name} is of {source.format}: only ranges of files and of topics "
                "are told from what the running job reads. Copy the dataflow's file, with another "
                "`name:` and the range as its source"
            )
    for unit in job.units.values():
        if isinstance(unit, SealUnit):
            for producers in unit.producers.values():
                if isinstance(producers.rule, Registered) and producers.registrations is None:
                    yield (
                        f"{unit.name} waits for producers that were registered with the running "
                        "job. Name a file of `registrations`"
                    )
        elif not isinstance(unit, NativeUnit) or not unit.stateless or unit.watermark:
            yield (
                f"{unit.name}: its answers would be of the range alone, since they are of more "
                "than one record or one sealed partition. Choose other sinks with --only, or start "
                "the job afresh over all that there is"
            )
    for sink in job.sinks.values():
        if not sink.target.exact:
            yield (
                f"sink {sink.name} may repeat rows after a crash. Declare `delivery: once` where "
                "its format has that, or choose other sinks with --only"
            )
        if isinstance(sink.target, Table) and sink.target.key and not backfill.replace:
            yield (
                f"sink {sink.name} has a key: rows of the range replace those that the running job "
                "has written for it, newer ones too. Say --replace if each key is of one record or "
                "one sealed partition"
            )


def overlaps(job: Job, files: Mapping[str, Mapping[str, Seen]], state: Path) -> Iterator[str]:
    """The files of a range that the running job has read, or is going to.

    Args:
        job: restricted to the range.
        files: source -> path -> what tells the file.
        state: of the running job.
    """
    has_read = dict(files_read(state))
    for source, of_range in files.items():
        path = job.own_paths[source]
        known = {} if path is None or not is_local(path) else files_at(path)
        names = {seen: name for name, seen in known.items()}
        for name, seen in of_range.items():
            other = names.get(seen) or has_read.get((Path(name).name, seen[-1] // 10**6))
            if other is not None:
                same = "" if Path(other).resolve() == Path(name).resolve() else f", as {other}"
                yield (
                    f"{name}: the running job reads it, too{same}. Its rows would come twice; a "
                    "range has files of its own"
                )


def messages_read(offsets: Mapping[str, tuple[Offsets, Offsets]], state: Storage) -> Iterator[str]:
    """The messages of a range that the running job has read, or is going to."""
    for source, (begin, end) in offsets.items():
        start = began(state, source) or {}
        for topic, of_topic in end.items():
            for partition, upto in of_topic.items():
                reads_from = start.get(topic, {}).get(partition, 0)
                if begin[topic][partition] < upto > reads_from:
                    yield (
                        f"source {source}: the running job reads partition {partition} of topic "
                        f"{topic} from offset {reads_from} on, and the range goes up to {upto}. "
                        "Its rows would come twice; FROM.. ends where the job began"
                    )


def files_at(pattern: str) -> dict[str, Seen]:
    """The files below a folder, or below whatever a pattern matches; path -> what tells it."""
    result: dict[str, Seen] = {}
    of_root = urlsplit(pattern).path if urlsplit(pattern).scheme else pattern
    for path in Path("/").glob(of_root.lstrip("/")):
        for file in [path] if path.is_file() else path.rglob("*"):
            hidden = any(part[0] in "._" for part in file.relative_to(path).parts)
            with contextlib.suppress(FileNotFoundError):
                if file.is_file() and not hidden:
                    of = file.stat()
                    result[str(file)] = (of.st_dev, of.st_ino, of.st_size, of.st_mtime_ns)
    return result


def files_read(state: Path) -> Iterator[tuple[tuple[str, int], str]]:
    """The files that a job has read: ((name, time in ms), path); a file that is moved keeps both.

    Spark's file sources note them, and merge their notes from time to time while this looks.
    """
    for folder in (state / UNITS).glob(f"*/{CHECKPOINT}/**/sources/*"):
        read = False
        while not read:
            texts, read = [], True
            for note in folder.iterdir():
                if note.name[0] != ".":
                    try:
                        texts.append(note.read_text(encoding="utf-8"))
                    except FileNotFoundError:
                        read = False
        for line in (line for text in texts for line in text.splitlines()):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                path = unquote(urlsplit(entry["path"]).path)
                yield (Path(path).name, int(entry["timestamp"])), path


@dataclass(slots=True)
class Range:
    """The folder of a range, and what is written down there.

    Args:
        backfill: what was asked for.
        data: the job's data folder.
        state: of the running job.
    """

    backfill: Backfill
    data: Path
    state: Path

    def begin(self, job: Job) -> bool:
        """Restrict the job to the range; False: all of it is in already.

        Raises:
            ValueError: the range cannot be brought in once; all reasons.
        """
        restrict(job, self.backfill)
        before = self._read(self.backfill.name)
        problems = list(refused(job, self.backfill))
        files: dict[str, dict[str, Seen]] = {}
        offsets: dict[str, tuple[Offsets, Offsets]] = {}
        places = dict(self.backfill.sources)
        for name, source in sorted(job.sources.items() if not problems else ()):
            try:
                if source.format == "kafka":
                    recorded = None if before is None else before.get("offsets", {}).get(name)
                    offsets[name] = recorded or self._messages(source, places[name])
                    source.begins, source.ends = offsets[name]
                else:
                    places[name] = absolute(places[name])
                    files[name] = _files(name, places[name])
            except (ValueError, KafkaSourceError) as error:
                problems += str(error).splitlines()
        if problems:
            raise ValueError("\n".join(problems))
        now = {
            "version": 1,
            "sources": places,
            "sinks": sorted(job.sinks),
            "files": {name: sorted(of.values()) for name, of in files.items()},
            "offsets": offsets,
            "finished": False,
        }
        for side in ("sources", "sinks"):
            if before is not None and before[side] != now[side]:
                raise ValueError(
                    f"the range {self.backfill.name} has other {side}: {before[side]}, not "
                    f"{now[side]}. Give this one another name"
                )
        listed = json.loads(json.dumps(now["files"]))
        if before is not None and before["finished"] and before["files"] == listed:
            return False
        self._write(now)  # before others are looked at: of two that begin at once, one sees this
        problems = [
            *overlaps(job, files, self.state),
            *messages_read(offsets, LocalStorage(self.state)),
            *self._other_ranges(now),
        ]
        if problems:
            if before is None:
                self._storage.delete(RANGE)
            else:
                self._write(before)
            more = [f"and {len(problems) - 5} more"] if len(problems) > 5 else []
            raise ValueError("\n".join([*problems[:5], *more]))
        return True

    def _messages(self, source: Source, text: str) -> tuple[Offsets, Offsets]:
        """The range of messages of a source, as offsets.

        Raises:
            ValueError: there is none that the running job does not read.
        """
        start = began(LocalStorage(self.state), source.name)
        if start is None:
            raise ValueError(
                f"source {source.name}: where the running job began to read it is not known. Start "
                "the job before its ranges; one that reads by Spark's own Kafka source, or was "
                "begun by a version that did not keep it, has none"
            )
        reader = KafkaReader(source.options)
        try:
            begin, end = reader.between(*ends(text), start)
        except ValueError as error:
            message = "\n".join(f"source {source.name}: {line}" for line in f"{error}".splitlines())
            raise ValueError(message) from None
        finally:
            reader.stop()
        if not total(begin, end):
            raise ValueError(f"source {source.name}: there is no message in {text}")
        return begin, end

    def finish(self) -> None:
        """Note that all of it is in."""
        progress = self._read(self.backfill.name)
        assert progress is not None
        self._write({**progress, "finished": True})

    def _other_ranges(self, now: Mapping[str, Any]) -> Iterator[str]:
        for name in LocalStorage(self.data / FOLDER).names():
            other = None if name == self.backfill.name else self._read(name)
            sinks = {*now["sinks"]} & {*other["sinks"]} if other is not None else set()
            if other is None or not sinks:
                continue
            for source, files in now["files"].items():
                both = {*map(tuple, files)} & {*map(tuple, other["files"].get(source, ()))}
                if both:
                    yield _in_both(source, f"{len(both)} files", name, sinks)
            for source, offsets in now["offsets"].items():
                partitions = shared(offsets, other.get("offsets", {}).get(source, ({}, {})))
                if partitions:
                    yield _in_both(source, f"messages of {', '.join(partitions)}", name, sinks)

    def _read(self, name: str) -> Any:
        data = LocalStorage(self.data / FOLDER / name).read(RANGE)
        return None if data is None else json.loads(data)

    def _write(self, progress: Mapping[str, Any]) -> None:
        self._storage.write(RANGE, json.dumps(progress).encode())

    @property
    def _storage(self) -> LocalStorage:
        return LocalStorage(self.backfill.folder(self.data))


def _files(source: str, path: str) -> dict[str, Seen]:
    """The files of a range; see `files_at`.

    Raises:
        ValueError: there is none, or it is elsewhere.
    """
    if not is_local(path) or re.search(r"[{\\]", path):
        raise ValueError(f"{path}: a folder that is mounted here, or a pattern of * ? [ ]")
    files = files_at(path)
    if not files:
        raise ValueError(f"source {source}: there is no file at {path}")
    return files


def _in_both(source: str, records: str, other: str, sinks: Iterable[str]) -> str:
    return (
        f"source {source}: {records} of the range are in the range {other} as well, for "
        f"{', '.join(sorted(sinks))}. Their rows would come twice"
    )
