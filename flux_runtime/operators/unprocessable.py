"""Records that an operator cannot process: set aside as dead letters, in their place of the order.

A sum that leaves BIGINT, a cast that fails, an error of a Python operator, a record whose windows
have ended. Both copies of a pair are given the same records in the same order, so both set the same
ones aside (DET-1 to DET-4). The dead letters leave with the results: rows whose column
`DEAD_LETTER` is not null, and whose other columns are. A later stage passes them on.

A batch that cannot be processed as a whole is divided until single records are left that cannot be
processed with those that are admitted before them. An error of the machine (memory, files, a
package that is missing) is not one of a record: the other copy need not have it, and this one ends.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from flux_runtime.operators.event_time import LateRecord
from flux_runtime.operators.query import INTERFACE, REPLICA, REPLICA_STEP, TAGS
from flux_runtime.operators.rows import Batch, data_fields, merge, sn_of, with_sn
from flux_runtime.protocol.dataflow import Operator

DEAD_LETTER: Final = "flux_dead_letter"
"""string: of a result null; else why a record could not be processed, and the record (JSON)."""
LETTER_STEP: Final = 1 << 32
"""What a dead letter's discriminator is raised by at every stage: it is like no result's."""
CHECKPOINT_BYTES_MIN: Final = 1 << 20
REASON_MAX: Final = 500
_LETTER_FIELD: Final = pa.field(DEAD_LETTER, pa.string())
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]+")


class OperatorError(Exception):
    """An operator whose results make no sense, whatever the record."""


MACHINE: Final = (MemoryError, OSError, ImportError, OperatorError)
"""Errors that are not of the record."""


class Undoable(Protocol):
    """An operator whose `process` leaves the state as it was where it raises."""

    def refusals(self, batch: Batch) -> list[tuple[int, Exception]]:
        """(place, why) of the records that it would not look at, in their order."""
        ...

    def process(self, batch: Batch) -> Batch:
        """Rows of one batch in, what they lead to out."""
        ...

    def undo(self) -> None:
        """Return to the state before the last `process`."""
        ...

    def is_of_record(self, error: Exception) -> bool:
        """Whether an error is of the records, and so the same in every copy."""
        ...

    def get_state(self) -> Any:
        """See `Operator`."""
        ...

    def install_state(self, state: Any) -> None:
        """See `Operator`."""
        ...

    def state_size(self) -> int:
        """See `Operator`."""
        ...


class DeadLetters:
    """The dead letters of a component, as rows among its results.

    Args:
        name: of the component.
        interfaces: its input interfaces, by number.
        output: (column, Arrow type) of what it puts out.
        replica: number of the replica, from 1; None where there is one instance only.
    """

    def __init__(
        self,
        *,
        name: str,
        interfaces: Sequence[str],
        output: Sequence[tuple[str, Any]],
        replica: int | None = None,
    ) -> None:
        self.name = name
        self.interfaces = tuple(interfaces)
        self.columns = [pa.field(column, of) for column, of in output]
        self.replica = replica

    def apart(self, batch: Batch) -> tuple[Batch, Batch | None]:
        """(records, dead letters of earlier stages, which are passed on)."""
        return _told_apart(batch) if DEAD_LETTER in batch.schema.names else (batch, None)

    def joined(
        self, batch: Batch, results: Batch | None, letters: Sequence[Batch], passed: Batch | None
    ) -> Batch:
        """The rows that a batch leads to: results, its dead letters, those that are passed on."""
        parts = [] if results is None else [_as_results(results)]
        parts += letters
        if passed is not None and passed.num_rows:
            parts.append(self.rows(passed.column(DEAD_LETTER), passed))
        if not parts:
            return self.rows(pa.array([], pa.string()), batch.slice(0, 0))
        return parts[0] if len(parts) == 1 else merge(parts)

    def of_errors(self, records: Batch, refused: Sequence[tuple[int, Exception]]) -> Batch:
        """The records at these places, each with the error that it was set aside for."""
        return self.of(
            records.take(pa.array([place for place, _ in refused])),
            [reason_of(error) for _, error in refused],
            late=[isinstance(error, LateRecord) for _, error in refused],
        )

    def of(self, records: Batch, reasons: Sequence[str], *, late: Sequence[bool] = ()) -> Batch:
        """Records that were set aside, each with its reason, and whether it came too late."""
        names = [field.name for field in data_fields(records.schema) if field.name not in TAGS]
        numbers = records.column(INTERFACE).to_pylist()
        texts = [
            json.dumps(
                {
                    "component": self.name,
                    "interface": dict(enumerate(self.interfaces)).get(number, str(number)),
                    "why": why,
                    "late": is_late,
                    "record": record,
                },
                ensure_ascii=False,
                default=_as_json,
            )
            for number, record, why, is_late in zip(
                numbers,
                _values(records.select(names)),
                reasons,
                late or [False] * len(reasons),
                strict=True,
            )
        ]
        return self.rows(pa.array(texts, pa.string()), records)

    def rows(self, texts: Any, places: Batch) -> Batch:
        """Rows that are dead letters, in the places of these rows."""
        fields, columns = list(self.columns), [pa.nulls(len(texts), f.type) for f in self.columns]
        batch, offset, sub = sn_of(places)
        if self.replica is not None:
            fields.append(pa.field(REPLICA, pa.int32(), nullable=False))
            columns.append(pa.array(np.full(len(texts), self.replica, np.int32)))
            sub = sub + (self.replica - 1) * REPLICA_STEP
        sn = [batch, offset, sub + LETTER_STEP]
        return with_sn([*columns, texts], [*fields, _LETTER_FIELD], sn)


class SettingAside:
    """An operator that sets aside what it cannot process.

    Args:
        inner: what processes the rest.
        letters: how it is set aside.
    """

    def __init__(self, inner: Undoable, letters: DeadLetters) -> None:
        self.inner = inner
        self.letters = letters
        self.get_state = inner.get_state
        self.install_state = inner.install_state
        self.state_size = inner.state_size

    def process(self, batch: Batch) -> Batch:
        """Rows of one batch in, what they lead to out, and the dead letters."""
        records, passed = self.letters.apart(batch)
        admitted: list[int] = []
        refused: list[tuple[int, Exception]] = []
        results = None
        letters = []
        untried = self.inner.refusals(records)
        if untried:
            admissible = np.ones(records.num_rows, bool)
            admissible[[place for place, _ in untried]] = False
            letters.append(self.letters.of_errors(records, untried))
            records = records.filter(pa.array(admissible))
        if records.num_rows:
            try:
                results = self.inner.process(records)
            except Exception as error:
                if not self.inner.is_of_record(error):
                    raise
                self._divide(records, 0, records.num_rows, error, admitted, refused)
                if admitted:
                    results = self.inner.process(records.take(pa.array(admitted)))
        if refused:
            letters.append(self.letters.of_errors(records, refused))
        return self.letters.joined(batch, results, letters, passed)

    def _divide(
        self,
        records: Batch,
        low: int,
        high: int,
        error: Exception,
        admitted: list[int],
        refused: list[tuple[int, Exception]],
    ) -> None:
        """Tell the records from `low` to below `high` apart, which fail after the admitted ones."""
        if high - low == 1:
            refused.append((low, error))
            return
        middle = (low + high) // 2
        for half in ((low, middle), (middle, high)):
            why = self._tried(records, [*admitted, *range(*half)])
            if why is None:
                admitted += range(*half)
            else:
                self._divide(records, *half, why, admitted, refused)

    def _tried(self, records: Batch, places: list[int]) -> Exception | None:
        """Why these cannot be processed together; None where they can. The state stays."""
        try:
            self.inner.process(records.take(pa.array(places)))
        except Exception as error:
            if not self.inner.is_of_record(error):
                raise
            return error
        self.inner.undo()
        return None


class Replayed:
    """An operator of the user's as one whose errors leave no trace.

    An operator that raises may have changed half of its state. So its state is held a second time,
    as it was some batches ago, with these batches; it is taken anew when they have become larger
    than it, and so costs each row about as much as copying it once.
    """

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self._checkpoint: Any = None
        self._since: list[Batch] | None = None
        self._bytes = 0
        self.get_state = operator.get_state
        self.state_size = operator.state_size

    def install_state(self, state: Any) -> None:
        """Replace the state."""
        self._since = None
        self.operator.install_state(state)

    def refusals(self, batch: Batch) -> list[tuple[int, Exception]]:
        """None: it looks at every record."""
        return []

    def process(self, batch: Batch) -> Batch:
        """Rows of one batch in, what they lead to out."""
        limit = max(CHECKPOINT_BYTES_MIN, self.operator.state_size())
        if self._since is None or self._bytes > limit:
            self._checkpoint = copy.deepcopy(self.operator.get_state())
            self._since, self._bytes = [], 0
        try:
            results = self.operator.process(batch)
        except Exception as error:
            if self.is_of_record(error):
                self._restore()
            raise
        self._since.append(batch)
        self._bytes += batch.nbytes
        return results

    def undo(self) -> None:
        """Return to the state before the last `process`."""
        assert self._since
        self._bytes -= self._since.pop().nbytes
        self._restore()

    def _restore(self) -> None:
        self.operator.install_state(copy.deepcopy(self._checkpoint))
        for batch in self._since or []:
            self.operator.process(batch)

    def is_of_record(self, error: Exception) -> bool:
        """Everything but what the machine lacks."""
        return not isinstance(error, MACHINE)


def reason_of(error: Exception) -> str:
    """Why a record was set aside: the error in one line, the same in every process.

    >>> reason_of(ValueError("no <Rate object at 0x7f01>\\nof today"))
    'ValueError: no <Rate object at 0x...>'
    """
    first = next(iter(str(error).splitlines()), "")
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return _ADDRESS.sub("0x...", text)[:REASON_MAX]


def _as_results(results: Batch) -> Batch:
    fields = data_fields(results.schema)
    columns = [results.column(field.name) for field in fields]
    columns.append(pa.nulls(results.num_rows, pa.string()))
    return with_sn(columns, [*fields, _LETTER_FIELD], sn_of(results))


def results_of(batch: Batch) -> Batch:
    """The rows of a batch that are no dead letters, without the column."""
    return _told_apart(batch)[0] if DEAD_LETTER in batch.schema.names else batch


def letters_of(batch: Batch) -> list[dict[str, Any]]:
    """The dead letters of a batch: component, interface, why, late, record."""
    if DEAD_LETTER not in batch.schema.names:
        return []
    return [json.loads(text) for text in batch.column(DEAD_LETTER).drop_null().to_pylist()]


def _told_apart(batch: Batch) -> tuple[Batch, Batch]:
    """(results without the column, dead letters)."""
    letter = batch.column(DEAD_LETTER)
    bare = batch.drop_columns([DEAD_LETTER])
    if letter.null_count == len(letter):
        return bare, batch.slice(0, 0)
    is_letter = letter.is_valid()
    result = pa.array(~is_letter.to_numpy(zero_copy_only=False))
    return bare.filter(result), batch.filter(is_letter)


def _values(rows: Batch) -> list[dict[str, Any]]:
    """The rows: of a text that is no UTF-8 what can be read, and times as text."""
    columns = [_column_values(column) for column in rows.columns]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _column_values(column: Any) -> list[Any]:
    if pa.types.is_string(column.type):
        texts = column.cast(pa.binary()).to_pylist()
        return [None if text is None else text.decode(errors="replace") for text in texts]
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        column = column.cast(pa.string())  # some are beyond what Python has
    return list(map(_with_finite, column.to_pylist()))


def _with_finite(value: Any) -> Any:
    """The value, with numbers that JSON has not as the texts that Spark's `to_json` gives them."""
    match value:
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case dict():
            return {name: _with_finite(part) for name, part in value.items()}
        case list() | tuple():
            return [_with_finite(part) for part in value]
        case _:
            return value


def _as_json(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
