"""The formats that Spark brings, and the options that each of them knows.

Spark passes options on without a look: one that is misspelt has no effect. Options of readers and
writers, of batches and streams, are in one list; names are compared without case, as Spark does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FILES: Final = _names(
    "path paths basePath mergeSchema ignoreCorruptFiles ignoreMissingFiles "
    "ignoreInvalidPartitionPaths pathGlobFilter recursiveFileLookup modifiedBefore "
    "modifiedAfter timeZone "
    "compression maxFilesPerTrigger maxBytesPerTrigger latestFirst maxFileAge maxCachedFiles "
    "discardCachedInputRatio fileNameOnly cleanSource sourceArchiveDir retention "
    "maxRecordsPerFile partitionOverwriteMode parallelPartitionDiscovery singleVariantColumn "
    "checkpointLocation"
)
_TEXTS: Final = _names(
    "encoding charset lineSep mode columnNameOfCorruptRecord locale dateFormat timestampFormat "
    "timestampNTZFormat timeFormat enableDateTimeParsingFallback samplingRatio wholetext multiLine "
    "preferDate maxColumns maxCharsPerColumn inferSchema nullValue"
)
_STREAM: Final = _names("checkpointLocation path queryName")

OPTIONS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "json": _FILES
        | _TEXTS
        | _names(
            "primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames "
            "allowSingleQuotes allowNumericLeadingZeros allowNonNumericNumbers "
            "allowBackslashEscapingAnyCharacter allowUnquotedControlChars dropFieldIfAllNull "
            "ignoreNullFields pretty maxNestingDepth maxNumLen maxStringLen "
            "explodeEmbeddedArray writeNonAsciiCharacterAsCodePoint inferTimestamp "
            "useUnsafeRow sortKeys"
        ),
        "csv": _FILES
        | _TEXTS
        | _names(
            "sep delimiter quote escape comment header enforceSchema ignoreLeadingWhiteSpace "
            "ignoreTrailingWhiteSpace emptyValue nanValue positiveInf negativeInf "
            "charToEscapeQuoteEscaping escapeQuotes quoteAll unescapedQuoteHandling "
            "inputBufferSize columnPruning codec extension parserEnabled"
        ),
        "text": _FILES | _TEXTS,
        "parquet": _FILES
        | _names("datetimeRebaseMode int96RebaseMode outputTimestampType fieldIdRead"),
        "orc": _FILES,
        "avro": _FILES
        | _names(
            "avroSchema avroSchemaUrl recordName recordNamespace ignoreExtension mode "
            "datetimeRebaseMode positionalFieldMatching enableStableIdentifiersForUnionType "
            "stableIdentifierPrefixForUnionType recursiveFieldMaxDepth"
        ),
        "xml": _FILES
        | _TEXTS
        | _names(
            "rowTag excludeAttribute attributePrefix valueTag ignoreSurroundingSpaces "
            "rowValidationXSDPath ignoreNamespace wildcardColName rootTag declaration "
            "arrayElementName treatEmptyValuesAsNulls validateName indent "
            "useLegacyXMLParser prefersDecimal"
        ),
        "binaryfile": _FILES,
        "rate": _STREAM | _names("rowsPerSecond rampUpTime numPartitions"),
        "rate-micro-batch": _STREAM
        | _names("rowsPerBatch numPartitions startTimestamp advanceMillisPerBatch"),
        "socket": _STREAM | _names("host port includeTimestamp numPartitions"),
        "console": _STREAM | _names("numRows truncate"),
        "memory": _STREAM,
        "noop": _STREAM,
        "kafka": _STREAM
        | _names(
            "assign subscribe subscribePattern topic startingTimestamp startingOffsets "
            "startingOffsetsByTimestamp startingOffsetsByTimestampStrategy endingTimestamp "
            "endingOffsets endingOffsetsByTimestamp failOnDataLoss minPartitions "
            "maxRecordsPerPartition maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay "
            "includeHeaders groupIdPrefix fetchOffset.numRetries fetchOffset.retryIntervalMs "
            "kafkaConsumer.pollTimeoutMs fetchOffset.numRetries headers"
        ),
    }
)
"""Format -> its options. A name with a dot is passed on to something else and is not looked at."""

OTHERS: Final = _names(
    "delta deltasharing iceberg hudi jdbc table foreach foreachbatch kinesis aws-kinesis eventhubs "
    "pulsar redis mongodb mongo cassandra elasticsearch es opensearch bigquery snowflake redshift "
    "excel hbase cosmos cloudfiles pubsub pubsublite mqtt rabbitmq neo4j clickhouse doris "
    "starrocks phoenix kudu couchbase protobuf statestore state-metadata sqlserver sqldw "
    "paimon lance "
    "singlestore azure-event-hubs s3-sqs cloudpubsub image libsvm ratestreamv2"
)
"""Formats that are known by name only, of Spark and of others."""

COLUMNS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "kafka": _names("key value topic partition offset timestamp timestampType headers"),
        "rate": _names("timestamp value"),
        "rate-micro-batch": _names("timestamp value"),
        "socket": _names("value timestamp"),
    }
)
"""Format -> the columns that it brings, whatever the schema says."""

FILES: Final = _names("json csv text parquet orc avro xml")
"""Formats whose records have the columns of the schema."""


_SECRET_NAME: Final = re.compile(r"password|passwd|secret|token|credential|jaas|access.?key", re.I)
_SECRET_VALUE: Final = re.compile(
    r"(password|passwd|pwd|secret|token)=[^&;]|://[^/@:]+:[^/@]+@", re.I
)
_REFERENCE: Final = re.compile(r"\$\{(env|file):[^}]*\}")


def is_secret(option: str, value: str) -> bool:
    """True for an option whose value looks like one that nobody else should read.

    >>> is_secret("password", "hunter2"), is_secret("url", "jdbc:x://db/shop?password=hunter2")
    (True, True)
    >>> is_secret("password", "${env:DB_PASSWORD}"), is_secret("url", "jdbc:x://db/shop")
    (False, False)
    """
    literal = _REFERENCE.sub("", value)
    if _SECRET_NAME.search(option):
        return bool(literal.strip())
    return _SECRET_VALUE.search(literal) is not None


def is_known(format: str) -> bool:
    """True for a format of which something is known; a class name is not looked at."""
    return "." in format or format.lower() in OPTIONS or format.lower() in OTHERS


def unknown_option(format: str, option: str) -> bool:
    """True for an option that a known format does not have.

    >>> unknown_option("json", "optons"), unknown_option("JSON", "multiline")
    (True, False)
    >>> unknown_option("kafka", "kafka.bootstrap.servers"), unknown_option("delta", "x")
    (False, False)
    """
    known = OPTIONS.get(format.lower())
    if known is None or "." in option:
        return False
    return option.lower() not in {name.lower() for name in known}
