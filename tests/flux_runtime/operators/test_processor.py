"""State, time and errors of a StatefulProcessor on a site."""

# ruff: noqa: N802, N803  (the names are Spark's)

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from flux_runtime.operators.components import Component, Components
from flux_runtime.operators.packing import pack, unpack
from flux_runtime.operators.processor import ProcessorPlan, load
from flux_runtime.operators.processor_handle import Handle, TimeMode
from flux_runtime.operators.processor_state import KeyedState, Misuse, size_of_entry
from flux_runtime.operators.processor_values import StateValueError, given_row, plain_row
from flux_runtime.operators.query import CLOCK, tagged
from flux_runtime.operators.rows import number
from flux_runtime.operators.unprocessable import letters_of, results_of
from flux_runtime.protocol.dataflow import InParts

N = StructType().add("n", LongType())
NAME = StructType().add("name", StringType())
COLUMNS = (("key", pa.string()), ("n", pa.int64()))


class Counting(StatefulProcessor):
    """How many records of a key there were, and how many calls of its own; made anew each batch."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", N)
        self.calls = 0

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        held = self.count.get() or (0,)
        self.count.update((held[0] + len(list(rows)),))
        self.calls += 1
        yield Row(key=key[0], n=self.count.get()[0] * 100 + self.calls)


class Expiring(StatefulProcessor):
    """A value, a list and a map that live for 100 ms, and the times that it is told."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", N, ttlDurationMs=100)
        self.list = handle.getListState("list", N, ttlDurationMs=100)
        self.map = handle.getMapState("map", N, N, ttlDurationMs=100)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        now = timerValues.getCurrentProcessingTimeInMs()
        for row in rows:
            if row.n >= 0:
                self.value.update((row.n,))
                self.list.appendValue((row.n,))
                self.map.updateValue((row.n,), (now,))
            seen = [self.value.get(), *self.list.get(), *self.map.iterator()]
            yield Row(key=repr(seen), n=now)


class Wrong(StatefulProcessor):
    """Asks for a state with a time to live, and there is no time."""

    def init(self, handle: Any) -> None:
        handle.getValueState("value", N, 100)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        return iter(())


def flow(kind: type, time: TimeMode = TimeMode.NONE, buckets: int = 1) -> Components:
    plan = ProcessorPlan(
        make=f"{__name__}:{kind.__name__}", key=("key",), columns=COLUMNS, output=COLUMNS, time=time
    )
    made = Component(
        name=kind.__name__,
        buckets=buckets,
        gate=("key",),
        processor=plan,
        interfaces=("records",),
        output=COLUMNS,
    )
    return Components(stages=(made,))


def batch(records: list[tuple[str | None, int]], place: int, clock: int = 0) -> Any:
    table = pa.table(
        [pa.array([k for k, _ in records]), pa.array([n for _, n in records])], ["key", "n"]
    )
    table = table.append_column(CLOCK, pa.array([clock] * len(records)))
    return number(tagged(table, 0), place)


def put_out(rows: Any) -> list[tuple[Any, ...]]:
    return [(row["key"], row["n"]) for row in results_of(rows).to_pylist()]


def test_a_processor_is_made_anew_for_each_batch_and_its_state_stays() -> None:
    operator = flow(Counting).stages[0].instance(None)
    assert put_out(operator.process(batch([("a", 1), ("b", 1), ("a", 1)], 0))) == [
        ("b", 102),
        ("a", 201),
    ]
    assert put_out(operator.process(batch([(None, 1), ("a", 1)], 1))) == [(None, 101), ("a", 302)]


def test_replicas_have_places_and_a_column_of_their_own() -> None:
    plan = flow(Counting).stages[0]
    rows = [plan.instance(replica).process(batch([("a", 1)], 0)) for replica in (1, 2)]
    assert [row["replica"] for part in rows for row in part.to_pylist()] == [1, 2]
    assert len({row["sn_sub"] for part in rows for row in part.to_pylist()}) == 2


def test_a_time_to_live_counts_by_recorded_time_and_what_expired_is_deleted() -> None:
    components = flow(Expiring, TimeMode.PROCESSING)
    operator, other = (components.stages[0].instance(None) for _ in range(2))
    seen = []
    for place, (n, clock) in enumerate([(1, 1000), (2, 1050), (-1, 1099), (-1, 1100), (-1, 1150)]):
        (part,) = components.split(0, batch([("a", n)], place, clock), 1).values()
        other.install_state(unpack(pack(operator.get_state())))
        rows = operator.process(part)
        assert other.process(part) == rows
        seen += [row["key"] for row in results_of(rows).to_pylist()]
    assert seen == [
        "[(1,), (1,), ((1,), (1000,))]",
        "[(2,), (1,), (2,), ((1,), (1000,)), ((2,), (1050,))]",
        "[(2,), (1,), (2,), ((1,), (1000,)), ((2,), (1050,))]",
        "[(2,), (2,), ((2,), (1050,))]",
        "[None]",
    ]
    assert operator.get_state()["keys"] == []
    assert operator.state_size() == 0


def test_time_does_not_go_back() -> None:
    components = flow(Expiring, TimeMode.PROCESSING)
    operator = components.stages[0].instance(None)
    times = []
    for place, clock in enumerate([1000, 900, 1001]):
        (part,) = components.split(0, batch([("a", 1)], place, clock), 1).values()
        times += [row["n"] for row in results_of(operator.process(part)).to_pylist()]
    assert times == [1000, 1000, 1001]


def test_every_partition_is_told_of_every_batch() -> None:
    parts = flow(Expiring, TimeMode.PROCESSING, buckets=3).split(0, batch([("a", 1)], 0, 7), 3)
    assert sorted(part.num_rows for part in parts.values()) == [1, 1, 2]
    ticks = [part.to_pylist()[-1] for part in parts.values()]
    assert [tick[CLOCK] for tick in ticks] == [7, 7, 7]
    assert len({tick["sn_offset"] for tick in ticks}) == 3


def test_what_a_component_cannot_do_is_refused_when_it_is_made() -> None:
    with pytest.raises(
        ValueError,
        match=r"init of .*:Wrong: Misuse: the state value has a time to live of 100 ms",
    ):
        flow(Wrong).stages[0].rehearse()
    with pytest.raises(ValueError, match="no StatefulProcessor"):
        load("collections:OrderedDict")
    with pytest.raises(ValueError, match="names no processor"):
        load(f"{__name__}:Nobody")
    later = flow(Expiring, TimeMode.PROCESSING).stages
    with pytest.raises(ValueError, match="told the time comes first"):
        Components(stages=(*flow(Counting).stages, *later))


def handle(time: TimeMode = TimeMode.NONE) -> tuple[KeyedState, Handle]:
    state = KeyedState()
    state.begin(0)
    return state, Handle(state, time, {"n BIGINT": N})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda h: h.getValueState("", N), "no name"),
        (lambda h: (h.getListState("a", N), h.getValueState("a", N)), "different kinds"),
        (lambda h: h.getValueState("a", "m BIGINT"), "not the one of the job's start"),
        (lambda h: h.getValueState("a", N).get(), "outside of one there are none"),
        (lambda h: h.registerTimer(1), "timers need time"),
        (lambda h: list(h.listTimers()), "timers need time"),
        (lambda h: h.deleteTimer(1), "timers need time"),
        (lambda h: h.getValueState("a", N, 5), "needs time: processing"),
    ],
)
def test_misuse_of_the_handle_is_refused(call: Any, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        call(handle()[1])


def test_a_list_is_not_emptied_by_put_and_states_are_asked_for_in_init() -> None:
    state, made = handle()
    held = made.getListState("list", N)
    made.initializing = False
    state.enter(("a",))
    with pytest.raises(Misuse, match="empty list"):
        held.put([])
    with pytest.raises(Misuse, match="outside of init"):
        made.getListState("other", N)


def test_a_map_without_entries_is_not_there_and_a_state_may_be_deleted() -> None:
    state, made = handle()
    held, value = made.getMapState("map", N, N), made.getValueState("value", "n BIGINT")
    state.enter(("a",))
    held.updateValue((1,), (2,))
    assert repr((held.getValue((1,)), list(held.iterator()))) == "(Row(n=2), [((1,), (2,))])"
    value.update((1,))
    assert held.exists()
    held.removeKey((1,))
    assert not held.exists()
    made.deleteIfExists("value")
    assert (state.keys, state.bytes) == ({}, 0)


def test_event_timers_are_later_than_the_watermark() -> None:
    state, made = handle(TimeMode.EVENT)
    made.watermark = 10
    state.enter(("a",))
    with pytest.raises(ValueError, match="not later than the watermark, 10 ms"):
        made.registerTimer(10)
    made.registerTimer(11)
    assert list(made.listTimers()) == [11]


EVERYTHING = (
    StructType()
    .add("l", LongType())
    .add("f", FloatType())
    .add("d", DoubleType())
    .add("s", StringType())
    .add("b", BinaryType())
    .add("y", DateType())
    .add("t", TimestampType())
    .add("u", TimestampNTZType())
    .add("p", DecimalType(5, 2))
    .add("a", ArrayType(IntegerType()))
    .add("m", MapType(StringType(), NAME))
    .add("q", N)
)


def test_values_come_back_as_spark_gives_them() -> None:
    at = datetime.datetime(2024, 1, 2, 3, 4, 5, 678)
    given = (
        2**63 - 1,
        0.1,
        math.inf,
        "ß",
        bytearray(b"\x00"),
        at.date(),
        at.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        at,
        Decimal("1.255"),
        [1, None],
        {"k": ("n",)},
        {"n": 1},
    )
    plain = plain_row(given, EVERYTHING, "v")
    assert unpack(pack(plain)) == plain
    back = given_row(plain, EVERYTHING)
    assert back[1] == pytest.approx(0.1)
    assert back[1] != 0.1
    assert back[4] == b"\x00"
    assert back[6] == at - datetime.timedelta(hours=1)
    assert back[8:] == (Decimal("1.26"), [1, None], {"k": Row(name="n")}, Row(n=1))
    back[9].append(2)
    assert given_row(plain, EVERYTHING)[9] == [1, None]


@pytest.mark.parametrize(
    ("value", "of", "message"),
    [
        (1, DoubleType(), "v.x is DOUBLE, and is given int 1"),
        (True, LongType(), "v.x is BIGINT, and is given bool True"),
        (2**31, IntegerType(), "v.x is INT, and 2147483648 is not"),
        (1, StringType(), "v.x is STRING, and is given int 1"),
        (Decimal(1000), DecimalType(5, 2), r"v.x is DECIMAL\(5,2\), and is given"),
        (datetime.datetime(2024, 1, 1), DateType(), "v.x is DATE"),
        ([1, "a"], ArrayType(LongType()), r"v.x\[\] is BIGINT, and is given str"),
        ((1, 2), N, "v.x is given 2 values, and has 1 columns"),
    ],
)
def test_values_of_another_type_are_refused(value: Any, of: Any, message: str) -> None:
    with pytest.raises(StateValueError, match=message):
        plain_row((value,), StructType().add("x", of), "v")


def test_a_type_that_no_site_holds_is_refused_by_name() -> None:
    schema = StructType().add("x", ArrayType(CalendarIntervalType()))
    with pytest.raises(StateValueError, match=r"a\.x\[\] is INTERVAL"):
        handle()[1].getValueState("a", schema)


def test_a_value_of_another_type_sets_its_record_aside() -> None:
    operator = flow(Odd).stages[0].instance(None)
    rows = operator.process(batch([("a", 1), ("a", 2), ("b", 3)], 0))
    assert put_out(rows) == [("a", 1), ("b", 3)]
    (letter,) = letters_of(rows)
    assert letter["why"] == "StateValueError: last.n is BIGINT, and is given float 2.0"
    assert letter["record"] == {"key": "a", "n": 2}


class Odd(StatefulProcessor):
    """Keeps even numbers as floats, which they are not."""

    def init(self, handle: Any) -> None:
        self.last = handle.getValueState("last", N)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self.last.update((row.n if row.n % 2 else float(row.n),))
            yield Row(n=row.n, key=key[0])


def test_the_state_of_a_site_s_processor_travels_in_parts() -> None:
    operator, standby = (flow(Counting).stages[0].instance(None) for _ in range(2))
    assert isinstance(operator, InParts)
    assert isinstance(standby, InParts)
    operator.process(batch([("a", 1), ("b", 1)], 0))
    for part in operator.parts():
        standby.install_part(unpack(pack(part)))
    operator.process(batch([("b", 1), ("c", 1)], 1))
    standby.install_state(unpack(pack(operator.rest())))
    assert standby.get_state() == operator.get_state()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 7), st.sampled_from(("set", "delete", "timer", "undo"))),
        st.just("read"),
    ),
    min_size=1,
    max_size=40,
)


@given(st.integers(0, 6), STEPS, STEPS)
def test_parts_and_the_rest_are_the_state(keys: int, steps: list[Any], later: list[Any]) -> None:
    """Keys are written, deleted and become new while their state is read."""
    state, standby = KeyedState(), KeyedState()
    for key in range(keys):
        _stepped(state, key, "set")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("flux_runtime.operators.processor_state.PART_BYTES", 300)
        parts = state.parts()
        for step in steps:
            if step == "read":
                if (part := next(parts, None)) is not None:
                    standby.install_part(unpack(pack(part)))
            else:
                _stepped(state, *step)
        for part in parts:
            standby.install_part(unpack(pack(part)))
    for step in later:
        if step != "read":
            _stepped(state, *step)
    standby.install_state(unpack(pack(state.rest())))
    assert _by_key(standby) == _by_key(state)
    assert standby.bytes == state.bytes
    assert standby.due(100) == state.due(100)


def _by_key(state: KeyedState) -> dict[str, Any]:
    """All of the state; the order of its keys is of no account."""
    content = state.get_state()
    return content | {"keys": dict(content["keys"])}


def _stepped(state: KeyedState, key: int, what: str) -> None:
    state.begin(0)
    state.enter((key,))
    before = state.savepoint()
    ((count,), _) = state.read("count") or ((0,), None)
    size = size_of_entry(((1,), None))
    match what:
        case "set" | "undo":
            state.write("count", ((count + 1,), None), 0 if count else size)
        case "delete":
            state.write("count", None, -size if count else 0)
            for expiry in state.timers():
                state.delete_timer(expiry)
        case "timer":
            state.add_timer(key * 7 + count)
    if what == "undo":
        state.rollback(before)
