"""Find the Java that Spark would use, and check that it is new enough.

Spark's launcher takes `$JAVA_HOME/bin/java` where JAVA_HOME is set, else `java` on the PATH; this
module looks in the same order and never falls back where Spark would not.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flux_runtime.zookeeper.errors import JavaBroken, JavaMissing, JavaTooOld

MINIMUM: Final = 17
"""The oldest major version that PySpark 4 runs on."""

INSTALL: Final = (
    f"Install Java {MINIMUM} or newer (Debian, Ubuntu: `apt install openjdk-17-jre-headless`; "
    "Fedora: `dnf install java-21-openjdk-headless`; macOS: `brew install openjdk@21`), "
    "or set JAVA_HOME to one that is installed."
)
_VERSION: Final = re.compile(r'\bversion "(?P<text>[^"]+)"')
_ANSWER_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs."""

    executable: Path
    major: int
    version: str
    """As Java says it, for example `17.0.15` or `25-ea`."""
    origin: str
    """Where it was found: `JAVA_HOME` or `PATH`."""


def major_version(version: str) -> int:
    """The major version in what `java -version` prints between quotes.

    Raises:
        ValueError: the text does not start with a number.

    >>> [major_version(v) for v in ("1.8.0_392", "17.0.15", "21", "25-ea", "11.0.2+9")]
    [8, 17, 21, 25, 11]
    """
    numbers = re.match(r"(?:1\.(?=\d))?(\d+)", version)
    if numbers is None:
        raise ValueError(f"not a Java version: {version!r}")
    return int(numbers[1])


def find_java(*, environ: Mapping[str, str] | None = None) -> Java:
    """The Java that Spark would use.

    Raises:
        JavaMissing: there is none.
        JavaBroken: it does not run.
        JavaTooOld: its major version is below `MINIMUM`.
    """
    environ = os.environ if environ is None else environ
    executable, origin = _locate(environ)
    version = _ask_version(executable, origin, environ.get("JAVA_TOOL_OPTIONS", ""))
    major = major_version(version)
    if major < MINIMUM:
        raise JavaTooOld(
            f"{executable} (from {origin}) is Java {version}; Spark needs {MINIMUM} or newer",
            INSTALL,
        )
    return Java(executable, major, version, origin)


def _locate(environ: Mapping[str, str]) -> tuple[Path, str]:
    home = environ.get("JAVA_HOME")
    if home:
        executable = Path(home) / "bin" / "java"
        if not os.access(executable, os.X_OK):
            raise JavaMissing(
                f"JAVA_HOME is {home}, but there is no program {executable}",
                f"Set JAVA_HOME to the folder of a Java {MINIMUM} or newer, or unset it so that "
                "the `java` on the PATH is used.",
            )
        return executable, "JAVA_HOME"
    java = shutil.which("java", path=environ.get("PATH", os.defpath))
    if java is None:
        raise JavaMissing(
            "Java was not found: JAVA_HOME is not set and no `java` is on the PATH", INSTALL
        )
    return Path(java), "PATH"


@functools.lru_cache
def _ask_version(executable: Path, origin: str, tool_options: str) -> str:
    """The answer of `java -version`; remembered, since every answer costs a Java start."""
    del tool_options  # only part of the key: bad options keep Java from starting
    try:
        answer = subprocess.run(
            [executable, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise JavaBroken(f"{executable} (from {origin}) does not run: {failure}", INSTALL) from None
    output = f"{answer.stderr}\n{answer.stdout}"
    version = _VERSION.search(output)
    if answer.returncode != 0 or version is None or not version["text"][:1].isdigit():
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        raise JavaBroken(
            f"{executable} (from {origin}) does not tell its version: "
            f"{' / '.join(lines[:3]) or 'it prints nothing'} (exit status {answer.returncode})",
            INSTALL,
        )
    return version["text"]
