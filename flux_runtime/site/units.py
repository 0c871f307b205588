"""Frames of the resume protocol as bytes, and back: a table of units, and their rows behind it.

    head      position in the log; how many units, acknowledgements and resumes follow
    units     stage and partition of the consumer, slot of the producer, batch; number of the
              schema and bytes of the rows, 0 if the unit is empty
    acks      copy, batch
    resumes   consumer, producer, batch after which; -1: nothing more
    rows      of one unit after the other, each padded to 8 bytes

All that is read is checked against the dataflow: what has been decoded names stages, partitions
and slots that exist, and numbers within their limits. Whether it makes sense now, the host says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from flux_runtime.protocol.vocabulary import END
from flux_runtime.resume.flow import Flow
from flux_runtime.resume.messages import Ack, Copy, Frame, Resume, UnitRow
from flux_runtime.site.codec import RowsDecoder, RowsEncoder
from flux_runtime.site.wire import ALIGNMENT, BUNDLE_FULL_BYTES, Bundles, Kind, Malformed, Part

HEAD: Final = struct.Struct("<qIIIxxxx")
UNIT: Final = struct.Struct("<hHIqII")
ACK: Final = struct.Struct("<hHIq")
RESUME: Final = struct.Struct("<hHIhHIq")
POSITION_MAX: Final = 1 << 53
NO_MORE: Final = -1
"""In place of the batch after which a consumer wants to receive."""


def put_units(frame: Frame, encoder: RowsEncoder, out: Bundles) -> None:
    """Append a frame, in several if its rows are many.

    Raises:
        TooLarge: the rows of one unit are longer than a bundle may be.
    """
    table, size = bytearray(), 0
    rows: list[Part] = []
    for stage, slot, batch, parts, units in frame.units:
        for part, unit in zip(parts, units, strict=True):
            if unit is None:
                table += UNIT.pack(stage, part, slot, batch, 0, 0)
                continue
            schema = encoder.schema_number(unit.schema, out)
            payload = encoder.payload(unit, schema)
            if size and size + len(payload) > BUNDLE_FULL_BYTES:
                _put(frame.position, table, rows, out)
                table, rows, size = bytearray(), [], 0
            table += UNIT.pack(stage, part, slot, batch, schema, len(payload))
            rows += (payload, bytes(-len(payload) % ALIGNMENT))
            size += len(payload)
    _put(frame.position, table, rows, out, frame.acks, frame.resumes)


def _put(
    position: int,
    table: bytearray,
    rows: list[Part],
    out: Bundles,
    acks: Iterable[Ack] = (),
    resumes: Iterable[Resume] = (),
) -> None:
    acknowledged = [ACK.pack(*copy, done) for copy, done in acks]
    wanted = [
        RESUME.pack(*consumer, *producer, NO_MORE if after is None else after)
        for consumer, producer, after in resumes
    ]
    head = HEAD.pack(position, len(table) // UNIT.size, len(acknowledged), len(wanted))
    out.add(Kind.UNITS, head, table, *acknowledged, *wanted, *rows)


def take_units(body: memoryview, decoder: RowsDecoder, flow: Flow) -> Frame:
    """The frame of a UNITS frame's body.

    Raises:
        Malformed: it is none of this dataflow.
    """
    if len(body) < HEAD.size:
        raise Malformed("units without their head")
    position, *counts = HEAD.unpack_from(body)
    at, tables = HEAD.size, []
    for record, count in zip((UNIT, ACK, RESUME), counts, strict=True):
        tables.append(body[at : at + count * record.size])
        at += count * record.size
    if at > len(body) or not 0 <= position <= POSITION_MAX:
        raise Malformed(f"a frame of {counts} items at position {position} in {len(body)} bytes")
    return Frame(
        position,
        tuple(_rows(tables[0], body[at:], decoder, flow)),
        tuple(_acks(tables[1], flow)),
        tuple(_resumes(tables[2], flow)),
    )


def _rows(
    table: memoryview, rows: memoryview, decoder: RowsDecoder, flow: Flow
) -> Iterator[UnitRow]:
    """Units of one producer and batch that stand side by side, as one row."""
    units: list[tuple[tuple[int, int, int], int, Any]] = []
    at = 0
    for stage, part, slot, batch, schema, size in UNIT.iter_unpack(table):
        _check(flow, stage, part)
        if slot >= len(flow.upstream[stage]) or not 0 < batch < END:
            raise Malformed(f"a unit of batch {batch} in slot {slot} of stage {stage}")
        if schema and not size:
            raise Malformed("the schema of an empty unit")
        end = at + size
        if end + (-size % ALIGNMENT) > len(rows):
            raise Malformed("a unit is longer than its frame")
        units.append(
            ((stage, slot, batch), part, decoder.rows(rows[at:end], schema) if size else None)
        )
        at = end + (-size % ALIGNMENT)
    if at != len(rows):
        raise Malformed(f"{len(rows) - at} bytes behind the rows of a frame")
    for (stage, slot, batch), group in groupby(units, itemgetter(0)):
        _, parts, its = zip(*group, strict=True)
        yield UnitRow(stage, slot, batch, parts, its)


def _acks(table: memoryview, flow: Flow) -> Iterator[Ack]:
    for stage, part, number, done in ACK.iter_unpack(table):
        _check(flow, stage, part)
        if not 0 <= done < END:
            raise Malformed(f"an acknowledgement of batch {done}")
        yield Ack(Copy(stage, part, number), done)


def _resumes(table: memoryview, flow: Flow) -> Iterator[Resume]:
    for stage, part, number, *producer, after in RESUME.iter_unpack(table):
        _check(flow, stage, part)
        source = Copy(*producer)
        if source.pair not in flow.slots[stage] or not NO_MORE <= after < END:
            raise Malformed(f"stage {stage} wants {source.pair} after batch {after}")
        yield Resume(Copy(stage, part, number), source, None if after == NO_MORE else after)


def _check(flow: Flow, stage: int, part: int) -> None:
    """A consumer is a partition of a stage, or the egress."""
    if not 0 <= stage <= flow.last or part >= len(flow.pairs(stage)):
        raise Malformed(f"there is no partition {part} of stage {stage}")
