"""Frames of the resume protocol: what goes out comes back, and no number is beyond its limit."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_lab.checks import contents
from flux_lab.workload import digest_dataflow
from flux_runtime.protocol.vocabulary import END, Shape
from flux_runtime.resume.flow import Flow
from flux_runtime.resume.messages import Ack, Copy, Frame, Resume, UnitRow
from flux_runtime.site import units
from flux_runtime.site.codec import RowsDecoder, RowsEncoder
from flux_runtime.site.units import ACK, HEAD, RESUME, UNIT, put_units, take_units
from flux_runtime.site.wire import LENGTH, Bundles, Kind, Malformed, bundle_length, frames

FLOW = Flow(dataflow=digest_dataflow(Shape(widths=(2, 3, 1))), inputs=((-1,), (0,), (0, 1), (2,)))
"""Stages of two, three and one partitions; the third reads both others."""

numbers = st.integers(1, 2**32 - 1)
batches = st.integers(1, END - 1)
consumers = st.sampled_from([pair for s in FLOW.stages if s >= 0 for pair in FLOW.pairs(s)])
names = st.builds(lambda pair, number: Copy(*pair, number), consumers, numbers)
rows_of = st.none() | st.lists(st.text(max_size=9) | st.none(), max_size=9).map(
    lambda column: pa.record_batch({"t": pa.array(column, pa.string())})
)


@st.composite
def unit_rows(draw: st.DrawFn) -> UnitRow:
    stage = draw(st.integers(0, FLOW.egress))
    slot = draw(st.integers(0, len(FLOW.upstream[stage]) - 1))
    width = len(FLOW.pairs(stage))
    parts = tuple(draw(st.lists(st.integers(0, width - 1), min_size=1, unique=True)))
    made = draw(st.lists(rows_of, min_size=len(parts), max_size=len(parts)))
    return UnitRow(stage, slot, draw(batches), parts, tuple(made))


@st.composite
def resumes(draw: st.DrawFn) -> Resume:
    consumer = draw(names)
    pair = draw(st.sampled_from(FLOW.upstream[consumer.stage]))
    after = draw(st.none() | st.integers(0, END - 1))
    return Resume(consumer, Copy(*pair, draw(numbers)), after)


drawn_frames = st.builds(
    Frame,
    st.integers(0, units.POSITION_MAX),
    st.lists(unit_rows(), max_size=5).map(tuple),
    st.lists(st.builds(Ack, names, st.integers(0, END - 1)), max_size=5).map(tuple),
    st.lists(resumes(), max_size=5).map(tuple),
)


def written(frame: Frame) -> list[tuple[Kind, memoryview]]:
    out = Bundles()
    put_units(frame, RowsEncoder({}), out)
    data = b"".join(map(bytes, out.take()))
    found: list[tuple[Kind, memoryview]] = []
    while data:
        length = bundle_length(data)
        found += frames(memoryview(data)[LENGTH.size : LENGTH.size + length])
        data = data[LENGTH.size + length :]
    return found


def decoded(found: list[tuple[Kind, memoryview]]) -> list[Frame]:
    decoder, result = RowsDecoder(), []
    for kind, body in found:
        if kind is Kind.SCHEMA:
            decoder.schema(body)
        else:
            assert kind is Kind.UNITS
            result.append(take_units(body, decoder, FLOW))
    return result


def flat(rows: tuple[UnitRow, ...]) -> list[Any]:
    return [
        (row.stage, row.slot, row.batch, part, None if unit is None else contents(unit))
        for row in rows
        for part, unit in zip(row.parts, row.units, strict=True)
    ]


@given(drawn_frames)
def test_a_frame_comes_back_as_it_was(frame: Frame) -> None:
    (back,) = decoded(written(frame))
    assert flat(back.units) == flat(frame.units)
    assert (back.position, back.acks, back.resumes) == (frame.position, frame.acks, frame.resumes)


def test_many_rows_take_several_frames_and_what_is_said_comes_behind_them() -> None:
    rows = pa.record_batch({"n": pa.array(range(60_000))})
    ack = Ack(Copy(0, 0, 1), 3)
    frame = Frame(7, tuple(UnitRow(1, 0, n, (0, 2), (rows, None)) for n in range(1, 8)), (ack,))
    found = decoded(written(frame))
    assert len(found) > 2
    assert [unit for one in found for unit in flat(one.units)] == flat(frame.units)
    assert [one.acks for one in found] == [()] * (len(found) - 1) + [(ack,)]
    assert {one.position for one in found} == {7}


UNITED = pa.record_batch({"n": [1, 2]})
VALID = Frame(
    5,
    (UnitRow(2, 4, 9, (0,), (UNITED,)), UnitRow(1, 1, 9, (2,), (None,))),
    (Ack(Copy(3, 0, 6), 9),),
    (Resume(Copy(2, 0, 3), Copy(1, 2, 8), 4),),
)
RECORDS = {"head": HEAD, "unit": UNIT, "empty unit": UNIT, "ack": ACK, "resume": RESUME}
AT = {"head": 0, "unit": 24, "empty unit": 48, "ack": 72, "resume": 88}
LIMITS: dict[tuple[str, int], tuple[int, ...]] = {
    ("head", 0): (-1, units.POSITION_MAX + 1),
    **{("head", field): (2**32 - 1,) for field in (1, 2, 3)},
    **{
        (record, field): values
        for record in ("unit", "empty unit")
        for field, values in enumerate(((-1, 4), (3,), (5,), (-1, 0, END)))
    },
    ("unit", 4): (1,),
    ("unit", 5): (0, 2**32 - 1),
    ("empty unit", 4): (1,),
    ("empty unit", 5): (1, 2**32 - 1),
    **{("ack", field): values for field, values in ((0, (-1, 4)), (1, (1,)), (3, (-1, END)))},
    **{("resume", field): values for field, values in ((0, (-1, 0, 4)), (1, (1,)), (6, (-2, END)))},
    **{("resume", field): values for field, values in ((3, (-1, 2)), (4, (3,)))},
}
"""(record, field) -> values just beyond what it may be; numbers of copies may be any."""
ANY = {("ack", 2), ("resume", 2), ("resume", 5)}


def spoilt(record: str, field: int, value: int) -> list[tuple[Kind, memoryview]]:
    schema, (kind, body) = written(VALID)
    changed = bytearray(body)
    fields = list(RECORDS[record].unpack_from(changed, AT[record]))
    fields[field] = value
    RECORDS[record].pack_into(changed, AT[record], *fields)
    return [schema, (kind, memoryview(changed))]


def test_every_number_has_a_limit() -> None:
    fields = {
        (name, field)
        for name, record in RECORDS.items()
        for field in range(len(record.unpack(bytes(record.size))))
    }
    assert LIMITS.keys() | ANY == fields


@pytest.mark.parametrize(
    ("record", "field", "value"), [(*which, v) for which, values in LIMITS.items() for v in values]
)
def test_a_number_beyond_its_limit_is_refused(record: str, field: int, value: int) -> None:
    assert len(decoded(written(VALID))) == 1
    with pytest.raises(Malformed):
        decoded(spoilt(record, field, value))


@given(st.data())
def test_any_other_bytes_are_refused_or_are_within_the_limits(data: st.DataObject) -> None:
    schema, (kind, body) = written(VALID)
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(changed)) | st.just(len(changed)))
    try:
        (frame,) = decoded([schema, (kind, memoryview(changed[:cut]))])
    except Malformed:
        return
    for row in frame.units:
        assert all(0 <= part < len(FLOW.pairs(row.stage)) for part in row.parts)
        assert FLOW.upstream[row.stage][row.slot]
        assert 0 < row.batch < END
    for copy, done in frame.acks:
        assert copy.pair in FLOW.pairs(copy.stage)
        assert 0 <= done < END
    for consumer, producer, after in frame.resumes:
        assert producer.pair in FLOW.upstream[consumer.stage]
        assert after is None or 0 <= after < END


@given(st.binary(max_size=400))
def test_any_bytes_at_all_are_refused_or_a_frame(body: bytes) -> None:
    try:
        take_units(memoryview(body), RowsDecoder(), FLOW)
    except Malformed:
        return
    (position, *counts) = struct.unpack_from("<qIII", body)
    assert position >= 0
    assert sum(counts) * 16 <= len(body)
