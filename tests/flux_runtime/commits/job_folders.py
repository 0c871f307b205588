"""Jobs on disk without Spark: a state folder, outputs, drivers that claim and commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flux_runtime.commits.owner import Location, Owner, Ownership
from flux_runtime.commits.record import RECORD, CommitRecord, commit_name
from flux_runtime.sealing import manifest
from flux_runtime.sealing.storage import LocalStorage

UNIT = "Count.counts"


@dataclass
class Folders:
    """A job's folders, and what a driver does with them; see `flux_runtime.spark.ends.commit`."""

    path: Path
    job: str = "clicks"
    output: str = "results/totals"

    def location(self) -> Location:
        return Location(name="sink totals", path=str(self.path / self.output), units=(UNIT,))

    def channel(self, state: str) -> Location:
        path = (self.path / state / "channels" / UNIT).as_posix()
        return Location(name=f"channel {UNIT}", path=path, units=(UNIT,), outside=False)

    def ownership(self, state: str = "state", *, fresh: bool = False) -> Ownership:
        locations = [self.location(), self.channel(state)]
        return Ownership(self.job, LocalStorage(self.path / state), locations, fresh=fresh)

    def start(self, state: str = "state") -> Ownership:
        ownership = self.ownership(state)
        ownership.check()
        ownership.claim()
        return ownership

    def owner(self, ownership: Ownership) -> Owner:
        return ownership.owner(self.location().path)

    def stage(self, ownership: Ownership, number: int) -> str:
        owner = self.owner(ownership)
        parent = LocalStorage((self.path / self.output).parent)
        staged = f"{owner.staging}/{commit_name(UNIT, number)}"
        (parent.root / staged).mkdir(parents=True)
        (parent.root / staged / "part-0.json").write_text(f'{{"a": {number}}}\n')
        record = CommitRecord(
            unit=UNIT,
            number=number,
            previous=owner.newest(UNIT),
            epoch=owner.driver.epoch,
            state=owner.state_id,
            rows=1,
            files=manifest.take(parent, staged),
        )
        parent.write(f"{staged}/{RECORD}", record.to_bytes())
        return staged

    def place(self, ownership: Ownership, staged: str) -> None:
        parent = LocalStorage((self.path / self.output).parent)
        name = staged.rpartition("/")[2]
        parent.move(staged, f"{self.location().base}/{name}")
        self.owner(ownership).committed(UNIT, int(name.rpartition("-")[2]))

    def commit(self, ownership: Ownership, *numbers: int) -> None:
        for number in numbers:
            staged = self.stage(ownership, number)
            self.owner(ownership).check()
            self.place(ownership, staged)
