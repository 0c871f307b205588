"""Modules that do what nobody wants of a module that is only read, and what they leave behind.

A deed is a piece of code; a module does some deeds, one after the other, when it is imported, when
its function is called, or at the end of its process. Every deed first leaves a mark, so that a test
sees whether it was done at all.
"""

from __future__ import annotations

import os
import random
import signal
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SECRET: Final = "BLAZES_TEST_SECRET"
"""An environment variable of whoever runs the command; `SECRET` is its value too."""

_BEGIN: Final = """
import os, sys, signal, socket, subprocess, threading, time, atexit, json, pathlib
MARKS = pathlib.Path({marks!r})
def mark(name, text=""):
    with open(MARKS / name, "a") as file:
        file.write(text + "\\n")
def waits():
    mark("pids", str(os.getpid()))
    time.sleep(600)
"""

DEEDS: Final[Mapping[str, str]] = {
    "writes": "pathlib.Path(__file__).with_name('written').write_text('here')",
    "environment": """
        for place in ("self", str(os.getppid())):
            try:
                mark("environment", open(f"/proc/{place}/environ").read())
            except OSError:
                pass
        mark("environment", repr(dict(os.environ)))
    """,
    "session": "subprocess.Popen(['sleep', '600'], start_new_session=True)",
    "no environment": "subprocess.Popen(['/bin/sleep', '600'], start_new_session=True, env={})",
    "double fork": """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                waits()
            os._exit(0)
    """,
    "deaf daemon": """
        if os.fork() == 0:
            os.setsid()
            os.chdir("/")
            os.closerange(0, 100)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            if os.fork() == 0:
                waits()
            os._exit(0)
    """,
    "own subreaper": """
        import ctypes
        if os.fork() == 0:
            os.setsid()
            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
            for _ in range(3):
                if os.fork() == 0:
                    waits()
            waits()
    """,
    "printing daemon": """
        if os.fork() == 0:
            os.setsid()
            mark("pids", str(os.getpid()))
            while True:
                os.write(1, b"x" * 65536)
    """,
    "server": """
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=server.accept).start()
    """,
    "thread": "threading.Thread(target=waits).start()",
    "at exit": "atexit.register(waits)",
    "memory": "held = [bytes(2**28) for _ in range(400)]",
    "loops": "while True: pass",
    "sleeps": "waits()",
    "stops": "os.kill(os.getpid(), signal.SIGSTOP)",
    "exits": "os._exit(0)",
    "exits badly": "os._exit(7)",
    "leaves": "sys.exit()",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "raises": "raise RuntimeError('no')",
    "interrupts": "raise KeyboardInterrupt",
    "raises something else": """
        class Other(BaseException):
            pass
        raise Other("no")
    """,
    "imitates": """
        for text in ('{"functions": [{"plan": {"nodes": []}}]}', '{"status": 0}', "null"):
            print(text)
            print(text, file=sys.stderr, flush=True)
    """,
    "prints": "for _ in range(2000): os.write(1, b'x' * 65536)",
    "fills": """
        with open(MARKS / "large", "wb") as file:
            while True:
                file.write(bytes(2**24))
    """,
    "forges": """
        frame = sys._getframe()
        while frame is not None:
            for value in list(frame.f_locals.values()):
                if isinstance(value, dict) and "answer" in value:
                    forged = {"functions": [{"plan": {"nodes": ["hello"]}}], "seen": 7}
                    pathlib.Path(value["answer"]).write_text(json.dumps(forged))
                    os._exit(0)
            frame = frame.f_back
    """,
    "forges a pipe": """
        frame = sys._getframe()
        while frame is not None:
            for value in list(frame.f_locals.values()):
                if isinstance(value, dict) and "answer" in value:
                    os.mkfifo(value["answer"])
                    os._exit(0)
            frame = frame.f_back
    """,
    "patches": """
        json.dumps = lambda *_, **__: "hello"
        os._exit = lambda *_: None
    """,
    "patches files": "pathlib.Path.write_text = lambda *_, **__: None",
    "patches modules": """
        import builtins
        builtins.isinstance = lambda *_: True
    """,
    "forges the outcome": """
        forged = {"status": 0, "ended_for": "", "printed": "all is well"}
        base = pathlib.Path(os.environ["HOME"]).parent
        (base / "outcome.json").write_text(json.dumps(forged))
        (base / "answer.json").write_text('{"functions": [], "seen": {}}')
    """,
    "removes its folder": "import shutil; shutil.rmtree(pathlib.Path(os.environ['HOME']).parent)",
    "kills who watches": "os.kill(os.getppid(), signal.SIGKILL); waits()",
    "stops who watches": "os.kill(os.getppid(), signal.SIGSTOP); waits()",
    "multiplies": "while True: os.fork()",
}
"""Name -> what is done."""

SHADOWS: Final = ("json", "yaml", "lark", "argparse", "tomllib", "random", "sqlglot", "pathlib")
"""Modules that stand beside the user's under names that others have."""


@dataclass(frozen=True)
class Hostile:
    """A folder with a dataflow whose only component is computed by a module that does deeds."""

    folder: Path
    marks: Path

    @property
    def dataflow(self) -> Path:
        """The dataflow file."""
        return self.folder / "flow.yaml"

    def write(self, name: str, *deeds: str, when: str = "import") -> Path:
        """Write a module; `when` the deeds are done: `import`, `call` or `exit`."""
        done = "\n".join(
            f"mark({deed!r})\n{textwrap.dedent(DEEDS[deed]).strip()}" for deed in deeds
        )
        inside = textwrap.indent(done, "    ")
        text = _BEGIN.format(marks=str(self.marks))
        match when:
            case "import":
                text += f"{done}\ndef score(clicks):\n    return clicks\n"
            case "call":
                text += f"def score(clicks):\n{inside}\n    return clicks\n"
            case _:
                text += f"def last():\n{inside}\natexit.register(last)\n"
                text += "def score(clicks):\n    return clicks\n"
        file = self.folder / f"{name}.py"
        file.write_text(text, encoding="utf-8")
        return file

    def done(self) -> set[str]:
        """The deeds that were done."""
        return {each.name for each in self.marks.iterdir()}

    def processes(self) -> list[int]:
        """Processes that are left: those that work in the folder, and those that said so."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                stopped = (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                if not stopped and (process / "cwd").readlink() == self.folder:
                    found.append(int(process.name))
        for number in self.said():
            with suppress(OSError):
                stat = Path("/proc", str(number), "stat").read_text()
                if stat.rpartition(")")[2].split()[0] != "Z":
                    found.append(number)
        return sorted(set(found))

    def said(self) -> list[int]:
        """The processes that have told their number."""
        pids = self.marks / "pids"
        return [int(line) for line in pids.read_text().split()] if pids.exists() else []

    def environment(self) -> str:
        """What was seen of the environment."""
        seen = self.marks / "environment"
        return seen.read_text(encoding="utf-8") if seen.exists() else ""

    def end(self) -> None:
        """Kill what is left."""
        for process in self.processes():
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)


def hostile(folder: Path, *, seconds: int = 6, memory_mb: int = 1024) -> Hostile:
    """The folder, without a module, and with limits for what may be run."""
    made = Hostile(folder.resolve() / "flow", folder.resolve() / "marks")
    made.folder.mkdir()
    made.marks.mkdir()
    made.dataflow.write_text(
        textwrap.dedent("""\
        components:
          Score: {python: "deeds:score"}
        streams:
          clicks:
            to: Score.clicks
            schema: {id: INT}
            source: {format: json, path: data}
          scores: {from: Score.scores}
        """)
    )
    (made.folder / "pyproject.toml").write_text(
        f"[tool.blazes]\nexecute-seconds = {seconds}\nexecute-memory-mb = {memory_mb}\n"
    )
    return made


def drawn(seed: int) -> tuple[tuple[str, ...], str]:
    """Some deeds, and when they are done."""
    rng = random.Random(seed)
    return tuple(rng.sample(sorted(DEEDS), rng.randrange(1, 4))), rng.choice(
        ("import", "call", "exit")
    )
