"""Modules that do what nobody wants of a module that is only read, and what they leave behind.

A deed is a piece of code; a module does some deeds, one after the other, when it is imported, when
its function is called, or at the end of its process. Every deed first leaves a mark, so that a test
sees whether it was done at all. An attack leaves its mark where it succeeds.
"""

from __future__ import annotations

import ctypes
import functools
import os
import random
import signal
import socket
import sys
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

SECRET: Final = "BLAZES_TEST_SECRET"
"""An environment variable of whoever runs the command; `SECRET` is its value too."""

_BEGIN: Final = """
import os, sys, signal, socket, subprocess, threading, time, atexit, json, pathlib, ctypes, resource
MARKS = pathlib.Path({marks!r})
HERE = pathlib.Path(__file__).parent
HOME = pathlib.Path(os.environ.get("HOME", "/nowhere"))
OUTSIDE = pathlib.Path({outside!r})
PORT, WATCHER, SECRET = {port}, {watcher}, {secret!r}
def mark(name):
    open(MARKS / name).close()
def waits():
    time.sleep(600)
def answers():
    frame = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            if isinstance(value, dict) and "answer" in value:
                yield pathlib.Path(value["answer"])
        frame = frame.f_back
"""

DEEDS: Final[Mapping[str, str]] = {
    "writes": "pathlib.Path(__file__).with_name('written').write_text('here')",
    "environment": """
        for place in ("self", str(os.getppid())):
            try:
                if SECRET in open(f"/proc/{place}/environ").read():
                    mark("leaked")
            except OSError:
                pass
        if SECRET in os.environ:
            mark("leaked")
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
        with open(HOME / "large", "wb") as file:
            while True:
                file.write(bytes(2**24))
    """,
    "forges": """
        for answer in answers():
            forged = {"functions": [{"plan": {"nodes": ["hello"]}}], "seen": 7}
            answer.write_text(json.dumps(forged))
            os._exit(0)
    """,
    "forges depths": """
        for answer in answers():
            answer.write_text('{"functions": ' + "[" * 200_000 + "]" * 200_000 + "}")
            os._exit(0)
    """,
    "forges what it saw": """
        for answer in answers():
            seen = {"files": ["/dev/zero", "/proc/self/mem", "\\0", 7], "folders": ["/"],
                    "searched": [None], "outside": None}
            forged = {"functions": [{"plan": {"nodes": [1e999, 10**400]}}], "seen": seen}
            answer.write_text(json.dumps(forged))
            os._exit(0)
    """,
    "forges a pipe": """
        for answer in answers():
            os.mkfifo(answer)
            os._exit(0)
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
    "multiplies threads": "while True: threading.Thread(target=waits, daemon=True).start()",
    "fills nothing": """
        for number in range(64):
            with open(HOME / f"hollow-{number}", "wb") as file:
                file.truncate(2**40)
    """,
    "inflates": """
        import zlib
        bomb = zlib.compress(bytes(2**26)) * 64
        reader, held = zlib.decompressobj(), []
        for _ in range(64):
            held.append(reader.decompress(bomb[: len(bomb) // 64]))
            reader = zlib.decompressobj()
    """,
    "traces": """
        def forging(frame, event, _):
            for name, value in frame.f_locals.items():
                if isinstance(value, dict) and "functions" in value:
                    value["functions"] = [{"plan": {"nodes": []}}]
            return forging
        sys.settrace(forging)
        threading.settrace(forging)
    """,
}
"""Name -> what is done."""

ATTACKS: Final[Mapping[str, str]] = {
    "reads a file": "(OUTSIDE / 'secret').read_text()",
    "reads a hidden file": "(HERE / '.env').read_text()",
    "lists a folder": "os.listdir(OUTSIDE)",
    "writes beside itself": "(HERE / 'written').write_text('here')",
    "writes outside": "(OUTSIDE / 'written').write_text('here')",
    "appends": "open(OUTSIDE / 'secret', 'a').write('more')",
    "shortens": "os.truncate(OUTSIDE / 'shortened', 0)",
    "removes": "(OUTSIDE / 'removed').unlink()",
    "renames": "(OUTSIDE / 'renamed').rename(OUTSIDE / 'otherwise')",
    "changes a mode": "(OUTSIDE / 'secret').chmod(0o640)",
    "changes times": "os.utime(OUTSIDE / 'secret')",
    "follows a link": "(HERE / 'link').read_text()",
    "follows a linked folder": "(HERE / 'linked' / 'secret').read_text()",
    "makes a link": """
        (HOME / 'link').symlink_to(OUTSIDE / 'secret')
        (HOME / 'link').read_text()
    """,
    "makes a hard link": "os.link(OUTSIDE / 'secret', HOME / 'hard')",
    "reads by a child": "subprocess.run(['/bin/cat', OUTSIDE / 'secret'], check=True)",
    "reads by a grandchild": """
        subprocess.run(['/bin/sh', '-c', f"setsid cat {OUTSIDE / 'secret'}"], check=True)
    """,
    "reads below Python": """
        if ctypes.CDLL(None).open(os.fsencode(OUTSIDE / 'secret'), os.O_RDONLY) < 0:
            raise OSError
    """,
    "connects": "socket.create_connection(('127.0.0.1', PORT), 5)",
    "sends a datagram": """
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))
    """,
    "connects by a file": """
        socket.socket(socket.AF_UNIX).connect(os.path.relpath(OUTSIDE / 'socket'))
    """,
    "listens": "socket.create_server(('127.0.0.1', 0))",
    "connects by a child": """
        import sys
        text = f"import socket; socket.create_connection(('127.0.0.1', {PORT}), 5)"
        subprocess.run([sys.executable, '-c', text], check=True)
    """,
    "signals": "os.kill(WATCHER, 0)",
    "looks into a process": "open(f'/proc/{WATCHER}/environ').read()",
    "limits a process": "resource.prlimit(WATCHER, resource.RLIMIT_CORE)",
    "shares memory": """
        from multiprocessing import shared_memory
        shared_memory.SharedMemory(create=True, size=10).unlink()
    """,
    "reads by a program in memory": """
        program = os.memfd_create("cat")
        os.write(program, pathlib.Path("/bin/cat").resolve().read_bytes())
        subprocess.run([f"/proc/self/fd/{program}", OUTSIDE / "secret"], pass_fds=[program],
                       check=True)
    """,
    "reads in a race of links": """
        link, turn = HOME / "race", True
        def turns():
            while turn:
                for target in (__file__, OUTSIDE / "secret"):
                    (HOME / "next").symlink_to(target)
                    (HOME / "next").replace(link)
        racing = threading.Thread(target=turns)
        racing.start()
        try:
            until = time.monotonic() + 1
            while time.monotonic() < until:
                try:
                    if link.read_text().startswith(SECRET):
                        break
                except OSError:
                    pass
            else:
                raise OSError
        finally:
            turn = False
            racing.join()
    """,
    "reads the memory of a process": "open(f'/proc/{WATCHER}/mem', 'rb').close()",
    "makes a device": "os.mknod(HOME / 'device', 0o20600, os.makedev(1, 3))",
    "watches a folder": """
        libc = ctypes.CDLL(None)
        if libc.inotify_add_watch(libc.inotify_init1(0), os.fsencode(OUTSIDE), 0x20) < 0:
            raise OSError
    """,
    "changes the flags of a file": """
        import fcntl
        with open(__file__) as file:
            fcntl.ioctl(file, 0x40086602, (0x40).to_bytes(8, "little"))
    """,
    "slows a process down": "os.setpriority(os.PRIO_PROCESS, WATCHER, os.getpriority(0, WATCHER))",
    "moves a process": "os.sched_setaffinity(WATCHER, os.sched_getaffinity(WATCHER))",
    "signals its parent": "os.kill(os.getppid(), 0)",
    "signals by a descriptor": "signal.pidfd_send_signal(os.pidfd_open(WATCHER), 0)",
    "connects by an abstract name": """
        socket.socket(socket.AF_UNIX).bind(f"\\0blazes-{os.getpid()}")
    """,
    "shares memory of System V": """
        libc = ctypes.CDLL(None)
        if libc.shmctl(libc.shmget(0, 4096, 0o1600), 0, None) < 0:
            raise OSError
    """,
    "shares memory by a file": "open('/dev/shm/blazes-attack', 'w').close()",
    "makes a namespace": """
        libc = ctypes.CDLL(None)
        child = libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)
        if child == 0:
            os._exit(0)
        if child < 0:
            raise OSError
        os.waitpid(child, 0)
    """,
    "opens a terminal": "os.openpty()",
    "traces its like": """
        child = os.fork()
        if child == 0:
            os._exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) != 0)
        if os.waitpid(child, 0)[1]:
            raise OSError
    """,
    "asks a ring": """
        if ctypes.CDLL(None).syscall(425, 4, ctypes.create_string_buffer(120)) < 0:
            raise OSError
    """,
    "keeps a key": """
        if ctypes.CDLL(None).syscall(248, b"user", b"blazes", b"x", 1, -3) < 0:
            raise OSError
    """,
    "handles page faults": """
        if ctypes.CDLL(None).syscall(323, 1) < 0:
            raise OSError
    """,
    "makes a queue": """
        libc = ctypes.CDLL(None)
        if libc.mq_open(b"/blazes", os.O_CREAT | os.O_RDWR, 0o600, None) < 0:
            raise OSError
        libc.mq_unlink(b"/blazes")
    """,
    "changes an owner": "os.chown(OUTSIDE / 'secret', -1, os.getgid())",
    "writes by a descriptor": """
        with open(__file__) as file:
            open(f"/proc/self/fd/{file.fileno()}", "a").close()
    """,
    "reads by another root": "open(f'/proc/self/root{OUTSIDE}/secret').close()",
    "reads by a folder that is open": """
        at = os.open(HERE / "linked", os.O_PATH | os.O_DIRECTORY)
        os.close(os.open("secret", os.O_RDONLY, dir_fd=at))
    """,
    "sets the name of the machine": """
        name = socket.gethostname().encode()
        if ctypes.CDLL(None).sethostname(name, len(name)) < 0:
            raise OSError
    """,
}
"""Name -> what should fail behind walls, and does not without them."""

SHADOWS: Final = ("json", "yaml", "lark", "argparse", "tomllib", "random", "sqlglot", "pathlib")
"""Modules that stand beside the user's under names that others have."""


@dataclass
class Hostile:
    """A folder with a dataflow whose only component is computed by a module that does deeds."""

    folder: Path
    marks: Path
    outside: Path
    """A folder that is none of the code's business."""
    server: socket.socket
    listening: socket.socket
    """The server's like, at a file of that folder."""
    opened: set[str] = field(default_factory=set)
    """Marks that were left: a mark is a file that the code opens, which needs no right to write."""

    @property
    def dataflow(self) -> Path:
        """The dataflow file."""
        return self.folder / "flow.yaml"

    def limit(self, seconds: int) -> None:
        """Limit what may be run, in its time and to 1 GiB of memory."""
        (self.folder / "pyproject.toml").write_text(
            f"[tool.blazes]\nexecute-seconds = {seconds}\nexecute-memory-mb = 1024\n"
        )

    def write(self, name: str, *deeds: str, when: str = "import") -> Path:
        """Write a module; `when` the deeds are done: `import`, `call` or `exit`."""
        done = "\n".join(
            ATTACK.format(textwrap.indent(textwrap.dedent(ATTACKS[deed]).strip(), "    "), deed)
            if deed in ATTACKS
            else f"mark({deed!r})\n{textwrap.dedent(DEEDS[deed]).strip()}"
            for deed in deeds
        )
        inside = textwrap.indent(done, "    ")
        text = _BEGIN.format(
            marks=str(self.marks),
            outside=str(self.outside),
            port=self.server.getsockname()[1],
            watcher=os.getpid(),
            secret=SECRET,
        )
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
        with suppress(BlockingIOError):
            while events := os.read(self.watch, 2**16):
                while events:
                    size = int.from_bytes(events[12:16], sys.byteorder)
                    self.opened.add(events[16 : 16 + size].rstrip(b"\0").decode())
                    events = events[16 + size :]
        return self.opened - {""}

    @functools.cached_property
    def watch(self) -> int:
        """Where the kernel tells which files are opened in the folder of the marks (inotify)."""
        libc = ctypes.CDLL(None)
        made = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        assert libc.inotify_add_watch(made, os.fsencode(self.marks), 0x20) > 0
        return made

    def processes(self) -> list[int]:
        """Processes that are left: those that work in the folder, or have a home made for it."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                stopped = (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
                home = f"HOME={self.folder.parent}".encode()
                ours = any(
                    e.startswith(home) for e in (process / "environ").read_bytes().split(b"\0")
                )
                if not stopped and (ours or (process / "cwd").readlink() == self.folder):
                    found.append(int(process.name))
        return sorted(found)

    def end(self) -> None:
        """Kill what is left."""
        for process in self.processes():
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        os.close(self.watch)
        self.server.close()
        self.listening.close()


ATTACK: Final = """try:
{0}
except Exception:
    pass
else:
    mark({1!r})"""


def hostile(folder: Path) -> Hostile:
    """The folder, without a module, and with limits that only code reaches that does not end."""
    base = folder.resolve()
    server = socket.create_server(("127.0.0.1", 0))
    listening = socket.socket(socket.AF_UNIX)
    made = Hostile(base / "flow", base / "flow" / "marks", base / "outside", server, listening)
    made.marks.mkdir(parents=True)
    made.outside.mkdir()
    for mark in ("leaked", *DEEDS, *ATTACKS):
        (made.marks / mark).touch()
    for name in ("secret", "shortened", "removed", "renamed"):
        (made.outside / name).write_text(SECRET)
    (made.folder / ".env").write_text(SECRET)
    (made.folder / "link").symlink_to(made.outside / "secret")
    (made.folder / "linked").symlink_to(made.outside)
    listening.bind(os.path.relpath(made.outside / "socket"))
    listening.listen()
    assert made.watch
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
    made.limit(60)
    return made


def drawn(seed: int) -> tuple[tuple[str, ...], str]:
    """Some deeds, and when they are done."""
    rng = random.Random(seed)
    return tuple(rng.sample(sorted(DEEDS), rng.randrange(1, 4))), rng.choice(
        ("import", "call", "exit")
    )
