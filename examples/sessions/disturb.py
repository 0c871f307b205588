"""Disturb a running session job: kill or pause a process of a site, or take the processor from it.

    python -m examples.sessions.disturb --kill-site 2
    python -m examples.sessions.disturb --pause-site 1 --seconds 5
    python -m examples.sessions.disturb --load 0 --seconds 20       one site shares its core
    python -m examples.sessions.disturb --load all --seconds 20     as many hogs as cores

Everything is real: SIGKILL, SIGSTOP, and processes that only burn cycles. The sites are found
through the run folder (default: the newest below target/sessions/runs), by the numbers that
`blazes top` shows; what was done is noted among its events.
"""

import argparse
import contextlib
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from flux_runtime.observe.reader import latest_run, read_run
from flux_runtime.observe.run_folder import RunFolder
from flux_runtime.observe.stages import Site, read_stages

TARGETS = (Path("target/sessions"), Path("examples/sessions/target/sessions"))
SITE_PROGRAMS = (b"flux_runtime.site", b"pyspark")
"""What the command line of a site's process has: on its own, or as a Spark task."""


def newest_run() -> Path:
    """The newest run folder of the session job."""
    found = [run for target in TARGETS if (run := latest_run(target)) is not None]
    if not found:
        sys.exit("no run of the session job here; start one, or name its run folder")
    return max(found, key=lambda run: run.stat().st_mtime)


def sites_of(folder: Path) -> dict[int, Site]:
    """The sites of the run that are in the view now."""
    stages = read_stages(folder, read_run(folder))
    if not stages:
        sys.exit(f"{folder} tells of no sites: has the job started, and is it a run folder?")
    return {site.number: site for stage in stages.values() for site in stage.sites}


def process_of(site: Site) -> int:
    """The process of a site, after a look whether it is one."""
    pid = int(site.value("pid"))
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        if pid and any(program in command for program in SITE_PROGRAMS):
            return pid
    sys.exit(f"site {site.number} has no process {pid} on this machine")


def burn(cores: Sequence[int], seconds: float) -> None:
    """Do nothing useful."""
    os.sched_setaffinity(0, cores)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10_000))


@contextlib.contextmanager
def confined(pid: int):  # type: ignore[no-untyped-def]
    """Within it a process may only use one core."""
    before = os.sched_getaffinity(pid)
    core = random.choice(sorted(before))
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), [core])
    try:
        yield [core]
    finally:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), before)


def load(cores: Sequence[int], hogs: int, seconds: float) -> None:
    """Have so many processes burn cycles on these cores."""
    processes = [multiprocessing.Process(target=burn, args=(cores, seconds)) for _ in range(hogs)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def main() -> int:
    """Disturb."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN_FOLDER")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--kill-site", metavar="N", help="a number, or `any`")
    what.add_argument("--pause-site", metavar="N", help="a number, or `any`")
    what.add_argument("--load", metavar="N", help="a site's number, `any`, or `all`")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long")
    parser.add_argument("--hogs", type=int, help="processes (default: 3 for a site, a core each)")
    args = parser.parse_args()
    folder = args.run or newest_run()
    run, sites = RunFolder.at(folder), sites_of(folder)

    def chosen(number: str) -> tuple[int, int]:
        site = random.choice(sorted(sites)) if number == "any" else int(number)
        if site not in sites:
            sys.exit(f"there is no site {site}; there are {', '.join(map(str, sorted(sites)))}")
        return site, process_of(sites[site])

    if args.load == "all":
        cores = sorted(os.sched_getaffinity(0))
        run.event("disturbed", what="load", seconds=args.seconds)
        load(cores, args.hogs or len(cores), args.seconds)
    elif args.load is not None:
        site, pid = chosen(args.load)
        run.event("disturbed", what="load", site=site, seconds=args.seconds)
        with confined(pid) as cores:
            load(cores, args.hogs or 3, args.seconds)
    elif args.kill_site is not None:
        site, pid = chosen(args.kill_site)
        os.kill(pid, signal.SIGKILL)
        run.event("disturbed", what="kill", site=site, pid=pid)
        print(f"killed site {site}, process {pid}")
    else:
        site, pid = chosen(args.pause_site)
        os.kill(pid, signal.SIGSTOP)
        run.event("disturbed", what="pause", site=site, pid=pid, seconds=args.seconds)
        time.sleep(args.seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
