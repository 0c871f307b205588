"""Finding Java where Spark would find it; the fakes are programs on disk that really run."""

from __future__ import annotations

from pathlib import Path

import pytest

from flux_runtime.zookeeper.errors import JavaBroken, JavaMissing, JavaTooOld
from flux_runtime.zookeeper.java import find_java, major_version


def fake_java(folder: Path, script: str) -> Path:
    """A program `java` in `folder`/bin that runs this shell script."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return program


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2025-04-15' >&2"


@pytest.mark.parametrize(
    ("version", "major"),
    [
        ("1.8.0_392", 8),
        ("1.7", 7),
        ("9", 9),
        ("11.0.22", 11),
        ("17", 17),
        ("17.0.15", 17),
        ("21.0.2+13-LTS", 21),
        ("25-ea", 25),
        ("26-internal", 26),
    ],
)
def test_the_major_version_of_every_scheme(version: str, major: int) -> None:
    assert major_version(version) == major


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(ValueError, match="not a Java version"):
        major_version("unknown")


def test_the_java_of_this_machine_is_found() -> None:
    java = find_java()
    assert java.major >= 17
    assert java.executable.exists()


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", says("21.0.2")).parent.parent
    path = fake_java(tmp_path / "path", says("17")).parent
    java = find_java(environ={"JAVA_HOME": str(home), "PATH": str(path)})
    assert (java.major, java.origin, java.executable) == (21, "JAVA_HOME", home / "bin" / "java")
    java = find_java(environ={"PATH": str(path)})
    assert (java.major, java.origin) == (17, "PATH")


def test_lines_before_the_version_do_not_matter(tmp_path: Path) -> None:
    script = "echo 'Picked up JAVA_TOOL_OPTIONS: -Dversion=1' >&2; " + says("25-ea")
    path = fake_java(tmp_path, script).parent
    assert find_java(environ={"PATH": str(path)}).major == 25


def test_an_old_java_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = fake_java(tmp_path, says("1.8.0_392")).parent
    with pytest.raises(JavaTooOld, match=r"is Java 1\.8\.0_392; Spark needs 17") as refused:
        find_java(environ={"PATH": str(path)})
    assert "Install Java 17 or newer" in refused.value.remedy


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="no `java` is on the PATH"):
        find_java(environ={"PATH": str(tmp_path)})


def test_a_wrong_java_home_is_not_replaced_by_the_path(tmp_path: Path) -> None:
    path = fake_java(tmp_path / "path", says("21")).parent
    with pytest.raises(JavaMissing, match="JAVA_HOME is") as refused:
        find_java(environ={"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(path)})
    assert "unset it" in refused.value.remedy


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'Unable to locate a Java Runtime.' >&2; exit 1", "Unable to locate.*status 1"),
        ("exit 0", "prints nothing"),
        ("echo 'java version \"what\"'", "does not tell its version"),
    ],
)
def test_a_java_that_does_not_answer(tmp_path: Path, script: str, message: str) -> None:
    path = fake_java(tmp_path, script).parent
    with pytest.raises(JavaBroken, match=message):
        find_java(environ={"PATH": str(path)})


def test_a_java_that_is_no_program(tmp_path: Path) -> None:
    program = fake_java(tmp_path, "")
    program.write_bytes(b"\x7fELF not really")
    with pytest.raises(JavaBroken, match="does not run"):
        find_java(environ={"PATH": str(program.parent)})
