"""Attack the seal layer in every way that comes to mind, and account for each record.

    python benchmarks/seal_faults.py --seed 1 --faults 200
        [--store] [--only FAULT] [--plant NAME] [--keep DIR]

A job of four sealed units (`seal_attack/job.py`) reads what a generator sends it: hostile keys and
names, repeats, late, unknown and unreadable records, promises that are not kept. Faults come in an
order that the seed decides. After each of them the job either goes on exactly, or refuses to, and
names what is damaged and a remedy, which is then followed. In the end every record has been
released once, is dead with a reason, or both it and the reason why it was kept are known.

With `--store` the state is kept in an object store (`seal_attack/store.py`), which is disturbed,
too, and the machine of a driver is often lost with it.

The last lines say how often each fault came and how it ended. The status is 1 if a record is not
where it has to be; the story up to there is printed, and `--seed` tells it again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.seal_attack import accounts, plants, power  # noqa: E402
from benchmarks.seal_attack.accounts import ViolationError  # noqa: E402
from benchmarks.seal_attack.damage import DAMAGES, Damage, Place, delete  # noqa: E402
from benchmarks.seal_attack.disk import Disk, in_mounts_of_its_own  # noqa: E402
from benchmarks.seal_attack.driver import Driver, HangError, Run  # noqa: E402
from benchmarks.seal_attack.job import CHANGED, CHANGES  # noqa: E402
from benchmarks.seal_attack.store import ADDRESS, KINDS, Store, serving  # noqa: E402
from benchmarks.seal_attack.traffic import Traffic  # noqa: E402
from flux_runtime.commits.kept_folder import copy_of  # noqa: E402
from flux_runtime.observe import decisions  # noqa: E402
from flux_runtime.observe.audit import audit  # noqa: E402
from flux_runtime.observe.decisions import Resolve  # noqa: E402
from flux_runtime.sealing.events import Resolution  # noqa: E402
from flux_runtime.sealing.manifest import DamagedError  # noqa: E402

SEALING: Final = ("ends/commit", "ends/retention", "sealed/gate", "sealed/intake", "query")
"""Modules of `flux_runtime.spark` whose points the job passes."""
KEPT: Final = ("state", "results")
"""What a person would copy, and put back."""
NAMED: Final = re.compile(r"file:/|/state/|/results/|input \w+|\bcheckpoint\b")
"""A message that says what is damaged."""
IMMUTABLE: Final = re.compile(r"/(buffer|requests|undecided|channels)/|\.sst$")
REMEDY: Final = re.compile(r"--fresh|[Pp]ut back|[Rr]estore")
FRESH: Final = "--fresh"
SETTLED: Final = 0.4
"""How often a kill is followed by a run that is not disturbed."""
MACHINE_LOST: Final = 0.6
"""How often the machine of a driver that was killed is lost with it."""
ROUNDS_MAX: Final = 6
"""Decisions about partitions in quarantine, until nothing is open."""


def crash_points() -> list[str]:
    """The places in the code at which the process can be made to kill itself."""
    found = []
    for module in SEALING:
        text = (ROOT / "flux_runtime" / "spark" / f"{module}.py").read_text()
        found += re.findall(r'faults\.point\("([^"]+)"\)', text)
    return found


class Attack:
    """One job, and all that is done to it.

    Args:
        folder: of the job.
        seed: decides everything but the machine's timing.
        plant: a mistake that is planted in the job.
        store: which keeps the state; None: it is a folder.
    """

    def __init__(
        self, folder: Path, seed: int, plant: str | None = None, store: Store | None = None
    ) -> None:
        self.folder = folder / "job"
        self.folder.mkdir(parents=True)
        self.rng = random.Random(seed)
        self.disk = Disk(self.folder)
        self.traffic = Traffic(self.folder, seed)
        (self.folder / "data" / "late").mkdir()
        (self.folder / CHANGED).write_text("{}")
        self.store = store
        environment = {plants.VARIABLE: plant or ""}
        arguments: tuple[str, ...] = ()
        self.machine = self.folder / "machine"
        """The disk of the driver's machine, where it works on a state that a store keeps."""
        if store is not None:
            self.machine.mkdir()
            environment |= {"TMPDIR": str(self.machine)}
            arguments = ("--state-dir", ADDRESS)
        self.driver = Driver(self.folder, folder / "driver.log", environment, arguments=arguments)
        self.copy = folder / "copy"
        self.older = folder / "older"
        self.story: list[str] = []
        self.outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self.usual_s = 5.0
        self.sound = True
        """Nothing lies damaged that the job has gone on without, so that an audit finds nothing."""

    @property
    def faults(self) -> Mapping[str, tuple[int, Fault]]:
        """Those that there are for this job."""
        return FAULTS if self.store is None else AT_A_STORE

    # ---- steps

    def tell(self, step: str) -> None:
        """Add to the story, and show it."""
        self.story.append(step)
        print(f"{time.strftime('%H:%M:%S')} {step}", flush=True)

    def settle(self, *arguments: str) -> None:
        """Run the job to its end, which has to be a good one, and check the accounts."""
        # What is done anew is all there ever was, in larger micro-batches.
        files = self.rng.choice([20, 100] if FRESH in arguments else [1, 2, 3, 20])
        run = self.driver.run(*arguments, files=files)
        if run.status != 0:
            raise ViolationError(f"the job does not go on: {run.said.strip()[-1500:]}")
        if FRESH not in arguments:
            self.usual_s = run.seconds
        if FRESH in arguments:
            self.sound = True
        self._bring()
        for finding in audit(self.folder / "state") if self.sound else ():
            raise ViolationError(f"at rest, {finding.place}: {finding.problem}")
        self.check(final=False)

    def perhaps_settle(self) -> None:
        """After a kill, the next fault may come before anything has been put right."""
        if self.store is not None and self.rng.random() < MACHINE_LOST:
            self.driver.kill(all=True)
            shutil.rmtree(self.machine)
            self.machine.mkdir()
        if self.rng.random() < SETTLED:
            self.settle()

    def check(self, *, final: bool) -> None:
        """Compare what is there with what has to be there."""
        self._bring()
        now = accounts.read(self.folder)
        accounts.check(self.traffic, now, final=final)
        accounts.mark_released(self.traffic, now)

    def finish(self) -> None:
        """Bring everything to an end: complete what is open, decide about what contradicts."""
        for number in range(ROUNDS_MAX):
            self.traffic.complete()
            self.settle()
            if not self._decide(counting=number < ROUNDS_MAX // 2):
                break
        self.check(final=True)

    def _decide(self, *, counting: bool) -> bool:
        """Decide about every partition in quarantine; whether there was one.

        To count again, with the right promises sent once more, may lead back there.
        """
        now = accounts.read(self.folder)
        decided = False
        partitions = {(p.stream, p.key): p for p in self.traffic.partitions}
        for name, stream in accounts.UNITS.items():
            for key, (status, _) in now.units[name].open.items():
                if status == "quarantined":
                    decided = True
                    choice = Resolution.DISCARD
                    if counting and self.rng.random() < 0.5:
                        choice = Resolution.RECOUNT
                        self.traffic.promise_again(partitions[stream, key])
                    decisions.request(
                        self.folder / "state" if self.store is None else ADDRESS,
                        name,
                        Resolve(
                            key=key,
                            resolution=choice,
                            by="the attack",
                            reason="to go on",
                            time=time.time(),
                        ),
                    )
        return decided

    def _bring(self) -> None:
        """Bring a copy of what the store keeps to where a state would be."""
        if self.store is not None:
            shutil.rmtree(self.folder / "state", ignore_errors=True)
            (self.folder / "state").mkdir()
            try:
                copy_of(ADDRESS, self.folder / "state")
            except DamagedError as error:
                raise ViolationError(f"what the store keeps is damaged: {error}") from error

    # ---- faults

    def one(self, fault: str) -> None:
        """One fault, and what follows from it."""
        outcome = self.faults[fault][1](self)
        self.outcomes[fault][outcome] += 1
        self.tell(f"{fault}: {outcome}")

    def killed_at_a_point(self) -> str:
        """SIGKILL where the code says that it matters."""
        self.traffic.more()
        point = self.rng.choice(crash_points())
        often = self.rng.choice([1, 1, 1, 2, 3])
        run = self.driver.run(crash_at=f"{point}@{often}", files=self.rng.randint(1, 3))
        self._no_error(run)
        self.tell(f"    {point}@{often}: {'passed by' if run.status == 0 else 'killed'}")
        self.perhaps_settle()
        return "went on"

    def killed_at_random(self) -> str:
        """SIGKILL at any time."""
        self.traffic.more()
        self.driver.begin(files=self.rng.randint(1, 3))
        after = self.rng.uniform(0.0, 1.1 * self.usual_s)
        if not self.driver.running(after):
            self._no_error(self.driver.end())
        self.driver.kill()
        self.perhaps_settle()
        return "went on"

    def java_killed(self) -> str:
        """SIGKILL for the JVM alone."""
        self.traffic.more()
        self.driver.begin(files=self.rng.randint(1, 3))
        if self.driver.running(self.rng.uniform(0.3, 1.0) * self.usual_s):
            self.driver.kill_java(zookeeper=False)
        self.driver.end()
        self.driver.kill()
        self.perhaps_settle()
        return "went on"

    def zookeeper_killed(self) -> str:
        """SIGKILL for the ZooKeeper server, which the job starts again."""
        self.traffic.more()
        self.driver.begin(files=self.rng.randint(1, 3))
        done = False
        if self.driver.running(self.rng.uniform(0.3, 0.9) * self.usual_s):
            done = self.driver.kill_java(zookeeper=True)
        run = self.driver.end()
        if run.status != 0:
            self.driver.kill()
        self.settle()
        return "went on" if run.status == 0 or not done else "stopped, then went on"

    def undisturbed(self) -> str:
        """Nothing: hostile input alone."""
        self.traffic.more(partitions=6)
        self.settle()
        return "went on"

    def disk_full(self) -> str:
        """No space left, for a while."""
        self.traffic.more()
        self.driver.start()
        with self.disk.full(self.rng, self.driver.pid) as what:
            run = self.driver.run(files=self.rng.randint(1, 3))
        if run.status is None:
            raise ViolationError("the process ended")
        if "the ledger cannot be read" in run.said:
            raise ViolationError(f"a full disk passes for damage: {_last_line(run.said)}")
        self.tell(f"    {what}: {_last_line(run.said) if run.status else 'enough'}")
        self.settle()
        return "stopped, then went on" if run.status else "went on"

    def second_driver(self) -> str:
        """Another driver of the same job is started: it is refused, or the first one has ended."""
        self.traffic.more()
        self.driver.begin(files=self.rng.randint(1, 3))
        if not self.driver.running(self.rng.uniform(0.0, 1.1 * self.usual_s)):
            self._no_error(self.driver.end())
        other = Driver(self.folder, self.driver.log, self.driver.environment)
        try:
            second = other.run(files=self.rng.randint(1, 3))
        finally:
            other.kill()
        refused = "another process runs this job" in second.said
        if not refused:
            self._no_error(second)
        if self.driver.busy:
            self._no_error(self.driver.end())
        self.check(final=False)
        return "the second one was refused" if refused else "one after the other"

    def file_changed(self) -> str:
        """The file says something else; the job goes on with that exactly, or refuses it."""
        self.traffic.more(hold=0.7)
        self.settle()
        change = self.rng.choice(CHANGES)
        before = (self.folder / CHANGED).read_text()
        (self.folder / CHANGED).write_text(json.dumps({**json.loads(before), **change}))
        if self.rng.random() < 0.5:
            self.driver.kill()
        self.traffic.complete()
        run = self.driver.run(files=self.rng.randint(1, 3))
        if run.status is None:
            raise ViolationError("the process ended")
        self.tell(f"    {change}: {_last_line(run.said) if run.status else 'taken'}")
        if run.status:
            if not REMEDY.search(run.said):
                raise ViolationError(f"refused without a remedy: {run.said[-3000:]}")
            accounts.check_released(self.traffic, accounts.read_results(self.folder))
            (self.folder / CHANGED).write_text(before)
            self.settle()
            return "refused; changed back"
        self.check(final=False)
        if "remember_s" not in change:
            (self.folder / CHANGED).write_text(before)
        return "went on"

    def power_cut(self) -> str:
        """What was not flushed is gone: in the worst case all of it, or else any part of it."""
        if not power.possible():
            return "strace is not possible here"
        self.traffic.more()
        self.driver.kill(all=True)
        disk = power.Disk(self.folder, KEPT)
        trace = self.folder.parent / "trace"
        driver = Driver(self.folder, self.driver.log, self.driver.environment, power.tracing(trace))
        point = f"{self.rng.choice(crash_points())}@{self.rng.choice([1, 1, 2])}"
        run = driver.run(crash_at=point, files=self.rng.randint(1, 3))
        driver.kill(all=True)
        self._no_error(run)
        disk.follow(trace)
        image = self.folder.parent / "image"
        kept = self.rng.choice([0.0, 0.0, 0.5])
        disk.image(image, self.rng, kept=kept)
        self.restore(image)
        delete(image)
        done = "at the end" if run.status == 0 else f"at {point}"
        self.tell(f"    {done}: {disk.unflushed} files and folders lost something")
        self.settle()
        return "went on"

    def damaged(self, damage: Damage) -> str:
        """Something is damaged; the job says so, and what to do, or goes on exactly."""
        self.traffic.more(hold=0.7)
        self.settle()
        self.save(self.copy)
        if not self.older.exists():
            self.save(self.older)
        done = damage(Place(self.folder, self.rng, self.older))
        if done is None:
            return "nothing to damage"
        self.tell(f"    {done[0]}")
        if self.rng.random() < 0.5:
            self.driver.kill()
        self.traffic.complete()
        self.traffic.ask_again()
        run = self.driver.run(files=self.rng.randint(1, 3))
        if run.status == 0:
            self.check(final=False)
            self._mend(done[1])
            self._renew_older()
            self.sound = False
            return "went on"
        if run.status is None:
            raise ViolationError("the process ended")
        self.tell(f"    {_last_line(run.said)}")
        if not REMEDY.search(run.said) or not NAMED.search(run.said):
            raise ViolationError(
                f"refused without what is damaged, or a remedy: {run.said[-3000:]}"
            )
        accounts.check_released(self.traffic, accounts.read_results(self.folder))
        if FRESH in run.said and self.rng.random() < 0.3:
            self.traffic.begin_anew()
            delete(self.older)
            self.settle(FRESH)
            return "refused; begun anew"
        self.restore(self.copy)
        self.settle()
        self._renew_older()
        return "refused; put back"

    def two_machines(self) -> str:
        """A driver is started on another machine: it takes over, and the first one stops."""
        self.traffic.more()
        self.driver.begin(files=self.rng.randint(1, 3))
        if not self.driver.running(self.rng.uniform(0.0, 1.1 * self.usual_s)):
            self._no_error(self.driver.end())
        mount = f'mount -t tmpfs tmpfs {self.machine} && exec "$@"'
        other = Driver(
            self.folder,
            self.driver.log,
            self.driver.environment,
            ("unshare", "--mount", "sh", "-c", mount, "sh"),
            self.driver.arguments,
        )
        try:
            self._no_error(other.run(files=self.rng.randint(1, 3)))
        finally:
            os.kill(other.pid, signal.SIGKILL)
            other.kill()
        stopped = False
        if self.driver.busy:
            first = self.driver.end()
            stopped = "a newer driver" in first.said
            if not stopped:
                self._no_error(first)
            self.driver.kill()  # it may have left its ledger open, which is another driver's now
        self.check(final=False)
        return "the first one stopped" if stopped else "one after the other"

    def killed_at_a_request(self) -> str:
        """SIGKILL before or after the store does what it was asked for."""
        assert self.store is not None
        self.traffic.more()
        self.driver.start()
        after = self.rng.random() < 0.5
        pid = self.driver.pid
        writes = self.rng.random() < 0.6  # a start reads the whole state
        number = int(10 ** self.rng.uniform(0, 1.7 if writes else 2.3))
        self.store.strike(
            number, writes=writes, after=after, how=lambda: os.kill(pid, signal.SIGKILL)
        )
        run = self.driver.run(files=self.rng.randint(1, 3))
        self.store.calm()
        self._no_error(run)
        done = "passed by" if run.status == 0 else f"killed {'after' if after else 'before'} it"
        self.tell(f"    {'write' if writes else 'request'} {number}: {done}")
        self.perhaps_settle()
        return "went on"

    def store_disturbed(self) -> str:
        """The store answers late, refuses, loses answers, gives lists that are not the newest."""
        assert self.store is not None
        self.traffic.more()
        self.driver.start()
        kinds = self.rng.sample(KINDS, self.rng.randint(1, len(KINDS)))
        self.store.disturb({kind: 10 ** self.rng.uniform(-2, -0.7) for kind in kinds})
        run = self.driver.run(files=self.rng.randint(1, 3))
        met = self.store.calm()
        self.tell(f"    {', '.join(f'{kind} {times}' for kind, times in met.items()) or 'nothing'}")
        self._no_error(run)
        self.perhaps_settle()
        return "went on"

    def object_damaged(self) -> str:
        """An object is deleted, cut short or changed: refused, with its name and a remedy."""
        assert self.store is not None
        self.settle()
        before = self.store.copy()
        name = self.rng.choice(sorted(self.store.objects))
        how = self.store.damage(name, self.rng)
        self.traffic.more()
        run = self.driver.run(files=2)
        if run.status is None:
            raise ViolationError("the process ended")
        self.tell(f"    {name} {how}: {_last_line(run.said) if run.status else 'taken'}")
        if run.status == 0:  # a part of it that is no longer needed
            self.check(final=False)
            return "went on"
        if not REMEDY.search(run.said) or (name not in run.said and name != "head"):
            raise ViolationError(
                f"refused without what is damaged, or a remedy: {run.said[-3000:]}"
            )
        self.store.put_back(before)
        self.settle()
        return "refused; put back"

    def save(self, copy: Path) -> None:
        """Copy state and results."""
        if copy.exists():
            delete(copy)
        for name in KEPT:
            if (self.folder / name).exists():
                shutil.copytree(self.folder / name, copy / name)

    def restore(self, copy: Path) -> None:
        """Put a copy back."""
        for name in KEPT:
            if (self.folder / name).exists():
                delete(self.folder / name)
            if (copy / name).exists():
                shutil.copytree(copy / name, self.folder / name)

    def _mend(self, path: Path) -> None:
        """Put a damaged file back that nobody has read yet, and that is never changed."""
        then = self.copy / path.relative_to(self.folder)
        lost = not path.exists() and "/undecided/" not in str(path)
        needed = path.parent.exists() and not lost
        if IMMUTABLE.search(str(path)) and needed and then.exists():
            if path.exists():
                delete(path)
            (shutil.copytree if then.is_dir() else shutil.copy)(then, path)

    def _renew_older(self) -> None:
        """Now and then, the copy of some steps ago becomes a newer one."""
        if self.rng.random() < 0.5 and self.older.exists():
            delete(self.older)

    def _no_error(self, run: Run) -> None:
        if run.status not in (0, None):
            raise ViolationError(f"the job stopped by itself: {run.said.strip()[-1500:]}")


def _last_line(said: str) -> str:
    """What the job said in the end, for the story."""
    lines = [line for line in said.splitlines() if not line.strip().startswith("log: ")]
    return " ".join(" ".join(lines[-4:]).split())[-400:]


Fault = Callable[[Attack], str]

FAULTS: Final[dict[str, tuple[int, Fault]]] = {
    "hostile input": (2, Attack.undisturbed),
    "driver killed at a point": (20, Attack.killed_at_a_point),
    "driver killed at random": (8, Attack.killed_at_random),
    "JVM killed": (3, Attack.java_killed),
    "ZooKeeper killed": (2, Attack.zookeeper_killed),
    "disk full": (4, Attack.disk_full),
    "power cut": (4, Attack.power_cut),
    "second driver": (3, Attack.second_driver),
    "file changed": (6, Attack.file_changed),
    **{
        name: (1, lambda attack, damage=damage: attack.damaged(damage))
        for name, damage in DAMAGES.items()
    },
}
"""Fault -> how often it comes, and what does it."""


AT_A_STORE: Final[dict[str, tuple[int, Fault]]] = {
    "hostile input": (1, Attack.undisturbed),
    "driver killed at a point": (6, Attack.killed_at_a_point),
    "driver killed at random": (4, Attack.killed_at_random),
    "driver killed at a request": (8, Attack.killed_at_a_request),
    "JVM killed": (1, Attack.java_killed),
    "disk full": (1, Attack.disk_full),
    "two machines": (3, Attack.two_machines),
    "store disturbed": (6, Attack.store_disturbed),
    "object damaged": (2, Attack.object_damaged),
    "file changed": (1, Attack.file_changed),
}
"""The same where the state is kept in an object store."""


def order(
    rng: random.Random, faults: int, only: str | None, of: Mapping[str, tuple[int, Fault]] = FAULTS
) -> Iterator[str]:
    """The faults in the order in which they come: each kind as often as it should."""
    chosen = [kind for kind in of if only is None or only in kind]
    kinds = [kind for kind in chosen for _ in range(of[kind][0])]
    due: list[str] = []
    for _ in range(faults):
        if not due:
            due = rng.sample(kinds, len(kinds))
        yield due.pop()


def main() -> int:
    """Run the attack; the exit status."""
    in_mounts_of_its_own()
    parser = argparse.ArgumentParser(description="Attack the seal layer.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--store", action="store_true", help="keep the state in an object store")
    parser.add_argument("--only", help="only faults with this in their name")
    parser.add_argument("--plant", choices=plants.PLANTS, help="plant a mistake in the job")
    parser.add_argument("--keep", type=Path, help="work here, and leave everything behind")
    args = parser.parse_args()
    folder = args.keep or Path(tempfile.mkdtemp(prefix="seal-faults-"))
    if args.plant and not args.only:
        args.only = plants.PLANTS[args.plant].found_by
        args.store = plants.PLANTS[args.plant].store
    began = time.monotonic()
    around = contextlib.ExitStack()
    store = None
    if args.store:
        store = Store(random.Random(args.seed))
        os.environ |= around.enter_context(serving(store))
    attack = Attack(folder, args.seed, args.plant, store)
    try:
        attack.settle()
        for fault in order(random.Random(args.seed), args.faults, args.only, attack.faults):
            attack.one(fault)
        attack.finish()
    except (ViolationError, HangError) as violation:
        print(
            f"\nseed {args.seed}, after {sum(map(Counter.total, attack.outcomes.values()))} "
            f"faults:\n{violation}\n\nthe story (all of it is in {folder}):"
        )
        print("\n".join(attack.story[-12:]))
        return 1
    finally:
        attack.driver.kill()
        around.close()
        attack.disk.leave(folder)
    print()
    for fault, outcomes in attack.outcomes.items():
        each = ", ".join(f"{outcome} {times}" for outcome, times in outcomes.items())
        print(f"{fault:28} {outcomes.total():4}  {each}")
    kinds = ", ".join(f"{kind.name} {times}" for kind, times in attack.traffic.kinds.items())
    print(
        f"{sum(map(Counter.total, attack.outcomes.values()))} faults, "
        f"{len(attack.traffic.partitions)} partitions, "
        f"{sum(attack.traffic.kinds.values())} messages ({kinds}): each accounted for; "
        f"{attack.driver.starts} drivers, {time.monotonic() - began:.0f} s"
    )
    if args.keep is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
