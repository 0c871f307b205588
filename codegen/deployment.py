"""The files of a bundle that say how the job is started, on a machine or a cluster."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from annotations.dataflow import Avro
from codegen.model import Sink, Source, Stages

REFERENCE: Final = re.compile(r"\$\{env:([^}]*)\}")
"""A secret that is a variable of the environment."""

LABEL_MAX: Final = 52
"""Characters of a StatefulSet's name: its pods have a label with ten more, and 63 at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts that the files are made of.

    Args:
        name: of the dataflow.
        python: minor version, `3.11`.
        spark: version of PySpark here.
        packages: option of spark-submit for Spark's packages; empty: none.
        variables: of the environment that secrets are in.
        modules: files of operators beside the job.
        stamp: what tells the archive of packages from others.
    """

    name: str
    python: str
    spark: str
    packages: str
    variables: tuple[str, ...]
    modules: tuple[str, ...]
    stamp: str

    @classmethod
    def of(
        cls, stages: Stages, modules: Iterable[str], packages: str | None, *, stamp: str
    ) -> Self:
        """The facts about a job that is compiled here."""
        deployment = stages.plan.analysis.dataflow.deployment
        texts = [*deployment.conf.values(), *deployment.zookeeper_access.values()]
        for stage in stages:
            if isinstance(stage, Source | Sink):
                value = stage.external.value
                texts += stage.external.options.values()
                texts += [value.registry or ""] if isinstance(value, Avro) else []
        variables = {name for text in texts for name in REFERENCE.findall(str(text))}
        return cls(
            name=stages.name,
            python=f"{sys.version_info.major}.{sys.version_info.minor}",
            spark=importlib.metadata.version("pyspark"),
            packages=packages or "",
            variables=tuple(sorted(variables)),
            modules=tuple(modules),
            stamp=stamp,
        )

    @property
    def label(self) -> str:
        """The name as Kubernetes and systemd take it: a label of RFC 1035, without digits first.

        >>> from dataclasses import replace
        >>> facts = Facts(name="2024 Ad_Network", python="", spark="", packages="", variables=(),
        ...               modules=(), stamp="")
        >>> facts.label, len(replace(facts, name="x" * 99).label)
        ('job-2024-ad-network', 52)
        """
        words = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        named = words if words[:1].isalpha() else f"job-{words}"
        return named[:LABEL_MAX].rstrip("-")


def texts(facts: Facts) -> Mapping[str, str]:
    """File -> its text."""
    return {
        "submit.sh": submit(facts),
        "Dockerfile": dockerfile(facts),
        "kubernetes.yaml": kubernetes(facts),
        f"{facts.label}.service": unit(facts),
    }


def submit(facts: Facts) -> str:
    """The script that starts the job wherever the bundle lies."""
    packages = f"{facts.packages} " if facts.packages else ""
    major, minor = facts.python.split(".")
    return f"""\
#!/bin/sh
# Starts the job {facts.name} with spark-submit: ./submit.sh --data-dir /data/{facts.label}
# The arguments are the job's (--help lists them). Options of spark-submit: SPARK_SUBMIT_OPTIONS.
# PYSPARK_PYTHON is a Python {facts.python}. BLAZES_ENVIRONMENT is where packages are unpacked, of
# each archive in a folder of its own.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${{PYSPARK_PYTHON:-python3}}
export PYSPARK_PYTHON="$python"
if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != ({major}, {minor}))'; then
    echo "$python is not Python {facts.python}, as the packages need it: set PYSPARK_PYTHON" >&2
    exit 2
fi
environment=${{BLAZES_ENVIRONMENT:-$here/environment}}/{facts.stamp}
if [ ! -d "$environment" ]; then
    mkdir -p "${{environment%/*}}"
    parts=$(mktemp -d "$environment.XXXXXX")
    tar -xzf "$here/environment.tar.gz" -C "$parts"
    mv -T "$parts" "$environment" 2>/dev/null || rm -rf "$parts"  # another one was faster
fi
export PYTHONPATH="$environment${{PYTHONPATH:+:$PYTHONPATH}}"
exec "${{SPARK_HOME:+$SPARK_HOME/bin/}}spark-submit" \\
    --archives "$here/environment.tar.gz#environment" \\
    --conf spark.executorEnv.PYTHONPATH=environment \\
    {packages}${{SPARK_SUBMIT_OPTIONS:-}} "$here/job.py" "$@"
"""


def dockerfile(facts: Facts) -> str:
    """An image of the driver, which runs executors in its own process unless told otherwise."""
    files = ["environment.tar.gz", "submit.sh", "job.py", "plan.json", *facts.modules]
    beside = json.dumps([*files, "/job/"], ensure_ascii=False)  # in this form, names have spaces
    return f"""\
# docker build -t {facts.label} . && docker run -v /srv/{facts.label}:/data {facts.label}
FROM python:{facts.python}-slim-bookworm AS packages
RUN pip install --no-cache-dir --prefix /packages pyspark=={facts.spark}
ADD environment.tar.gz /environment/{facts.stamp}/

FROM python:{facts.python}-slim-bookworm
RUN apt-get update \\
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \\
    && rm -rf /var/lib/apt/lists/* \\
    && useradd --uid 1000 --create-home job \\
    && mkdir /data \\
    && chown job /data
COPY --from=packages /packages /usr/local
COPY --from=packages /environment /job/environment
COPY {beside}
USER 1000
WORKDIR /data
ENTRYPOINT ["/job/submit.sh"]
CMD ["--data-dir", "/data"]
"""


def kubernetes(facts: Facts) -> str:
    """One driver at a time, with a volume for its state, and secrets from a Secret."""
    secrets = ""
    if facts.variables:
        entries = "".join(
            f"""
            - name: {variable}
              valueFrom: {{secretKeyRef: {{name: {facts.label}, key: {variable}}}}}"""
            for variable in facts.variables
        )
        secrets = f"\n          env:{entries}"
    return f"""\
# kubectl apply -f kubernetes.yaml, with `image` pushed where the cluster finds it.
# A StatefulSet of one: the state has one driver at a time, and a new one goes on from it.
# The Service gives its pod a name in the cluster.
apiVersion: v1
kind: Service
metadata:
  name: {facts.label}
spec:
  clusterIP: None
  selector: {{app: {facts.label}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {facts.label}
spec:
  serviceName: {facts.label}
  replicas: 1
  selector:
    matchLabels: {{app: {facts.label}}}
  template:
    metadata:
      labels: {{app: {facts.label}}}
    spec:
      securityContext: {{runAsNonRoot: true, fsGroup: 1000}}
      terminationGracePeriodSeconds: 60
      containers:
        - name: driver
          image: {facts.label}:latest
          args: ["--data-dir", "/data"]{secrets}
          securityContext:
            allowPrivilegeEscalation: false
            capabilities: {{drop: [ALL]}}
          resources:
            requests: {{cpu: "1", memory: 3Gi}}
            limits: {{memory: 4Gi}}
          volumeMounts:
            - {{name: data, mountPath: /data}}
  volumeClaimTemplates:
    - metadata: {{name: data}}
      spec:
        accessModes: [ReadWriteOnce]
        resources: {{requests: {{storage: 10Gi}}}}
"""


def unit(facts: Facts) -> str:
    """A systemd unit of the driver."""
    return f"""\
# cp -r . /opt/{facts.label} && cp {facts.label}.service /etc/systemd/system/
# systemctl enable --now {facts.label}
[Unit]
Description=The Spark job {facts.name}
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=/opt/{facts.label}/submit.sh --data-dir /var/lib/{facts.label}
StateDirectory={facts.label}
WorkingDirectory=/var/lib/{facts.label}
# secrets and SPARK_HOME: NAME=value lines, readable by root alone
EnvironmentFile=-/etc/{facts.label}.env
Environment=BLAZES_ENVIRONMENT=/var/lib/{facts.label}/environment
DynamicUser=yes
Restart=on-failure
RestartSec=10
# what is left at the end of a run is no failure, and bad usage does not go away
RestartPreventExitStatus=2 3
# nothing is lost: what was at work is done again
KillMode=mixed
TimeoutStopSec=60

[Install]
WantedBy=multi-user.target
"""
