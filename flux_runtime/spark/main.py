"""The entry point of every job: arguments, folders, ZooKeeper, Spark, exit status."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import importlib
import json
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from flux_runtime.commits.kept_folder import KeptFolder, copy_of, folder_of
from flux_runtime.commits.mount import check_mounts
from flux_runtime.commits.objects import StoreError, is_address
from flux_runtime.commits.owner import Ownership
from flux_runtime.observe.ending import FAIL_ON, FAILED_ON, Left, not_emptied, parse_fail_on
from flux_runtime.observe.exposition import serving
from flux_runtime.observe.run_folder import RunFolder
from flux_runtime.past_range import add_options, parsed
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import LocalStorage, Storage, keeping, local_path, make_folder
from flux_runtime.sealing.tracker import Registered
from flux_runtime.secrets import RedactingFormatter, redacted, resolved
from flux_runtime.spark.backfill import Range
from flux_runtime.spark.changes import Change, changes
from flux_runtime.spark.fingerprint import fingerprint, functions_of
from flux_runtime.spark.flux.stage import forget_memberships
from flux_runtime.spark.function_text import modules
from flux_runtime.spark.job import Job
from flux_runtime.spark.lineage import Lineage
from flux_runtime.spark.runner import assign_channels, locations, run_job, site_count
from flux_runtime.spark.session import master_of, start_session
from flux_runtime.spark.units import FluxUnit, SealUnit
from flux_runtime.zookeeper.access import Ensemble
from flux_runtime.zookeeper.client import Client, connect
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
from flux_runtime.zookeeper.epoch import EpochNode
from flux_runtime.zookeeper.keeper import Keeper
from flux_runtime.zookeeper.registration_sweep import RegistrationSweep
from flux_runtime.zookeeper.registrations_file import load_registrations
from flux_runtime.zookeeper.registry import ProducerRegistry

FINGERPRINT: Final = "fingerprint.json"
"""In the state folder: what the state depends on."""

OWN_SERVER_S: Final = 300.0
"""How long an embedded ZooKeeper, which runs, may take for a session on a busy machine."""

Build = Callable[[Job], None]


class JobError(Exception):
    """The job cannot run as it was asked to; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a job runs, from its arguments, the environment and its deployment section."""

    name: str
    folder: Path
    """Of the job's file and its modules."""
    data: Path
    """Of its runs and results, and of its state where that is not elsewhere."""
    root: Path
    state: Path
    """Where it works on its state."""
    store: str | None
    """Where its state is kept, if elsewhere: an address in an object store."""
    run_dir: Path | None
    available_now: bool
    fresh: bool
    master: str | None
    zookeeper: str
    zookeeper_access: Mapping[str, str]
    """See `flux_runtime.zookeeper.access`."""
    trigger: str | None
    conf: Mapping[str, str]
    metrics_port: int | None = None
    fail_on: tuple[str, ...] = ()
    """Words of `FAIL_ON`."""
    compare: bool = False
    """Only say what has changed since the last start."""
    range: Range | None = None
    """A past range that is brought in beside the job; None: it is the job itself."""


GC_THRESHOLD: Final = 100_000
"""Objects that Python makes before it looks for cycles among them: a micro-batch makes one for each
key and producer, none of them in a cycle."""


def main(
    build: Build,
    *,
    name: str,
    folder: Path,
    master: str | None = None,
    zookeeper: str = "embedded",
    zookeeper_access: Mapping[str, str] | None = None,
    trigger: str | None = None,
    conf: Mapping[str, str] | None = None,
    argv: Sequence[str] | None = None,
) -> None:
    """Run the job that `build` declares, and exit.

    The exit status is 0 if it went well, 1 if not, 2 for bad usage, and 3 if it went well and left
    what `--fail-on` names.

    Args:
        build: declares the job.
        name: of the job; the application's name in ZooKeeper.
        folder: of the job's file; state, runs and results are below it unless told otherwise.
        master: Spark master of the deployment section.
        zookeeper: `embedded`, or `host:port,...`.
        zookeeper_access: how the ensemble lets the job in: `user` and `password`,
            `sasl`, `ca`, `certificate` and `key` (PEM files).
        trigger: interval between micro-batches.
        conf: Spark settings of the deployment section.
        argv: arguments; None: the process's.
    """
    settings = _settings(
        argv,
        name=name,
        folder=folder.resolve(),
        master=master,
        zookeeper=zookeeper,
        zookeeper_access=dict(zookeeper_access or {}),
        trigger=trigger,
        conf=dict(conf or {}),
    )
    sys.exit(compare(build, settings) if settings.compare else run(build, settings))


def run(build: Build, settings: Settings) -> int:
    """Run a job; the exit status."""
    gc.set_threshold(GC_THRESHOLD)
    try:
        job = _declared(build, settings)
        job.check()
        conf = resolved(settings.conf, settings.root, of="deployment")
        settings = replace(settings, conf=conf)
        check_store(job, settings)
        with _locked(settings.state):
            if settings.range is not None and not settings.range.begin(job):
                print(f"{settings.name}: all of it is in; nothing was done", file=sys.stderr)
                return 0
            return _run_in_folder(job, settings)
    except (JobError, StoreError, ValueError, TypeError, OSError) as error:
        print(f"{settings.name}: {error}", file=sys.stderr)
        return 1


def check_store(job: Job, settings: Settings) -> None:
    """Return if the state can be kept where it is to be.

    Raises:
        JobError: not by this job; all reasons.
    """
    if settings.store is None:
        return
    problems = []
    on_sites = [unit.name for unit in job.units.values() if isinstance(unit, FluxUnit)]
    if on_sites:
        problems.append(
            f"{', '.join(on_sites)}: Flux sites keep their states on the disks of their machines"
        )
    master = master_of(settings.master, settings.conf)
    if not master.startswith("local"):
        problems.append(
            f"--master {master}: executors on other machines cannot write into the folder that the "
            "driver works on; take --master 'local[*]'"
        )
    at_large = [stream for stream, file in _registered(job).items() if file is None]
    if at_large and settings.zookeeper == "embedded":
        problems.append(
            f"{', '.join(at_large)}: producers that are registered while the job runs are lost "
            "with the machine of an embedded ZooKeeper; name an ensemble (--zookeeper)"
        )
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise JobError(
            f"the state of this job cannot be kept in {settings.store}. Nothing was started:"
            f"{listed}\n  or put the state on a mounted file system (--state-dir)"
        )


def _declared(build: Build, settings: Settings) -> Job:
    places = None if settings.range is None else settings.range.backfill.sources
    job = Job(root=settings.root, results=settings.data / "results", backfill=places)
    build(job)
    return job


def _run_in_folder(job: Job, settings: Settings) -> int:
    plan = settings.folder / "plan.json"
    plan_path = plan if plan.is_file() else None
    links = {
        "results": settings.data / "results",
        "dead_letters": settings.state / "dead_letters",
    }
    if settings.run_dir is not None:
        folder = RunFolder.at(settings.run_dir, plan_path, links=links)
    else:
        folder = RunFolder.create(settings.data / "runs", plan_path, links=links)
    with folder, _python_log(folder.log_path), _metrics(settings, folder):
        lineage = Lineage.of(job, settings.name, available_now=settings.available_now)
        try:
            summary = _run(job, settings, folder, lineage)
        except BaseException as error:
            lineage.failed(error)
            print(
                f"{settings.name}: {redacted(_first_lines(error))}\n    log: {folder.log_path}",
                file=sys.stderr,
            )
            with contextlib.suppress(OSError):  # the disk may be full
                logging.getLogger(__name__).exception("the job failed")
                message = redacted(f"{error}")[:2000]
                folder.event("job_failed", error=f"{type(error).__name__}: {message}")
                folder.finish({"status": "failed", "error": message})
            return 1
        status = "stopped" if summary["stopped"] else "finished"
        left = Left.from_json(summary["left"])
        failures = left.failures(settings.fail_on)
        if settings.range is not None and not summary["stopped"] and not left.waits:
            settings.range.finish()
        lineage.ended(folder.values())
        folder.event("job_stopped", status=status, failed_on=failures)
        folder.finish({"status": status, "failed_on": failures, **summary})
    print(last_line(settings.name, status, left, failures, folder.path), file=sys.stderr)
    return FAILED_ON if failures else 0


def last_line(name: str, status: str, left: Left, failures: Sequence[str], folder: Path) -> str:
    """How a run ended, what it left, and where to look.

    >>> last_line("clicks", "finished", Left(quarantined_partitions=1), (), Path("runs/1"))
    'clicks: finished, and left 1 in quarantine; run folder runs/1'
    """
    words = f", and left {left}" if str(left) else ""
    because = f", which --fail-on {','.join(failures)} makes exit status {FAILED_ON}"
    return f"{name}: {status}{words}{because if failures else ''}; run folder {folder}"


def _run(job: Job, settings: Settings, folder: RunFolder, lineage: Lineage) -> Mapping[str, Any]:
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        state = LocalStorage(settings.state)
        assign_channels(job, state)
        check_mounts([settings.state, *(Path(output.key).parent for output in locations(job))])
        store = None if settings.store is None else stack.enter_context(_restored(settings))
        _checked(job, settings, state, store)
        taking = _taken_over(job, settings, state, store)
        if settings.fresh:
            ownership = stack.enter_context(taking)
            _begin_anew(job, settings, ownership, store)
        client = stack.enter_context(_ensemble(job, settings, folder))
        session = start_session(
            settings.name,
            master=settings.master,
            conf=settings.conf,
            log=folder.log_path,
            sites=site_count(job),
        )
        stack.callback(session.stop)
        _check_settings(session, settings.folder)
        if not settings.fresh:
            ownership = stack.enter_context(taking)
        stack.enter_context(_one_driver(settings, ownership, client))
        for change in _changes(job, settings, state):
            print(f"{settings.name}: {change}", file=sys.stderr)
        state.write(FINGERPRINT, _fingerprint_of(job))
        registry = _registry(job, settings, client)
        sweep = None
        if registry is not None:
            sweep = stack.enter_context(RegistrationSweep(registry, _gates(job)))
        stack.enter_context(_signals(stop))
        for module in sorted(settings.folder.glob("*.py")):  # for the Python workers
            session.sparkContext.addPyFile(str(module))
        if site_count(job) == 0:  # sites know the files themselves
            _send_processors(job, settings.folder)
        folder.event(
            "job_started",
            master=session.sparkContext.master,
            pid=os.getpid(),
            epoch=ownership.driver.epoch,
        )
        lineage.started(session)
        return run_job(
            job,
            session=session,
            state=state,
            run=folder,
            look_up=None if registry is None else registry.lookup_many,
            sweep=sweep,
            stop=stop,
            available_now=settings.available_now,
            trigger=settings.trigger,
            app=settings.name,
            zookeeper=None if client is None else client.ensemble,
            ownership=ownership,
        )


@contextlib.contextmanager
def _restored(settings: Settings) -> Iterator[KeptFolder]:
    """The state as it is kept in an object store, brought here; its driver may still run."""
    assert settings.store is not None
    store = KeptFolder(settings.store, settings.state, fresh=settings.fresh)
    with contextlib.closing(store):
        store.restore()
        yield store


@contextlib.contextmanager
def _taken_over(
    job: Job, settings: Settings, state: Storage, store: KeptFolder | None
) -> Iterator[Ownership]:
    """The newest state, checked once more: the driver before may have gone on since the start."""
    with contextlib.ExitStack() as stack:
        if store is not None:
            store.take_over()
            stack.enter_context(keeping(settings.state, store))
            store.look()
        yield _checked(job, settings, state, store)


def _send_processors(job: Job, folder: Path) -> None:
    """Let Spark's workers get the processors of modules beside the job by value: the worker that
    initializes `transformWithState` on the driver does not know the files that a job adds."""
    for name in modules([f for unit in job.units.values() for f in functions_of(unit)]):
        file = folder.joinpath(*name.split(".")).with_suffix(".py")
        if not file.is_file() or StatefulProcessor.__name__ not in file.read_text("utf-8"):
            continue
        module = importlib.import_module(name)
        if any(
            isinstance(kind, type)
            and issubclass(kind, StatefulProcessor)
            and kind.__module__ == module.__name__
            for kind in vars(module).values()
        ):
            register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _checked(job: Job, settings: Settings, state: Storage, store: KeptFolder | None) -> Ownership:
    """Check that state and results belong to this job; nothing is changed."""
    outputs = locations(job)
    ownership = Ownership(settings.name, state, outputs, fresh=settings.fresh, store=store)
    ownership.check()
    if not settings.fresh:
        _check_changes(settings, _changes(job, settings, state))
    return ownership


def _begin_anew(
    job: Job, settings: Settings, ownership: Ownership, store: KeptFolder | None
) -> None:
    """Delete state and results."""
    if warning := not_emptied([n for n, sink in job.sinks.items() if sink.folders is None]):
        print(f"{settings.name}: {warning}", file=sys.stderr)
    ownership.claim()  # whoever is at work on what is deleted now has to stop first
    for sink in job.sinks.values():
        for feed in sink.feeds:
            if sink.folders is not None:
                sink.folders.delete(feed.origin.name)
    ownership.clear()
    if store is not None:
        store.clear()


def _fingerprint_of(job: Job) -> bytes:
    return json.dumps(fingerprint(job), indent=1).encode()


@contextlib.contextmanager
def _one_driver(settings: Settings, ownership: Ownership, client: Client | None) -> Iterator[None]:
    """Be the newest driver, for the ensemble too if there is one, and hear of newer ones."""
    if client is None:
        ownership.claim()
        yield
        return
    node = EpochNode(client, settings.name)
    driver = node.claim(ownership.driver, fresh=settings.fresh)
    ownership.claim(node, epoch=driver.epoch)
    if ownership.driver.epoch > driver.epoch:
        node.claim(ownership.driver)
    watcher = node.watch(ownership.fence.notice)
    try:
        if settings.fresh:  # an ensemble of one's own survives the state folder
            node.clear_others()
        forget_memberships(client, settings.name)
        yield
    finally:
        watcher.close()


def _read_fingerprint(state: Storage, known: bytes) -> Any:
    try:
        result = json.loads(known)
        if not isinstance(result, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise DamagedError(
            state.uri(FINGERPRINT),
            f"which plan the state belongs to is unreadable ({error})",
            "nothing was changed. Restore this file from a copy; if the plan is surely the same, "
            "delete it; or start afresh with --fresh, which deletes state and results",
        ) from None
    return result


def _changes(job: Job, settings: Settings, state: Storage) -> list[Change]:
    """Differences from the last start, and whether the job goes on after them."""
    known = state.read(FINGERPRINT)
    if known is None:
        return []
    now = json.loads(_fingerprint_of(job))
    return changes(_read_fingerprint(state, known), now, job, settings.state)


def _check_changes(settings: Settings, changes: list[Change]) -> None:
    """Refuse the job where a change cannot be."""
    refused = [change for change in changes if not change.goes_on]
    if refused:
        listed = "".join(f"\n  {change}" for change in refused)
        raise JobError(
            f"the state in {settings.state} belongs to another plan. Nothing was changed:{listed}"
        )


def compare(build: Build, settings: Settings) -> int:
    """Print what has changed since the last start, as JSON; 1 where the job cannot go on."""
    try:
        job = _declared(build, settings)
        with contextlib.ExitStack() as stack:
            if settings.store is not None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                copy_of(settings.store, folder)
                settings = replace(settings, state=folder)
            state = LocalStorage(settings.state)
            assign_channels(job, state)
            changes = _changes(job, settings, state)
    except (DamagedError, StoreError, ValueError, TypeError, OSError) as error:
        print(f"{settings.name}: {error}", file=sys.stderr)
        return 1
    goes_on = all(change.goes_on for change in changes)
    listed = [change.to_json() for change in changes]
    print(json.dumps({"schema_version": 1, "goes_on": goes_on, "changes": listed}, indent=2))
    return 0 if goes_on else 1


@contextlib.contextmanager
def _locked(state: Path) -> Iterator[None]:
    """One process at a time on a state folder; the lock ends with the process."""
    make_folder(state)
    with (state / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JobError(f"another process runs this job: {state} is locked") from None
        yield


@contextlib.contextmanager
def _ensemble(job: Job, settings: Settings, run: RunFolder) -> Iterator[Client | None]:
    """A session with the ensemble that the job names, or an embedded one where a unit needs it."""
    needed = any(isinstance(u, FluxUnit) for u in job.units.values()) or bool(_registered(job))
    if settings.zookeeper == "embedded" and not needed:
        yield None
        return
    with contextlib.ExitStack() as stack:
        hosts = settings.zookeeper
        if hosts == "embedded":
            server = EmbeddedZooKeeper(
                settings.state / "zookeeper",
                on_wait=lambda message: print(f"{settings.name}: {message}", file=sys.stderr),
            ).start()
            hosts = server.hosts
            stack.enter_context(Keeper(server, lambda kind, why: run.event(kind, reason=why)))
            ensemble = Ensemble(hosts, {}, settings.root)  # it answers on loopback alone
            yield stack.enter_context(connect(ensemble, timeout_s=OWN_SERVER_S))
        else:
            ensemble = Ensemble(hosts, settings.zookeeper_access, settings.root)
            yield stack.enter_context(connect(ensemble))


def _registered(job: Job) -> Mapping[str, Path | None]:
    """Streams whose producers are registered -> file with registrations."""
    return {
        producers.stream: producers.registrations
        for unit in job.units.values()
        if isinstance(unit, SealUnit)
        for producers in unit.producers.values()
        if isinstance(producers.rule, Registered) and producers.stream is not None
    }


def _gates(job: Job) -> Mapping[str, list[str]]:
    """Stream with registered producers -> the units that seal it."""
    gates: dict[str, list[str]] = {}
    for unit in job.units.values():
        if isinstance(unit, SealUnit):
            for producers in unit.producers.values():
                if isinstance(producers.rule, Registered) and producers.stream is not None:
                    gates.setdefault(producers.stream, []).append(unit.name)
    return gates


def _registry(job: Job, settings: Settings, client: Client | None) -> ProducerRegistry | None:
    """The registered producers, where a unit needs them; registers what is given."""
    needed = _registered(job)
    if not needed:
        return None
    assert client is not None
    registry = ProducerRegistry(client, settings.name)
    for stream, file in needed.items():
        if file is not None:
            registry.register_many(stream, load_registrations(settings.root / file))
    return registry


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask for a clean stop; a second one is as usual."""

    def on_signal(number: int, _frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        print("stopping after the running micro-batches", file=sys.stderr)
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.signal(n, on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _metrics(settings: Settings, folder: RunFolder) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(serving(folder.path, settings.metrics_port))
        except OSError as taken:
            port = settings.metrics_port
            raise JobError(f"no metrics on port {port}: {taken.strerror}") from None
        yield


class _Log(logging.FileHandler):
    """A log that does without what it cannot write: a full disk is told by what needs the disk."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


@contextlib.contextmanager
def _python_log(log: Path) -> Iterator[None]:
    handler = _Log(log, encoding="utf-8")
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()


def _settings(argv: Sequence[str] | None, **given: Any) -> Settings:
    parser = argparse.ArgumentParser(
        prog="job.py", description=f"Runs {given['name']} until Ctrl-C, and resumes where it was."
    )
    env = os.environ
    add = parser.add_argument
    add("--available-now", action="store_true", help="stop when all that is there is processed")
    add("--run-dir", type=_folder, help="run folder (default: runs/DATE beside the job)")
    add("--data-dir", type=_folder, help="runs, results and state (default: beside the job)")
    add(
        "--state-dir",
        type=_folder_or_address,
        help="checkpoints and buffers: a folder, or s3://BUCKET/FOLDER and the like "
        "(default: state in --data-dir)",
    )
    add("--root", type=_folder, help="what relative data paths are relative to")
    add("--fresh", action="store_true", help="delete state and results, and start from scratch")
    add(
        "--compare",
        action="store_true",
        help="start nothing; print what has changed since the last start and what follows, as JSON",
    )
    add("--master", default=env.get("BLAZES_MASTER"), help="Spark master URL")
    add("--zookeeper", default=env.get("BLAZES_ZOOKEEPER"), help="host:port,... or embedded")
    add("--trigger", help="interval between micro-batches")
    add("--metrics-port", type=int, help="serve metrics for Prometheus on this port of 127.0.0.1")
    add(
        "--fail-on",
        type=_fail_on,
        default=(),
        metavar="WORD,...",
        help=f"exit with {FAILED_ON} where the run leaves any of: {', '.join(FAIL_ON)}",
    )
    beside = parser.add_argument_group("a past range, beside the running job")
    beside.add_argument(
        "--backfill", metavar="NAME", help="bring the range of this name in, once, and end"
    )
    add_options(beside, required=False)
    args = parser.parse_args(argv)
    folder: Path = given["folder"]
    data: Path = (args.data_dir or folder).resolve()
    store = args.state_dir if isinstance(args.state_dir, str) else None
    name: str = given["name"]
    try:
        if store is None:
            state = args.state_dir or data / "state"
        else:
            state = folder_of(store, fresh=args.fresh)
    except (StoreError, DamagedError) as error:
        parser.error(str(error))
    state, past = state.resolve(), None
    if args.backfill is None and (args.source or args.only or args.replace):
        parser.error("--source, --only and --replace are of --backfill")
    if args.backfill is not None:
        if args.fresh or args.compare:
            parser.error("--backfill goes on from where it was, without --fresh and --compare")
        if store is not None:
            parser.error("--backfill needs the job's state on a mounted file system (--state-dir)")
        try:
            backfill = parsed(args.backfill, args)
        except ValueError as error:
            parser.error(str(error))
        past = Range(backfill, data, state)
        data = backfill.folder(data)
        state, name = data / "state", f"{name}-{backfill.name}"
    return Settings(
        name=name,
        folder=folder,
        data=data,
        root=(args.root or _root_of(folder) or args.data_dir or Path.cwd()).resolve(),
        state=state,
        store=store,
        run_dir=None if args.run_dir is None else args.run_dir.resolve(),
        available_now=args.available_now or past is not None,
        fresh=args.fresh,
        master=args.master,
        zookeeper=args.zookeeper or given["zookeeper"],
        zookeeper_access=given["zookeeper_access"],
        trigger=args.trigger or given["trigger"],
        conf=given["conf"] | ({"spark.master": given["master"]} if given["master"] else {}),
        metrics_port=args.metrics_port,
        fail_on=args.fail_on,
        compare=args.compare,
        range=past,
    )


def _folder(text: str) -> Path:
    """A folder of a mounted file system; `s3a://...` is none."""
    try:
        return local_path(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _folder_or_address(text: str) -> Path | str:
    """The same, or an address in an object store."""
    return text if is_address(text) else _folder(text)


def _fail_on(text: str) -> tuple[str, ...]:
    try:
        return parse_fail_on(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _root_of(folder: Path) -> Path | None:
    """The folder of the dataflow's file, where the plan knows it."""
    root = _of_plan(folder, "root")
    return folder / root if isinstance(root, str) else None


def _of_plan(folder: Path, name: str) -> Any:
    """A part of plan.json; None where there is none."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return json.loads((folder / "plan.json").read_text())[name]
    return None


def _check_settings(session: SparkSession, folder: Path) -> None:
    """Return if the session has the settings that the job was compiled for.

    Raises:
        JobError: spark-submit or spark-defaults.conf has given it others.
    """
    compiled: Mapping[str, Mapping[str, str]] = _of_plan(folder, "settings") or {}
    explicit = session.conf.getAll
    others = []
    for relation, of_relation in compiled.items():
        for name, value in of_relation.items():
            given = explicit.get(name, "").strip()
            if given and (given.lower() == value.lower()) != (relation == "equal"):
                due = value if relation == "equal" else f"any other than {value}"
                others.append(f"{name} is {given}, and the job was compiled for {due}")
    if others:
        listed = "; ".join(others)
        raise JobError(
            f"Spark would give other answers than the plan says: {listed}. Take these settings out "
            "of spark-submit's arguments and spark-defaults.conf, or write them under deployment: "
            "conf: and compile again, which says what they change. Nothing was read"
        )


def _first_lines(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return "\n    ".join(text.splitlines()[:4])
