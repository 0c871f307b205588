"""The project that a dataflow is compiled to: `target/NAME/`.

    job.py         the job, for spark-submit or python
    plan.json      the analysis, the plan, the stages, the hashes of what was compiled and written
    README.md      how to run it, what coordination is in it and why, where results go
    *.py           the operator modules that the dataflow names

`state/`, `runs/` and `results/` belong to the job and are left alone. Each file is replaced in one
step, plan.json last. A file that was changed since it was written is not lost: it is kept beside
the new one as `NAME.orig`, and reported.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from annotations.dataflow import Deployment
from annotations.diagnostics import Diagnostic
from codegen.codes import CODES
from codegen.drafts import folder_of
from codegen.emit import emit
from codegen.model import Stages
from codegen.needs import needs
from codegen.operators import files
from codegen.readme import readme
from codegen.settings import settings

JOB: Final = "job.py"
PLAN: Final = "plan.json"
README: Final = "README.md"


@dataclass(frozen=True, slots=True)
class Project:
    """The files that were written."""

    folder: Path
    files: tuple[str, ...]
    """Names relative to the folder, plan.json last."""
    notes: tuple[Diagnostic, ...]
    """Files that had been edited, and where they are now."""

    @property
    def job(self) -> Path:
        """The file to run."""
        return self.folder / JOB


def write(stages: Stages, folder: Path | str, *, analysis: Mapping[str, Any]) -> Project:
    """Write the project of some stages.

    `analysis` is the result of the analysis as JSON data: what plan.json begins with.

    Raises:
        OSError: the folder cannot be written.
    """
    folder = Path(folder)
    texts = contents(stages)
    plan = plan_text(stages, folder, texts, analysis)
    before = hashes_before(folder)
    notes: list[Diagnostic] = []
    for name in sorted({*before, *texts}):
        notes += keep_if_edited(folder, name, before.get(name), texts.get(name))
    for name in before.keys() - texts.keys():
        (folder / name).unlink(missing_ok=True)
    for name, content in {**texts, PLAN: plan}.items():
        replace(folder / name, content)
    return Project(folder, (*texts, PLAN), tuple(notes))


def contents(stages: Stages) -> dict[str, bytes]:
    """Every file but plan.json: relative name -> content."""
    beside = files(stages.modules, folder_of(stages.plan.analysis.dataflow))
    return {
        **{name: _module(file, stages) for name, file in beside.items()},
        JOB: emit(stages).encode(),
        README: readme(stages).encode(),
    }


def _module(file: Path, stages: Stages) -> bytes:
    """The file of a module; the dataflow's own without what declares it."""
    own = stages.plan.analysis.dataflow.file
    if own is None or not own.exists() or not file.samefile(own):
        return file.read_bytes()
    from annotations.file.python_declarations import without_declarations

    return without_declarations(file.read_text(encoding="utf-8")).encode()


def plan_text(
    stages: Stages, folder: Path, texts: Mapping[str, bytes], analysis: Mapping[str, Any]
) -> bytes:
    """plan.json: the result of the analysis, and what the compiler adds to it.

    `root` is the folder that relative data paths start at, seen from the project's.
    """
    dataflow = stages.plan.analysis.dataflow
    root = Path(os.path.relpath(folder_of(dataflow).resolve(), folder.resolve()))
    result: dict[str, Any] = {
        **analysis,
        "file": dataflow.file.name if dataflow.file else None,
        "sha256": dataflow.sha256,
        "root": root.as_posix(),
        "deployment": deployment_json(dataflow.deployment),
        "settings": settings(stages),
        "needs": [need.to_json() for need in needs(stages)],
        "stages": stages.to_json(),
        "files": {name: sha256(content) for name, content in texts.items()},
    }
    return (json.dumps(result, indent=2, ensure_ascii=False) + "\n").encode()


def deployment_json(deployment: Deployment) -> dict[str, Any]:
    """The deployment section as JSON data."""
    return {
        "master": deployment.master,
        "zookeeper": deployment.zookeeper,
        "zookeeper_access": dict(deployment.zookeeper_access),
        "trigger": deployment.trigger,
        "conf": dict(deployment.conf),
        "sites": deployment.sites,
        "copies": deployment.copies,
        "partitions": deployment.partitions,
        "balance": deployment.balance,
        "site_memory": deployment.site_memory,
        "keep_every": deployment.keep_every,
    }


def hashes_before(folder: Path) -> dict[str, str]:
    """The files of an earlier compilation: relative name -> hash; nothing where that is lost."""
    try:
        hashes = json.loads((folder / PLAN).read_bytes())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    if not isinstance(hashes, dict):
        return {}
    return {name: text for name, text in hashes.items() if is_inside(name) and type(text) is str}


def is_inside(name: str) -> bool:
    """True for a relative name that stays in its folder."""
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts and bool(path.parts)


def keep_if_edited(
    folder: Path, name: str, written: str | None, new: bytes | None
) -> list[Diagnostic]:
    """Move a file that is neither what was written nor what will be out of the way."""
    file = folder / name
    try:
        now = file.read_bytes()
    except OSError:
        return []
    if now == new or sha256(now) == written:
        return []
    backup = unused(file)
    file.replace(backup)
    done = "was written by" if written is None else "was edited since it was written by"
    author = "something else" if written is None else "the compiler"
    message = f"{file} {done} {author}; it is kept as {backup.name}"
    return [Diagnostic(CODES["BLZ541"], message)]


def unused(file: Path) -> Path:
    """`NAME.orig`, or the first `NAME.orig.2`, `NAME.orig.3`, ... that is not there."""
    number = 1
    while True:
        backup = file.with_name(f"{file.name}.orig" + (f".{number}" if number > 1 else ""))
        if not backup.exists():
            return backup
        number += 1


def replace(file: Path, content: bytes) -> None:
    """Write a file in one step."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    part.write_bytes(content)
    part.replace(file)


def sha256(content: bytes) -> str:
    """The hash by which an edited file is noticed."""
    return hashlib.sha256(content).hexdigest()
