"""What a node costs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Load:
    """What one node has done since it came here.

    Attributes:
        rows: rows received.
        units: units received.
        operator_s: processor time of its operator.
        cpu_s: processor time of all that was done for it, its operator included.
    """

    rows: int = 0
    units: int = 0
    operator_s: float = 0.0
    cpu_s: float = 0.0

    def minus(self, before: Load | None) -> Load:
        """What it has done since then."""
        if before is None:
            return self
        return Load(
            self.rows - before.rows,
            self.units - before.units,
            self.operator_s - before.operator_s,
            self.cpu_s - before.cpu_s,
        )
