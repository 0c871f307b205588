"""The answers of user code that was read, kept on disk for the next time.

Reading a Python function means running it, a second each time. An answer is kept under what was
asked, by which programs, with which search path; and with it a stamp of every file and folder that
the code looked at (`connect.reader`). It is given again only while all stamps are as they were, so
that a change of any module is seen. What is damaged counts as absent. Files are put in place whole,
so that several may read and write at once; the last one wins, and all are right.

An answer spares a second run of code that may be run. It never takes the place of the permission:
what a command says of the same files must not depend on what was run here before.

Kept in `$XDG_CACHE_HOME/blazes/read`, else `~/.cache/blazes/read`; not at all where `BLAZES_CACHE`
is `off`. What code makes of the clock or of chance is not seen, and neither is whether a file
exists that it does not open.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from annotations.whitebox import sandbox

KEPT_MAX: Final = 500
"""Answers; the oldest goes when there are more."""
_PROGRAMS: Final = ("pyspark", "blazes", "pandas", "pyarrow")
STAMPED_BYTES_MAX: Final = 256 * 2**20
"""Size of the largest file whose content is looked at; what depends on a larger one is not kept."""
_MODULES: Final = ("py", "pyc", "so", "pyd")
_INSTALLED: Final = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def folder() -> Path | None:
    """Where answers are kept; None where they are not."""
    if os.environ.get("BLAZES_CACHE", "").lower() in ("off", "0", "no"):
        return None
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "blazes" / "read"


def given(request: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer to this request, if it was kept and nothing has changed since."""
    place = _place(request)
    if place is None:
        return None
    try:
        stored = json.loads(place.read_bytes())
        body = stored["body"]
        if stored["digest"] != _digest(body):
            return None
        for path, stamp in body["stamps"].items():
            if stamp != _stamp(path, searched=path in body["searched"]):
                return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    answer: dict[str, Any] = body["answer"]
    return answer


def keep(
    request: Mapping[str, Any], answer: Mapping[str, Any], seen: Mapping[str, Any], *, since: float
) -> None:
    """Keep an answer, unless it tells of a failure or would not hold next time.

    Args:
        request: what was asked.
        answer: what was answered.
        seen: the files and folders that were looked at, as `connect.reader` tells.
        since: when reading began (seconds of the epoch): what changed later may have been read
            as it was before.
    """
    place = _place(request)
    if place is None or seen["outside"] is not None or _failed(answer):
        return
    stamps = {path: _stamp(path) for path in (*seen["files"], *seen["folders"])}
    stamps |= {path: _stamp(path, searched=True) for path in seen["searched"]}
    if any(_changed(path, since) for path in seen["files"]):
        return
    if any(Path(path).exists() and not _readable(path) for path in seen["files"]):
        return
    body = {"stamps": stamps, "searched": seen["searched"], "answer": answer}
    text = json.dumps({"digest": _digest(body), "body": body})
    with contextlib.suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=place.parent, suffix=".part", delete=False
        ) as part:
            part.write(text)
        Path(part.name).replace(place)
        _prune(place.parent)


def _failed(answer: Mapping[str, Any]) -> bool:
    return "error" in answer or any("error" in function for function in answer.get("functions", ()))


def _place(request: Mapping[str, Any]) -> Path | None:
    base = folder()
    if base is None:
        return None
    try:
        asked = _digest([request, _programs(), sandbox.environment()])
    except (metadata.PackageNotFoundError, OSError):
        return None
    return base / f"{asked}.json"


@functools.cache
def _programs() -> list[Any]:
    """Who reads: versions, and the reader's own files, which change in a checkout."""
    own = Path(__file__).parents[1]
    files = sorted((str(f), _installed_stamp(str(f))) for f in own.rglob("*.py"))
    versions = [metadata.version(name) for name in _PROGRAMS]
    return [sys.executable, platform.python_version(), versions, files]


def _stamp(path: str, *, searched: bool = False) -> str:
    """A text that changes when the file or the folder does; `-` where there is none.

    Of a folder that was searched for modules only what may be one counts.
    """
    try:
        if Path(path).is_dir():
            names = (entry.name for entry in Path(path).iterdir() if entry.name != "__pycache__")
            return _digest(sorted(n for n in names if _module(n) or not searched))
        if path.startswith(_INSTALLED):
            return _installed_stamp(path)
        if not _readable(path):
            return "-"
        with Path(path).open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return "-"


def _readable(path: str) -> bool:
    """Whether it is an ordinary file of ordinary size: to read another could take for ever."""
    return Path(path).is_file() and Path(path).stat().st_size <= STAMPED_BYTES_MAX


def _module(name: str) -> bool:
    """Whether an import might mean this entry of a folder."""
    stem, _, suffix = name.partition(".")
    return stem.isidentifier() and (not suffix or suffix.endswith(_MODULES))


def _installed_stamp(path: str) -> str:
    """Of files that installers write: many, and never the same time with other contents."""
    status = Path(path).stat()
    return f"{status.st_mtime_ns} {status.st_size}"


def _changed(path: str, since: float) -> bool:
    """Whether a file was written after reading began, or so shortly before that clocks differ."""
    try:
        return Path(path).stat().st_mtime > since - 0.05
    except OSError:
        return False


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _prune(base: Path) -> None:
    """Leave the newest answers; parts that nobody finished go after an hour."""
    answers = sorted(base.glob("*.json"), key=_written, reverse=True)
    forgotten = [f for f in base.glob("*.part") if _written(f) < time.time() - 3600]
    _remove((*answers[KEPT_MAX:], *forgotten))


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _remove(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
