"""A run as OpenLineage events: it started, with its inputs and outputs, and how it ended.

OpenLineage's own client (`pip install 'blazes[lineage]'`) sends them to where its environment
variables say, such as `OPENLINEAGE_URL`; without any of them nothing is sent. Whether they arrive
decides nothing: a job runs on without them.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from flux_runtime.secrets import redacted
from flux_runtime.spark.ends.outputs import Sink
from flux_runtime.spark.ends.source import Source
from flux_runtime.spark.job import Job

PREFIX: Final = "OPENLINEAGE"
NAMESPACE: Final = "OPENLINEAGE_NAMESPACE"
"""Environment variable: the namespace of jobs."""
PARENT: Final = "OPENLINEAGE_PARENT_ID"
"""Environment variable: `namespace/job/run id` of what has started the job, such as a task."""
PRODUCER: Final = "https://pypi.org/project/blazes"
log = logging.getLogger(__name__)


def datasets_of(end: Source | Sink) -> Iterator[tuple[str, str]]:
    """(namespace, name) of a source or sink by OpenLineage's rules; nothing of a user or password.

    >>> [*datasets_of(Source(name="s", format="json", path="s3a://bucket/in/"))]
    [('s3://bucket', 'in')]
    >>> topics = {"kafka.bootstrap.servers": "a:9092,b:9092", "subscribe": "x, y"}
    >>> [*datasets_of(Source(name="s", format="kafka", options=topics))]
    [('kafka://a:9092', 'x'), ('kafka://a:9092', 'y')]
    >>> table = {"url": "jdbc:postgresql://u:p@db:5432/shop?password=p", "dbtable": "out"}
    >>> [*datasets_of(Source(name="s", format="jdbc", options=table))]
    [('postgres://db:5432', 'shop.public.out')]
    """
    options = {name.lower(): text for name, text in end.options.items()}
    if end.path is not None:
        yield _of_path(end.path)
    elif end.format == "kafka":
        servers = options.get("kafka.bootstrap.servers", "").split(",")[0].strip()
        topics = options.get("subscribe") or options.get("topic") or end.name
        yield from ((f"kafka://{servers}", topic.strip()) for topic in topics.split(","))
    elif end.format == "jdbc" and "url" in options:
        yield _of_table(options["url"], options.get("dbtable", end.name))
    else:
        yield end.format, end.name


def _of_path(path: str) -> tuple[str, str]:
    parts = urlsplit(path)
    if parts.scheme in ("", "file"):
        return "file", parts.path
    scheme = {"s3a": "s3", "s3n": "s3", "gs": "gs"}.get(parts.scheme, parts.scheme)
    return f"{scheme}://{parts.netloc}", parts.path.strip("/") or "/"


def _of_table(url: str, table: str) -> tuple[str, str]:
    parts = urlsplit(url.removeprefix("jdbc:"))
    scheme = {"postgresql": "postgres"}.get(parts.scheme, parts.scheme)
    if parts.hostname is None:  # an embedded database, such as derby:folder;create=true
        return scheme, f"{parts.path.partition(';')[0]}.{table}"
    port = {"postgres": ":5432", "mysql": ":3306"}.get(scheme, "")
    if scheme == "postgres" and "." not in table:
        table = f"public.{table}"
    address = f"{scheme}://{parts.hostname}{f':{parts.port}' if parts.port else port}"
    return address, f"{parts.path.strip('/')}.{table}"


class Lineage:
    """The events of one run.

    Args:
        client: sends them; None: nothing is sent.
        job: what runs.
        name: of the job.
        available_now: it ends when it has read what there is.
    """

    def __init__(self, client: Any, job: Job, name: str, *, available_now: bool) -> None:
        self._client = client
        self._job = job
        self._name = name
        self._available_now = available_now
        self._inputs: list[Any] = []
        self._started = False
        if client is not None:
            from openlineage.client.uuid import generate_new_uuid

            self._run = str(generate_new_uuid())

    @classmethod
    def of(cls, job: Job, name: str, *, available_now: bool) -> Lineage:
        """Those of a run, as the environment says where they go."""
        return cls(_client(), job, name, available_now=available_now)

    def started(self, session: SparkSession) -> None:
        """The job has started: sources with their columns, and sinks."""
        if self._client is None:
            return
        try:
            self._inputs = [*self._sources(session)]
        except Exception:
            log.warning("the sources' columns are left out of lineage", exc_info=True)
        self._started = True
        self._send("START", self._outputs({}), {"processing_engine": _engine(session)})

    def ended(self, units: Mapping[str, Mapping[str, Any]]) -> None:
        """The job has ended well.

        Args:
            units: unit -> its metrics; `sink_rows` are rows of each sink.
        """
        if self._started:
            rows = Counter[str]()
            for values in units.values():
                rows.update(values.get("sink_rows", {}))
            self._send("COMPLETE", self._outputs(rows), {})

    def failed(self, error: BaseException) -> None:
        """The job has failed."""
        if self._started:
            from openlineage.client.facet_v2 import error_message_run

            facet = error_message_run.ErrorMessageRunFacet(
                message=redacted(f"{type(error).__name__}: {error}")[:2000],
                programmingLanguage="python",
            )
            self._send("FAIL", self._outputs({}), {"errorMessage": facet})

    # ---- parts

    def _sources(self, session: SparkSession) -> Iterator[Any]:
        from openlineage.client.event_v2 import InputDataset

        for source in self._job.sources.values():
            facets = {"schema": _schema(source.schema(session))}
            for namespace, name in datasets_of(source):
                yield InputDataset(namespace=namespace, name=name, facets=facets)

    def _outputs(self, rows: Mapping[str, int]) -> list[Any]:
        from openlineage.client.event_v2 import OutputDataset
        from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

        return [
            OutputDataset(
                namespace=namespace,
                name=name,
                outputFacets={
                    "outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(
                        rowCount=rows[sink.name]
                    )
                }
                if sink.name in rows
                else {},
            )
            for sink in self._job.sinks.values()
            for namespace, name in datasets_of(sink)
        ]

    def _send(self, state: str, outputs: list[Any], facets: Mapping[str, Any]) -> None:
        from openlineage.client import event_v2 as events
        from openlineage.client.facet_v2 import job_type_job

        kind = job_type_job.JobTypeJobFacet(
            processingType="BATCH" if self._available_now else "STREAMING",
            integration="SPARK",
            jobType="JOB",
        )
        namespace = os.environ.get(NAMESPACE, "default")
        event = events.RunEvent(
            eventType=events.RunState[state],
            eventTime=datetime.now(UTC).isoformat(),
            run=events.Run(self._run, facets={**facets, **_parent()}),
            job=events.Job(namespace, self._name, facets={"jobType": kind}),
            producer=PRODUCER,
            inputs=self._inputs,
            outputs=outputs,
        )
        try:
            self._client.emit(event)
        except Exception as error:
            log.warning("an OpenLineage event was not sent: %s", redacted(str(error)))


def _client() -> Any:
    """OpenLineage's client, if its environment variables ask for events."""
    if not any(name.startswith(PREFIX) for name in os.environ):
        return None
    try:
        from openlineage.client import OpenLineageClient
    except ImportError:
        log.warning("no OpenLineage events are sent: pip install 'blazes[lineage]'")
        return None
    try:
        return OpenLineageClient()
    except Exception as error:
        log.warning("no OpenLineage events are sent: %s", redacted(str(error)))
        return None


def _schema(columns: StructType) -> Any:
    from openlineage.client.facet_v2 import schema_dataset as schema

    return schema.SchemaDatasetFacet(
        fields=[
            schema.SchemaDatasetFacetFields(name=column.name, type=column.dataType.simpleString())
            for column in columns.fields
        ]
    )


def _engine(session: SparkSession) -> Any:
    from openlineage.client.facet_v2 import processing_engine_run

    return processing_engine_run.ProcessingEngineRunFacet(
        version=session.version,
        name="spark",
        openlineageAdapterVersion=importlib.metadata.version("openlineage-python"),
    )


def _parent() -> Mapping[str, Any]:
    namespace, _, rest = os.environ.get(PARENT, "").partition("/")
    name, _, run = rest.rpartition("/")
    if not (namespace and name and run):
        return {}
    from openlineage.client.facet_v2 import parent_run

    of = parent_run.Job(namespace=namespace, name=name)
    return {"parent": parent_run.ParentRunFacet(run=parent_run.Run(runId=run), job=of)}
