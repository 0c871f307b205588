"""Values of every plain type of Arrow's that Spark hands over."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

VALUES: Final[dict[Any, list[Any]]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, -1, 0, 1, 127],
    pa.int16(): [-1, 0, 300],
    pa.int32(): [-1, 0, 1, 1 << 30],
    pa.int64(): [-(1 << 63), -1, 0, 1, 1 << 62, (1 << 63) - 1],
    pa.float32(): [0.0, -0.0, 0.5, math.nan, -math.nan, math.inf],
    pa.float64(): [0.0, -0.0, 1.5, math.nan, -math.nan, math.inf, -math.inf],
    pa.decimal128(38, 5): [Decimal("0.00000"), Decimal("1.50000"), Decimal("-1.50000")],
    pa.string(): ["", "a", "b", "ab", "\0", "a\0", "ä\0", "long " * 9],
    pa.binary(): [b"", b"a", b"\0", b"\xff", b"\xff\0"],
    pa.date32(): [date(1, 1, 1), date(1970, 1, 1), date(1970, 1, 2), date(9999, 12, 31)],
    pa.timestamp("us"): [
        datetime(1, 1, 1),
        datetime(1970, 1, 1),
        datetime(1970, 1, 1, 0, 0, 0, 1),
        datetime(2024, 2, 29, 1, 2, 3, 4),
    ],
    pa.timestamp("us", "UTC"): [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
    ],
    pa.time64("ns"): [time(0, 0), time(23, 59, 59, 999999)],
    pa.duration("us"): [timedelta(0), timedelta(days=-1)],
    pa.null(): [],
}
"""Type -> values of it, those that Spark groups together among them."""
