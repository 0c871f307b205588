"""Every kind of relation that is known, and what makes its plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from annotations.whitebox.connect import code, leaves, rows, state
from annotations.whitebox.connect.relations import Converter

CONVERTERS: Final[Mapping[str, Converter]] = {
    **leaves.CONVERTERS,
    **rows.CONVERTERS,
    **state.CONVERTERS,
    **code.CONVERTERS,
}
"""Field of Spark Connect's `Relation` -> what makes the plan of its message."""
