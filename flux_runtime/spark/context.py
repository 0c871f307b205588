"""The context of a running unit: session, state folders, run folder, registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from pyspark.sql import SparkSession

from flux_runtime.commits.fence import Fence
from flux_runtime.observe.run_folder import RunFolder
from flux_runtime.sealing.storage import Storage, file_name
from flux_runtime.spark.ends.dead_letters import DeadLetters
from flux_runtime.spark.ends.outputs import Output
from flux_runtime.spark.units import Unit
from flux_runtime.zookeeper.access import Ensemble
from flux_runtime.zookeeper.znode_names import PartitionKey

__all__ = ["Context", "LookUp", "Running", "file_name"]

if TYPE_CHECKING:
    from flux_runtime.spark.ends.retention import Retention
    from flux_runtime.zookeeper.registration_sweep import RegistrationSweep

LookUp: TypeAlias = Callable[
    [str, Sequence[PartitionKey]], Mapping[PartitionKey, frozenset[str] | None]
]
"""(stream, keys) -> the registered producers of each, None where nothing is registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The objects that all units of a job share."""

    session: SparkSession
    state: Storage
    """Cannot be changed any more once a newer driver runs the job."""
    run: RunFolder
    look_up: LookUp | None
    """None where no source has registered producers."""
    outputs: Mapping[str, Output]
    fence: Fence
    """Tells whether this is still the newest driver; outputs and state ask it by themselves."""
    retention: Retention
    """Checks and clears the channels that units read."""
    sweep: RegistrationSweep | None = None
    """Deletes registrations of released partitions; None where no producer is registered. A gate
    whose producers are registered says how it can be asked (`serve`), and what it has released."""
    app: str = "job"
    """Name of the application in ZooKeeper."""
    zookeeper: Ensemble | None = None
    """The ensemble; None where no unit needs one."""
    sites: int = 0
    """Task slots that the sites of all units hold."""

    def unit_state(self, unit: Unit) -> Storage:
        """A unit's own part of the state folder."""
        return self.state.at(f"units/{file_name(unit.name)}")

    def dead_letters(self, unit: Unit) -> DeadLetters:
        """A unit's dead letters."""
        return DeadLetters(self.state.at(f"dead_letters/{file_name(unit.name)}"), unit.name)


class Running(Protocol):
    """A unit that runs."""

    @property
    def name(self) -> str:
        """Of the unit."""

    def start(self, *, available_now: bool, trigger: str | None) -> None:
        """Start its queries."""

    @property
    def active(self) -> bool:
        """Whether a query is running."""

    @property
    def error(self) -> BaseException | None:
        """The error that made it fail."""

    @property
    def rows(self) -> int:
        """How many rows it has read since the process started."""

    def finish(self) -> None:
        """After the queries have ended by themselves: do what is still to be done."""

    def stop(self) -> None:
        """Finish the running micro-batch and release, and stop."""
