"""`blazes doctor`: every check against a machine on which something is really wrong."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from blazes.cli import CommandError, checks, doctor, main
from blazes.cli.checks import CHECKS, Check, Finding, Status, memory_available_mb, run_check

BY_NAME = {check.name: check for check in CHECKS}


def result_of(name: str, folder: Path) -> Finding:
    return run_check(BY_NAME[name], folder).finding


def fake_java(folder: Path, version: str) -> Path:
    """A folder for the PATH with a `java` that says it is of this version."""
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return folder


def distribution(folder: Path, name: str, version: str) -> Path:
    """A folder for sys.path in which a package of this version is installed."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8"
    )
    return folder


def doctor_in(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "blazes", "doctor", "--quick", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_this_machine_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--quick"]) == 0
    printed = capsys.readouterr().out.replace("ok   ", "✓ ")
    for check in CHECKS:
        assert (f"✓ {check.name} " in printed) != check.starts


def test_quiet_says_nothing_where_all_is_well() -> None:
    done = doctor_in({}, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_json_twin_has_every_check() -> None:
    done = doctor_in({}, "--format", "json")
    result = json.loads(done.stdout)
    assert result["ok"] is True
    assert [check["name"] for check in result["checks"]] == [c.name for c in CHECKS if not c.starts]
    assert {check["status"] for check in result["checks"]} <= {"ok", "warn"}


def test_an_old_java_fails_with_the_remedy(tmp_path: Path) -> None:
    path = {"PATH": str(fake_java(tmp_path, "1.8.0_392")), "JAVA_HOME": ""}
    done = doctor_in(path, "--quiet")
    assert done.returncode == 1
    assert "Java 1.8.0_392; Spark needs 17 or newer" in done.stdout
    assert "apt install openjdk-17" in done.stdout
    assert "1 of 12 checks failed" in done.stdout
    result = json.loads(doctor_in(path, "--format", "json").stdout)
    assert result["ok"] is False
    (java,) = [check for check in result["checks"] if check["name"] == "java"]
    assert java["status"] == "fail"
    assert "Install Java 17" in java["remedy"]


def test_no_java_at_all(tmp_path: Path) -> None:
    done = doctor_in({"PATH": str(tmp_path), "JAVA_HOME": ""})
    assert done.returncode == 1
    assert "no `java` is on the PATH" in done.stdout


def test_ascii_where_the_output_is(tmp_path: Path) -> None:
    done = doctor_in({"PATH": str(tmp_path), "JAVA_HOME": "", "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1
    assert "fail java" in done.stdout
    assert done.stdout.isascii()


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("pandas", "3.0.1", "pandas 3.0.1 is installed, >=2.2,<3|<3,>=2.2"),
        ("kazoo", "2.2", "kazoo 2.2 is installed"),
        ("pyspark", "3.5.1", "pyspark 3.5.1 is installed"),
    ],
)
def test_a_package_outside_its_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str, message: str
) -> None:
    monkeypatch.syspath_prepend(str(distribution(tmp_path, name, version)))
    finding = result_of(name, tmp_path)
    assert finding.status is Status.FAIL
    assert any(part in finding.found for part in message.split("|"))
    assert finding.remedy.startswith("pip install")
    assert result_of("versions", tmp_path).status is Status.WARN


def test_a_package_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "requirements", lambda _: {"no-such-package": ((">=", "1"),)})
    finding = checks.package("no-such-package", tmp_path)
    assert finding.status is Status.FAIL
    assert "blazes[run]" in finding.remedy


def test_the_bounds_are_those_of_the_distribution() -> None:
    bounds = checks.requirements("run")
    packages = {
        "pyspark",
        "pandas",
        "pyarrow",
        "numpy",
        "kazoo",
        "duckdb",
        "rocksdict",
        "orjson",
        "msgspec",
        "obstore",
    }
    assert packages == set(bounds)
    assert ("<", "3") in bounds["pandas"]


@pytest.mark.parametrize(
    ("free_mb", "status"), [(24_000, Status.OK), (2500, Status.WARN), (500, Status.FAIL)]
)
def test_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_mb: int, status: Status
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: 99 kB\nMemAvailable:   {free_mb * 1024} kB\n", encoding="ascii")
    assert memory_available_mb(meminfo, tmp_path) == free_mb
    monkeypatch.setattr(checks, "memory_available_mb", lambda: free_mb)
    assert result_of("memory", tmp_path).status is status


def test_memory_is_what_the_container_has(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemAvailable: {8000 * 1024} kB\n", encoding="ascii")
    (tmp_path / "memory.max").write_text("max\n", encoding="ascii")
    (tmp_path / "memory.current").write_text("5\n", encoding="ascii")
    assert memory_available_mb(meminfo, tmp_path) == 8000
    (tmp_path / "memory.max").write_text(f"{1000 << 20}\n", encoding="ascii")
    (tmp_path / "memory.current").write_text(f"{400 << 20}\n", encoding="ascii")
    assert memory_available_mb(meminfo, tmp_path) == 600


def test_memory_of_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert memory_available_mb(tmp_path / "none", tmp_path / "none") is None


def test_disk_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    finding = result_of("disk", tmp_path / "file" / "target")
    assert finding.status is Status.FAIL
    assert "--target-dir" in finding.remedy
    assert result_of("disk", tmp_path / "not" / "yet" / "there").status is not Status.FAIL


@pytest.mark.parametrize(
    ("limit", "status"), [("DISK_FAIL_MB", Status.FAIL), ("DISK_WARN_MB", Status.WARN)]
)
def test_disk_that_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, status: Status
) -> None:
    monkeypatch.setattr(checks, limit, 1 << 50)
    finding = result_of("disk", tmp_path)
    assert finding.status is status
    assert "Make room" in finding.remedy


def test_a_machine_whose_name_has_no_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    finding = result_of("loopback", tmp_path)
    assert finding.status is Status.WARN
    assert "/etc/hosts" in finding.remedy


def test_an_unforeseen_error_is_a_failure_of_its_check(tmp_path: Path) -> None:
    def look(_: Path) -> Finding:
        raise RuntimeError("broken")

    finding = run_check(Check("x", "y", look), tmp_path).finding
    assert (finding.status, finding.found) == (Status.FAIL, "RuntimeError: broken")


def test_before_a_run_failures_stop_and_warnings_are_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.check_before_run(tmp_path) == ()
    monkeypatch.setattr(checks, "DISK_WARN_MB", 1 << 50)
    assert [warning.check.name for warning in doctor.check_before_run(tmp_path)] == ["disk"]
    monkeypatch.setenv("PATH", str(fake_java(tmp_path, "11.0.2")))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(CommandError, match="cannot run the job") as refused:
        doctor.check_before_run(tmp_path)
    assert "Java 11.0.2" in refused.value.message
    assert refused.value.remedy == "blazes doctor checks everything"


@pytest.mark.zookeeper
def test_zookeeper_is_started(tmp_path: Path) -> None:
    assert "answers" in result_of("zookeeper", tmp_path).found


@pytest.mark.zookeeper
def test_zookeeper_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding = result_of("zookeeper", tmp_path)
    assert finding.status is Status.FAIL
    assert "unset it" in finding.remedy


@pytest.mark.spark
def test_spark_runs_a_job(tmp_path: Path) -> None:
    assert result_of("spark", tmp_path) == Finding(Status.OK, "a small job gave the right answer")


@pytest.mark.spark
def test_spark_cannot_run_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/such/python")
    finding = result_of("spark", tmp_path)
    assert finding.status is Status.FAIL
    assert "/no/such/python" in finding.found
    assert "PYSPARK_PYTHON" in finding.remedy
