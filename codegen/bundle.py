"""The bundle of a job: everything that a machine with Spark and Python alone needs to run it.

    job.py, plan.json, *.py    the project, as it was compiled
    environment.tar.gz         the runtime and the packages that it needs, for driver and executors
    submit.sh                  starts the job with spark-submit, with the archive
    Dockerfile, kubernetes.yaml, NAME.service

The archive has the files of the packages that are installed here, as `pip install --target` would
have put them there, without PySpark, which comes with Spark. It fits machines of this platform
whose Python has the same minor version; neither a tool nor a network is needed to make it.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from codegen import deployment
from codegen.model import Flux, Stages
from codegen.needs import needs, submit_option
from codegen.operators import imports
from codegen.project import JOB, PLAN, replace

BUNDLE: Final = "bundle"
"""In the folder of the project."""
ARCHIVE: Final = "environment.tar.gz"
RUNTIME: Final = "flux_runtime"
DISTRIBUTION: Final = "blazes"
OF_SPARK: Final = frozenset({"pyspark", "py4j"})
"""Distributions that come with Spark."""
OF_SITES: Final = frozenset({"duckdb"})
"""Distributions that only components on Flux sites need."""
LEFT_OUT: Final = re.compile(r"(^|/)(__pycache__|tests?|include)/|\.pyc$|^\.\./")
"""Files of packages that a job does not need: their tests, headers and scripts."""


class BundleError(Exception):
    """A bundle cannot be made here; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The bundle that was written.

    Args:
        folder: of the bundle.
        packages: distribution -> version, of those in the archive.
    """

    folder: Path
    packages: Mapping[str, str]


def write_bundle(stages: Stages, project: Path) -> Bundle:
    """Write the bundle of a project that has been written, in place of an older one.

    Raises:
        BundleError: a package that the job needs is not installed.
        OSError: the folder cannot be written.
    """
    folder = project / BUNDLE
    plan = json.loads((project / PLAN).read_bytes())
    modules = [name for name in plan["files"] if name.endswith(".py") and name != JOB]
    packages = distributions([*required(stages), *of_modules(project / name for name in modules)])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stamp = write_archive(folder / ARCHIVE, files_of(packages.values()))
    facts = deployment.Facts.of(stages, modules, submit_option(needs(stages)), stamp=stamp)
    del plan["root"]  # seen from the project's folder
    texts = {
        PLAN: json.dumps(plan, indent=2, ensure_ascii=False) + "\n",
        **deployment.texts(facts),
    }
    for name in (JOB, *modules):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(project / name, folder / name)
    for name, text in texts.items():
        replace(folder / name, text.encode())
        if name.endswith(".sh"):
            (folder / name).chmod(0o755)
    return Bundle(folder, {name: packages[name].version for name in sorted(packages)})


def required(stages: Stages) -> list[str]:
    """The distributions that the job needs directly, PySpark left out."""
    extras = {"run", *(need.extra for need in needs(stages) if need.extra is not None)}
    names = []
    for line in importlib.metadata.requires(DISTRIBUTION) or ():
        text, _, marker = line.partition(";")
        extra = re.search(r"""extra\s*==\s*["']([\w-]+)["']""", marker)
        if extra is not None and extra[1] in extras:
            names.append(_name(text))
    sites = any(isinstance(stage, Flux) for stage in stages)
    return [name for name in names if sites or name not in OF_SITES]


def of_modules(files: Iterable[Path]) -> list[str]:
    """The installed distributions that operator modules import."""
    known = importlib.metadata.packages_distributions()
    tops = {name.partition(".")[0] for file in files for name in imports(file, file.stem)}
    return [name for top in sorted(tops) for name in known.get(top, ()) if name != DISTRIBUTION]


def distributions(names: Iterable[str]) -> dict[str, importlib.metadata.Distribution]:
    """Distributions and all that they need, by their normal names.

    Raises:
        BundleError: some of the first ones are not installed.
    """
    packages: dict[str, importlib.metadata.Distribution] = {}
    missing: list[str] = []
    waiting = [(name, True) for name in names]
    while waiting:
        name, is_needed = waiting.pop()
        normal = re.sub(r"[-_.]+", "-", name).lower()
        if normal in packages or normal in OF_SPARK or normal == DISTRIBUTION:
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            missing += [name] if is_needed else []  # else a marker leaves it out here
            continue
        packages[normal] = distribution
        for line in distribution.requires or ():
            if "extra" not in line.partition(";")[2]:
                waiting.append((_name(line), False))
    if missing:
        raise BundleError(
            f"the bundle needs packages that are not installed here: {', '.join(sorted(missing))}. "
            f"pip install {' '.join(sorted(missing))}"
        )
    return packages


def files_of(
    packages: Iterable[importlib.metadata.Distribution],
) -> Iterator[tuple[str, Path]]:
    """(name in the archive, file) of the packages and of the runtime."""
    for package in packages:
        for file in package.files or ():
            if not LEFT_OUT.search(file.as_posix()):
                yield file.as_posix(), Path(str(package.locate_file(file)))
    spec = importlib.util.find_spec(RUNTIME)
    assert spec is not None
    root = Path(next(iter(spec.submodule_search_locations or ())))
    for path in root.rglob("*"):
        name = f"{RUNTIME}/{path.relative_to(root).as_posix()}"
        if path.is_file() and not LEFT_OUT.search(name):
            yield name, path


def write_archive(archive: Path, files: Iterable[tuple[str, Path]]) -> str:
    """Pack files so that equal ones make equal archives; what tells them from others."""
    version = importlib.metadata.version(DISTRIBUTION)
    metadata = f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {version}\n".encode()
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, path in sorted(files):
            if path.is_file():
                entry = tar.gettarinfo(path, arcname=name)
                entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
                with path.open("rb") as content:
                    tar.addfile(entry, content)
        entry = tarfile.TarInfo(f"{DISTRIBUTION}-{version}.dist-info/METADATA")
        entry.size = len(metadata)
        tar.addfile(entry, io.BytesIO(metadata))
    with archive.open("rb") as packed_file:
        return hashlib.file_digest(packed_file, "sha256").hexdigest()[:12]


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]
