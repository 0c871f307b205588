"""The files of a bundle, without running it: they parse, and say what the job needs."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from annotations.file import loads
from blazes.analysis import analyze
from blazes.coordination import plan
from codegen.bundle import BundleError, distributions, files_of, write_archive
from codegen.deployment import Facts, texts
from codegen.stages import stages

ROOT = Path(__file__).parents[2]
FACTS = Facts(
    name="Ad_Network 1",
    python="3.11",
    spark="4.3.0",
    packages="--packages org.apache.spark:spark-avro_2.13:4.3.0",
    variables=("DB_PASSWORD", "ZK"),
    modules=("places.py", "more words.py"),
    stamp="0123456789ab",
)
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""Of services in Kubernetes: RFC 1035."""


def test_the_script_is_one_and_refuses_another_python(tmp_path: Path) -> None:
    script = tmp_path / "submit.sh"
    script.write_text(texts(FACTS)["submit.sh"])
    subprocess.run(["sh", "-n", script], check=True)
    assert FACTS.packages in script.read_text()
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    environment = {"PYSPARK_PYTHON": str(old), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "is not Python 3.11" in done.stderr


def test_the_script_takes_the_packages_of_its_own_archive(tmp_path: Path) -> None:
    """Also where those of an older bundle are unpacked already."""
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\ncat "${PYTHONPATH%%:*}/version"\n')
    program.chmod(0o755)
    environment = {
        "SPARK_HOME": str(tmp_path),
        "BLAZES_ENVIRONMENT": str(tmp_path / "unpacked"),
        "PYSPARK_PYTHON": sys.executable,
        "PATH": "/usr/bin:/bin",
    }
    (tmp_path / "bundle").mkdir()
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in ("older", "newer", "older"):
        (tmp_path / "version").write_text(version)
        files = [("version", tmp_path / "version")]
        stamp = write_archive(tmp_path / "bundle" / "environment.tar.gz", files)
        script = tmp_path / "bundle" / "submit.sh"
        script.write_text(texts(replace(FACTS, stamp=stamp, python=minor))["submit.sh"])
        done = subprocess.run(["sh", script], env=environment, capture_output=True, text=True)
        assert done.stdout == version, done.stderr


def test_the_manifest_names_all_variables_that_the_file_refers_to() -> None:
    """Those in the addresses of registries, too."""
    text = """
    streams:
      e:
        to: C.e
        schema: {id: INT}
        source:
          format: kafka
          value: {format: avro, registry: "http://${env:REGISTRY}@r"}
          options: {kafka.bootstrap.servers: "b:1", subscribe: e, kafka.sasl.password: "${env:IN}"}
      o:
        from: C.o
        delivery: once
        sink: {format: jdbc, options: {url: "jdbc:x", dbtable: o, password: "${env:OUT}"}}
    components: {C: {annotation: {from: e, to: o, label: CR}, sql: SELECT id FROM e}}
    deployment:
      conf: {spark.x: "${env:CONF}"}
      zookeeper: z:2181
      zookeeper_access: {user: u, password: "${env:ZK}"}
    """
    compiled = stages(plan(analyze(loads(text)[0])))
    facts = Facts.of(compiled, (), None, stamp="")
    assert facts.variables == ("CONF", "IN", "OUT", "REGISTRY", "ZK")


def test_the_manifest_is_one_driver_with_a_volume_and_its_secrets() -> None:
    service, manifest = yaml.safe_load_all(texts(FACTS)["kubernetes.yaml"])
    assert (service["apiVersion"], service["kind"]) == ("v1", "Service")
    assert service["metadata"]["name"] == manifest["spec"]["serviceName"]
    assert service["spec"]["selector"] == manifest["spec"]["selector"]["matchLabels"]
    assert (manifest["apiVersion"], manifest["kind"]) == ("apps/v1", "StatefulSet")
    assert DNS_LABEL.fullmatch(manifest["metadata"]["name"])
    spec = manifest["spec"]
    assert spec["replicas"] == 1
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    (container,) = spec["template"]["spec"]["containers"]
    variables = {entry["name"]: entry["valueFrom"]["secretKeyRef"] for entry in container["env"]}
    assert variables == {name: {"name": "ad-network-1", "key": name} for name in FACTS.variables}
    (volume,) = spec["volumeClaimTemplates"]
    (mount,) = container["volumeMounts"]
    assert mount["name"] == volume["metadata"]["name"]
    assert mount["mountPath"] in container["args"]


def test_the_image_has_all_files_of_the_bundle_and_no_root() -> None:
    lines = texts(FACTS)["Dockerfile"].replace("\\\n", "").splitlines()
    words = [line.split(maxsplit=1) for line in lines if line and line[0] != "#"]
    first = ["FROM", "RUN", "ADD"]
    assert [word for word, _ in words] == [
        *first, *("FROM", "RUN", "COPY", "COPY", "COPY", "USER", "WORKDIR", "ENTRYPOINT", "CMD"),
    ]  # fmt: skip
    given = [word for words in words for word in words]
    for file in ("environment.tar.gz", "submit.sh", "job.py", "plan.json", *FACTS.modules):
        assert file in json.loads(given[given.index("USER") - 1])
    for word, rest in words:
        if word in ("ENTRYPOINT", "CMD"):
            json.loads(rest)
    assert dict(words)["USER"] == "1000"  # a number: Kubernetes can see that it is not root


def test_the_unit_starts_the_script_and_does_not_repeat_bad_usage() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read_string(texts(FACTS)["ad-network-1.service"])
    service = unit["Service"]
    assert service["ExecStart"].split()[0] == "/opt/ad-network-1/submit.sh"
    assert service["RestartPreventExitStatus"] == "2 3"
    assert service["Restart"] == "on-failure"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = texts(FACTS)["ad-network-1.service"].replace("/opt/ad-network-1/submit.sh", "/bin/true")
    for mistake in ("", "[Service]\nType=onshot\n"):
        file = tmp_path / "job.service"
        file.write_text(text + mistake)
        done = subprocess.run(["systemd-analyze", "verify", file], capture_output=True, text=True)
        assert (done.returncode, "onshot" in done.stderr) == (0, bool(mistake)), done.stderr
        assert mistake or not done.stderr


def test_an_archive_has_what_packages_need_and_not_spark(tmp_path: Path) -> None:
    found = distributions(["pandas", "pyspark", "kazoo"])
    assert {"pandas", "kazoo", "python-dateutil", "six", "numpy"} <= found.keys()
    assert not {"pyspark", "py4j", "pytest"} & found.keys()
    small = [found[name] for name in ("six", "kazoo")]
    for name in ("one", "two"):
        write_archive(tmp_path / name, files_of(small))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with tarfile.open(tmp_path / "one") as archive:
        names = set(archive.getnames())
    assert {"six.py", "kazoo/client.py", "flux_runtime/spark/main.py"} <= names
    assert not [name for name in names if "/tests/" in name or name.endswith(".pyc")]


def test_what_is_not_installed_is_named_with_its_remedy() -> None:
    with pytest.raises(BundleError, match="pip install no-such-package"):
        distributions(["kazoo", "no-such-package"])


def test_the_examples_for_schedulers_are_python() -> None:
    page = (ROOT / "docs" / "how-to" / "deploy-a-job.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(blocks) == 2
    for block in blocks:
        compile(block, "deploy-a-job.md", "exec")
