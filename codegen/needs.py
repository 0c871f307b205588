"""The needs of a job beside the runtime: Python packages, and packages that Spark is given."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from annotations.dataflow import Avro
from codegen.model import Guarantee, Sink, Source, Stages

SCALA: Final = "2.13"
"""Of Spark 4."""
VERSION: Final = "VERSION"
"""In coordinates of a package that is not Spark's: the one that fits the user's Spark or server."""
DRIVERS: Final[Mapping[str, str]] = {
    "postgresql": "org.postgresql:postgresql",
    "mysql": "com.mysql:mysql-connector-j",
    "mariadb": "org.mariadb.jdbc:mariadb-java-client",
    "sqlserver": "com.microsoft.sqlserver:mssql-jdbc",
    "oracle": "com.oracle.database.jdbc:ojdbc11",
    "db2": "com.ibm.db2:jcc",
}
"""The word after `jdbc:` in an address -> the package of its driver. Derby's ships with Spark."""


@dataclass(frozen=True, slots=True)
class Need:
    """Something that has to be installed or given to Spark.

    Args:
        what: for people: `avro files`.
        streams: whose source or sink needs it; or the setting that does.
        extra: of this distribution: `pip install 'blazes[EXTRA]'`; None: it is Spark's package.
        package: coordinates for `--packages`, where it is not an extra.
    """

    what: str
    streams: tuple[str, ...]
    extra: str | None = None
    package: str | None = None

    @property
    def remedy(self) -> str:
        """How it is got."""
        if self.extra is not None:
            return f"pip install 'blazes[{self.extra}]'"
        return f"--packages {self.package}"

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "what": self.what,
            "streams": list(self.streams),
            "extra": self.extra,
            "package": self.package,
        }


def needs(stages: Stages) -> tuple[Need, ...]:
    """The needs of a job, each once; without the packages that its Spark settings name."""
    by_remedy: dict[str, Need] = {}
    for stage in stages:
        if isinstance(stage, Source | Sink):
            for need in _of_end(stage):
                known = by_remedy.get(need.remedy, replace(need, streams=()))
                by_remedy[need.remedy] = replace(known, streams=(*known.streams, stage.name))
    deployment = stages.plan.analysis.dataflow.deployment
    if "sasl" in deployment.zookeeper_access:
        sasl = Need("SASL", ("zookeeper_access",), extra="sasl")
        by_remedy[sasl.remedy] = sasl
    conf = deployment.conf
    given = f"{conf.get('spark.jars.packages', '')},{conf.get('spark.jars', '')}"
    return tuple(need for need in by_remedy.values() if not _is_given(need, given))


def submit_option(job_needs: tuple[Need, ...]) -> str | None:
    """The option of spark-submit for the packages, `--packages ...`; None: there are none."""
    packages = [need.package for need in job_needs if need.package is not None]
    return f"--packages {','.join(packages)}" if packages else None


def install_command(job_needs: tuple[Need, ...]) -> str | None:
    """The command that installs the Python packages; None: there are none."""
    extras = [need.extra for need in job_needs if need.extra is not None]
    return f"pip install 'blazes[{','.join(sorted(extras))}]'" if extras else None


def _of_end(stage: Source | Sink) -> Iterator[Need]:
    end = stage.external
    match end.format.lower():
        case "avro":
            yield Need("avro files", (), package=_of_spark("spark-avro"))
        case "kafka" if (
            isinstance(stage, Source)
            or isinstance(end.value, Avro)
            or stage.guarantee is Guarantee.EXACTLY_ONCE
        ):
            yield Need("topics of Kafka", (), extra="kafka")
            if isinstance(end.value, Avro):
                yield Need("values in Avro", (), extra="avro")
        case "kafka":
            yield Need("appending to topics", (), package=_of_spark("spark-sql-kafka-0-10"))
        case "delta" if isinstance(stage, Sink):
            yield Need("Delta tables", (), extra="delta")
        case "delta":
            package = f"io.delta:delta-spark_{SCALA}:{VERSION}"
            yield Need("Delta tables as sources", (), package=package)
        case "iceberg":
            package = f"org.apache.iceberg:iceberg-spark-runtime-4.0_{SCALA}:{VERSION}"
            yield Need("Iceberg tables", (), package=package)
        case "jdbc":
            options = {name.lower(): text for name, text in end.options.items()}
            database = options.get("url", "").removeprefix("jdbc:").partition(":")[0]
            if database in DRIVERS:
                yield Need(
                    f"the driver of {database}", (), package=f"{DRIVERS[database]}:{VERSION}"
                )
    if end.path is not None and urlsplit(end.path).scheme == "s3a" and end.format != "delta":
        package = f"org.apache.hadoop:hadoop-aws:{VERSION}"
        yield Need("files at s3a:", (), package=package)


def _of_spark(artifact: str) -> str:
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        version = VERSION
    return f"org.apache.spark:{artifact}_{SCALA}:{version}"


def _is_given(need: Need, given: str) -> bool:
    return need.package is not None and artifact_of(need.package) in given


def artifact_of(package: str) -> str:
    """The name of a package without its Scala and its version, as its jar begins.

    >>> artifact_of("org.apache.spark:spark-avro_2.13:4.3.0")
    'spark-avro'
    """
    return package.split(":")[1].partition(f"_{SCALA}")[0]
