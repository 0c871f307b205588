"""The entry point of every job: arguments, folders, ZooKeeper, Spark, exit status."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flux_runtime.observe.endpoint import serving
from flux_runtime.observe.run_folder import RunFolder
from flux_runtime.sealing.storage import LocalStorage, Storage
from flux_runtime.sealing.tracker import Registered
from flux_runtime.spark.context import LookUp
from flux_runtime.spark.footing import differences, footing
from flux_runtime.spark.hosting import forget_memberships
from flux_runtime.spark.job import Job
from flux_runtime.spark.runner import run_job, site_count
from flux_runtime.spark.session import start_session
from flux_runtime.spark.units import FluxUnit, SealUnit
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
from flux_runtime.zookeeper.keeper import Keeper
from flux_runtime.zookeeper.nodes import app_path, delete_tree
from flux_runtime.zookeeper.registrations_file import load_registrations
from flux_runtime.zookeeper.registry import ProducerRegistry

FOOTING: Final = "footing.json"
"""In the state folder: what the state stands on."""

Build = Callable[[Job], None]


class JobError(Exception):
    """The job cannot run as it was asked to; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a job runs, from its arguments, the environment and its deployment section."""

    name: str
    folder: Path
    root: Path
    state: Path
    run_dir: Path | None
    available_now: bool
    fresh: bool
    master: str | None
    zookeeper: str
    trigger: str | None
    conf: Mapping[str, str]
    metrics_port: int | None = None


def main(
    build: Build,
    *,
    name: str,
    folder: Path,
    master: str | None = None,
    zookeeper: str = "embedded",
    trigger: str | None = None,
    conf: Mapping[str, str] | None = None,
    argv: Sequence[str] | None = None,
) -> None:
    """Run the job that `build` declares, and exit: 0 if it went well, 1 if not, 2 for bad usage.

    Args:
        build: declares the job.
        name: of the job; the application's name in ZooKeeper.
        folder: of the job's file; state, runs and results are below it.
        master: Spark master of the deployment section.
        zookeeper: `embedded`, or `host:port,...`.
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
        trigger=trigger,
        conf=conf or {},
    )
    sys.exit(run(build, settings))


def run(build: Build, settings: Settings) -> int:
    """Run a job; the exit status."""
    try:
        job = Job(root=settings.root, results=settings.folder / "results")
        build(job)
        with _locked(settings.state):
            return _run_in_folder(job, settings)
    except (JobError, ValueError, TypeError) as error:
        print(f"{settings.name}: {error}", file=sys.stderr)
        return 1


def _run_in_folder(job: Job, settings: Settings) -> int:
    plan = settings.folder / "plan.json"
    plan_path = plan if plan.is_file() else None
    links = {
        "results": settings.folder / "results",
        "dead_letters": settings.state / "dead_letters",
    }
    if settings.run_dir is not None:
        folder = RunFolder.at(settings.run_dir, plan_path, links=links)
    else:
        folder = RunFolder.create(settings.folder / "runs", plan_path, links=links)
    with folder, _python_log(folder.log_path), _metrics(settings, folder):
        try:
            summary = _run(job, settings, folder)
        except BaseException as error:
            logging.getLogger(__name__).exception("the job failed")
            folder.event("job_failed", error=f"{type(error).__name__}: {error}"[:2000])
            folder.finish({"status": "failed", "error": f"{error}"[:2000]})
            print(
                f"{settings.name}: {_first_lines(error)}\n    log: {folder.log_path}",
                file=sys.stderr,
            )
            return 1
        status = "stopped" if summary["stopped"] else "finished"
        folder.event("job_stopped", status=status)
        folder.finish({"status": status, **summary})
    print(f"{settings.name}: {status}; run folder {folder.path}", file=sys.stderr)
    return 0


def _run(job: Job, settings: Settings, folder: RunFolder) -> Mapping[str, Any]:
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        state = LocalStorage(settings.state)
        _prepare(job, settings, state)
        hosts = stack.enter_context(_ensemble(job, settings, folder))
        look_up = stack.enter_context(_registry(job, settings, hosts))
        session = start_session(
            settings.name,
            master=settings.master,
            conf=settings.conf,
            log=folder.log_path,
            sites=site_count(job),
        )
        stack.callback(session.stop)
        stack.enter_context(_signals(stop))
        for module in sorted(settings.folder.glob("*.py")):  # for the Python workers
            session.sparkContext.addPyFile(str(module))
        folder.event("job_started", master=session.sparkContext.master, pid=os.getpid())
        return run_job(
            job,
            session=session,
            state=state,
            run=folder,
            look_up=look_up,
            stop=stop,
            available_now=settings.available_now,
            trigger=settings.trigger,
            app=settings.name,
            zookeeper=hosts,
        )


def _prepare(job: Job, settings: Settings, state: Storage) -> None:
    """Check that the state belongs to this job, or start it afresh."""
    now = json.dumps(footing(job), indent=1)
    if settings.fresh:
        for name in state.names():
            state.delete(name)
        for sink in job.sinks.values():
            for feed in sink.feeds:
                if sink.folders is not None:
                    sink.folders.delete(feed.origin.name)
    known = state.read(FOOTING)
    if known is None:
        for sink in job.sinks.values():
            for feed in sink.feeds:
                if sink.folders is not None and sink.folders.commits(feed.origin.name):
                    raise JobError(
                        f"{sink.folders.location} holds results, but {settings.state} no state "
                        "that goes with them; start afresh with --fresh, which deletes them"
                    )
        state.write(FOOTING, now.encode())
        return
    changed = list(differences(json.loads(known), json.loads(now)))
    if changed:
        raise JobError(
            f"the state in {settings.state} belongs to another plan ({'; '.join(changed)}); go "
            "back to that plan, or start afresh with --fresh, which deletes the state and its "
            "results"
        )


@contextlib.contextmanager
def _locked(state: Path) -> Iterator[None]:
    """One process at a time on a state folder; the lock ends with the process."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JobError(f"another process runs this job: {state} is locked") from None
        yield


@contextlib.contextmanager
def _ensemble(job: Job, settings: Settings, run: RunFolder) -> Iterator[str | None]:
    """The addresses of ZooKeeper, where a unit needs it; an embedded one runs meanwhile."""
    if not any(isinstance(u, FluxUnit) for u in job.units.values()) and not _registered(job):
        yield None
        return
    with contextlib.ExitStack() as stack:
        hosts = settings.zookeeper
        if hosts == "embedded":
            server = EmbeddedZooKeeper(settings.state / "zookeeper").start()
            hosts = server.hosts
            stack.enter_context(Keeper(server, lambda kind, why: run.event(kind, reason=why)))
        with connect(hosts) as client:
            if settings.fresh:  # an ensemble of one's own survives the state folder
                delete_tree(client, app_path(settings.name))
            forget_memberships(client, settings.name)
        yield hosts


def _registered(job: Job) -> Mapping[str, Path | None]:
    """Streams whose producers are registered -> file with registrations."""
    return {
        producers.stream: producers.registrations
        for unit in job.units.values()
        if isinstance(unit, SealUnit)
        for producers in unit.producers.values()
        if isinstance(producers.rule, Registered) and producers.stream is not None
    }


@contextlib.contextmanager
def _registry(job: Job, settings: Settings, hosts: str | None) -> Iterator[LookUp | None]:
    """The look-up of registered producers, where a unit needs it; registers what is given."""
    needed = _registered(job)
    if not needed:
        yield None
        return
    assert hosts is not None
    with connect(hosts) as client:
        registry = ProducerRegistry(client, settings.name)
        for stream, file in needed.items():
            if file is not None:
                registry.register_many(stream, load_registrations(settings.root / file))
        yield registry.lookup_many


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


@contextlib.contextmanager
def _python_log(log: Path) -> Iterator[None]:
    handler = logging.FileHandler(log, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _settings(argv: Sequence[str] | None, **given: Any) -> Settings:
    parser = argparse.ArgumentParser(
        prog="job.py", description=f"Runs {given['name']} until Ctrl-C, and resumes where it was."
    )
    env = os.environ
    add = parser.add_argument
    add("--available-now", action="store_true", help="stop when all that is there is processed")
    add("--run-dir", type=Path, help="run folder (default: runs/DATE beside the job)")
    add("--state-dir", type=Path, help="checkpoints and buffers (default: state beside the job)")
    add("--root", type=Path, help="what relative data paths are relative to")
    add("--fresh", action="store_true", help="delete state and results, and start from scratch")
    add("--master", default=env.get("BLAZES_MASTER"), help="Spark master URL")
    add("--zookeeper", default=env.get("BLAZES_ZOOKEEPER"), help="host:port,... or embedded")
    add("--trigger", help="interval between micro-batches")
    add("--metrics-port", type=int, help="serve metrics for Prometheus on this port of 127.0.0.1")
    args = parser.parse_args(argv)
    folder: Path = given["folder"]
    return Settings(
        name=given["name"],
        folder=folder,
        root=(args.root or _root_of(folder)).resolve(),
        state=(args.state_dir or folder / "state").resolve(),
        run_dir=None if args.run_dir is None else args.run_dir.resolve(),
        available_now=args.available_now,
        fresh=args.fresh,
        master=args.master or given["master"],
        zookeeper=args.zookeeper or given["zookeeper"],
        trigger=args.trigger or given["trigger"],
        conf=given["conf"],
        metrics_port=args.metrics_port,
    )


def _root_of(folder: Path) -> Path:
    """The folder of the dataflow's file, as the plan recorded it, else the current one."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        root: str = json.loads((folder / "plan.json").read_text())["root"]
        return folder / root
    return Path.cwd()


def _first_lines(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return "\n    ".join(text.splitlines()[:4])
