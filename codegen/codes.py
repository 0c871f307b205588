"""The compiler's refusals, BLZ5xx: one row for each kind of mistake."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from annotations.diagnostics import Code, Severity

_ROWS: Final = (
    Code(
        "BLZ501",
        Severity.ERROR,
        "a source without a format",
        "A job reads its external streams through a Spark source; nothing is guessed about where "
        "the records come from.",
        "give the stream a source: {format: json, path: data/NAME}",
    ),
    Code(
        "BLZ502",
        Severity.ERROR,
        "a file source without a schema",
        "A streaming query over files needs the schema before the first file is there.",
        "give the stream a schema: {attribute: type, ...}, with every column of the files",
    ),
    Code(
        "BLZ503",
        Severity.ERROR,
        "files or a Delta table without a path",
        "A file format reads a folder, and a Delta table is one, or is in an object store.",
        "add path: to it; a relative path starts at the folder of the dataflow file",
    ),
    Code(
        "BLZ504",
        Severity.ERROR,
        "an output without an implementation",
        "Only a confluent output with a single input interface may pass its records through. What "
        "several inputs, or an order-sensitive output, become is the author's to say.",
        "give the component sql: or python:",
    ),
    Code(
        "BLZ505",
        Severity.ERROR,
        "rules that are analysed and not executed",
        "Bloom rules give the annotations of a component; the jobs run Spark SQL and Python.",
        "give the component sql: or python: with its annotation, as blazes derive prints it",
    ),
    Code(
        "BLZ506",
        Severity.ERROR,
        "an operator that is not there",
        "The job would fail when it starts.",
        "python: is module:function, and so is the function of a sink; the module is a file beside "
        "the dataflow, or installed",
    ),
    Code(
        "BLZ507",
        Severity.ERROR,
        "an operator that does not take the component's inputs",
        "The function is called with one DataFrame for each input interface, by name.",
        "name the parameters of the function after the input interfaces",
    ),
    Code(
        "BLZ508",
        Severity.ERROR,
        "an operator module under a name that is taken",
        "The module would hide one that the job itself imports.",
        "give the module another name",
    ),
    Code(
        "BLZ509",
        Severity.ERROR,
        "a function of which nothing is known",
        "The component has no annotation, and its Python function was not run to be read, or could "
        "not be read. A job that is coordinated for it would rest on nothing.",
        "run the function to be read with --execute, correct it if that fails, or write the "
        "component's annotation",
    ),
    Code(
        "BLZ510",
        Severity.ERROR,
        "a setting with which Spark computes what Flux sites do not",
        "A site computes as Spark does with the settings that Spark has by itself and in UTC: "
        "where ANSI mode is off, or days begin at another hour, Spark's answers would be others.",
        "leave the setting out of conf, or availability and engine out of the component",
    ),
    Code(
        "BLZ511",
        Severity.ERROR,
        "engine: spark where only Flux sites do",
        "Replicas agree on one order, and a component survives without a pause, on Flux sites; "
        "a forced engine must not weaken that.",
        "leave engine out, or seal a stream instead of ordering it, or set Rep: false",
    ),
    Code(
        "BLZ512",
        Severity.ERROR,
        "a sealed component that would run on Flux sites",
        "Seals are kept by Spark, which restarts what fails and goes on from what is durable.",
        "leave availability and engine out, or remove the seal: the component is then ordered",
    ),
    Code(
        "BLZ513",
        Severity.ERROR,
        "a Flux operator where the component runs on Spark",
        "Only Flux sites run operators.",
        "set availability: pairs, or give the component sql: or python:",
    ),
    Code(
        "BLZ514",
        Severity.ERROR,
        "an output whose inputs are coordinated in different ways",
        "One function computes the output from all of its inputs: they are either released "
        "together, partition by partition, or ordered together.",
        "give the paths outputs of their own, or seal the other inputs too",
    ),
    Code(
        "BLZ515",
        Severity.ERROR,
        "code that a Flux site cannot run",
        "A site is a process beside Spark. It runs SQL that is known to mean the same in DuckDB, "
        "and Python that does the same in both copies: confluent functions that map batches, "
        "StatefulProcessors, Flux operators.",
        "correct the SQL or the Python, or write a function that returns mapInPandas or mapInArrow "
        "of its input (python: module:function, annotation CR), a StatefulProcessor (processor: "
        "{class: module:Class, key: [...]}), or a Flux operator (operator: module:function)",
    ),
    Code(
        "BLZ516",
        Severity.ERROR,
        "a Flux operator whose output has no schema",
        "What reads the output has to know its columns before anything has run.",
        "add schema: to the stream that leaves it",
    ),
    Code(
        "BLZ517",
        Severity.ERROR,
        "a sink that compiled jobs cannot write like that",
        "Jobs commit files, Delta tables, topics of Kafka and tables of databases (jdbc) once, and "
        "append to all other sinks, which do not remember what batches they have. Only tables of "
        "databases have their rows replaced by a key.",
        "write to one of these; or drop the sink's key and the stream's delivery: once, if rows "
        "may come again",
    ),
    Code(
        "BLZ518",
        Severity.ERROR,
        "a sealed stream that would have to be de-duplicated",
        "Only what waits for the seal knows the punctuations of a sealed stream, and drops known "
        "records before it counts.",
        "de-duplicate the records before they come in, or give the component that they harm a gate "
        "that the seal fits",
    ),
    Code(
        "BLZ519",
        Severity.ERROR,
        "rows at an address that cannot hold them",
        "Files are committed by renaming a folder in one step, which object stores cannot do. A "
        "Delta table is committed by an entry in its log, in a folder or in a store that the "
        "package deltalake reaches; a name of a metastore (gold.orders) is no address.",
        "give the sink format: delta, or a path on a mounted file system; of a table its location",
    ),
    Code(
        "BLZ520",
        Severity.ERROR,
        "a column that the format of a sink cannot hold",
        "The job would stop at its first rows, each time it is started.",
        "write to a format that can, or CAST the column in the component (to_json(x) AS x)",
    ),
    Code(
        "BLZ521",
        Severity.ERROR,
        "a seal that nothing announces",
        "A partition is complete when its producers say so, or when time says so under a promise.",
        "declare punctuation: {when: ..., count: ...} and producers:, or lateness: for a seal on "
        "event time, or remove the seal",
    ),
    Code(
        "BLZ522",
        Severity.ERROR,
        "a sealed stream whose producers are not known",
        "A partition is complete when every producer that contributes to it has punctuated it.",
        "declare producers: one, registered, or a list of names; and producer: the column that "
        "holds the name",
    ),
    Code(
        "BLZ523",
        Severity.ERROR,
        "a seal that does not get through",
        "Punctuations travel through record-wise transforms, and leave a sealed component with its "
        "partitions. A confluent component between waits for partitions too, where its SQL gives, "
        "partition by partition, what it gives of all records together; else nothing is forwarded.",
        "write the component between as SQL that joins, groups and selects by the key; or move the "
        "sealed component before it",
    ),
    Code(
        "BLZ524",
        Severity.ERROR,
        "a stream that comes on two ways with two keys",
        "The inputs of one output are released together, for one value of one key.",
        "give the stream's key the same name on both ways",
    ),
    Code(
        "BLZ525",
        Severity.ERROR,
        "a request that does not say which partition it reads",
        "A request waits until the partition that it reads is released (SE-12), and must name it.",
        "add the attributes of the key to the stream of requests",
    ),
    Code(
        "BLZ526",
        Severity.ERROR,
        "a lateness promise that cannot be used here",
        "A promise becomes a Spark watermark: one stream, one timestamp that the SQL groups on, "
        "and only record-wise transforms between.",
        "declare punctuation: and producers: for the stream",
    ),
    Code(
        "BLZ527",
        Severity.ERROR,
        "a seal or an id on a type that does not tell values apart",
        "Partitions are told apart by the value of their key, and records by that of their id. A "
        "nested value is not one value, and under a collation different texts are equal.",
        "use attributes of an atomic type: a part of the nested value, the text under the "
        "collation UTF8_BINARY, an interval with units (DAY TO SECOND, YEAR TO MONTH)",
    ),
    Code(
        "BLZ528",
        Severity.ERROR,
        "a seal on a key of several types",
        "A partition goes by the text of its key. Integers of any width have the same text; other "
        "types have not: a FLOAT of 0.1 that is compared with a DOUBLE is 0.10000000149011612, and "
        "a comparison of a number with a text reads the text.",
        "give the attributes of the key the same type in the schemas of all streams",
    ),
    Code(
        "BLZ529",
        Severity.ERROR,
        "a column whose name is taken",
        "Spark tells no columns apart by upper and lower case alone, and beside the columns of "
        "records a job has some of its own, such as __producer and __count.",
        "give the column another name: in what writes the source, or AS in the component",
    ),
    Code(
        "BLZ530",
        Severity.ERROR,
        "a sink that writes where a source reads",
        "The job would read its own results, again and again: a cycle of which the analysis does "
        "not know.",
        "write somewhere else; for a cycle that is meant, give one stream both from: and to:",
    ),
    Code(
        "BLZ531",
        Severity.ERROR,
        "an order-sensitive component in a cycle",
        "A cycle runs until nothing new comes out. That ends in one result only where every "
        "component in it is confluent.",
        "make the component confluent (CR or CW), or take it out of the cycle",
    ),
    Code(
        "BLZ532",
        Severity.ERROR,
        "a cycle without a schema",
        "A stream that feeds itself must say what is in it before the first record is there.",
        "declare schema: on the stream",
    ),
    Code(
        "BLZ533",
        Severity.ERROR,
        "an engine that cannot be forced on a cycle",
        "Records in a cycle are kept as a set; update mode writes a group again and again.",
        "use output_mode: append",
    ),
    Code(
        "BLZ534",
        Severity.ERROR,
        "Flux sites in a cycle",
        "A Flux stage reads its input in one order, in which its own output would have to stand.",
        "leave availability and engine out",
    ),
    Code(
        "BLZ535",
        Severity.ERROR,
        "one copy where a second is needed",
        "What goes on when a process fails, and what moves while it works, has a second copy on "
        "another site that does the work meanwhile.",
        "set copies: 2 and sites: 2 or more, or leave availability: pairs and balance out",
    ),
    Code(
        "BLZ536",
        Severity.WARNING,
        "state on Flux sites that is kept for ever",
        "Every later record can still meet what came first, so no record of the inputs, or no row "
        "that was put out, can be forgotten: state grows with every record, as Spark's would "
        "without a watermark.",
        "bound the times of both sides of a join in its condition (b.ts BETWEEN a.at - INTERVAL 5 "
        "MINUTES AND a.at + INTERVAL 1 HOUR), group by a window in place of DISTINCT and other "
        "groups, and promise a lateness: for the streams; or give the sites a disk for what they "
        "keep (site_memory in the deployment section)",
    ),
    Code(
        "BLZ537",
        Severity.ERROR,
        "an operation for streams alone in a component that waits or is ordered",
        "A component that waits for partitions, is ordered or keeps its inputs is handed records "
        "in batches, and Spark has applyInPandasWithState and dropDuplicatesWithinWatermark for "
        "streams alone: the job would stop when it starts.",
        "call applyInPandas in place of applyInPandasWithState, and dropDuplicates in place of "
        "dropDuplicatesWithinWatermark: a complete partition needs no state",
    ),
    Code(
        "BLZ538",
        Severity.ERROR,
        "code that Spark does not run over a stream",
        "Spark refuses the query when the job starts. Where an order is recorded, a seal is waited "
        "for, or only distinct rows matter, the same code runs over records that are kept.",
        "remove the order of rows; filter by rand() in place of a sample; join on equal columns, "
        "if only on a constant of each; or let the plan coordinate the component (--target async)",
    ),
    Code(
        "BLZ539",
        Severity.ERROR,
        "a setting that the job's own files or queries do not stand",
        "What waits for a seal, or goes from component to component, lies in Parquet files of the "
        "job, and its own queries count it. With this setting Spark writes less than the records "
        "have (milliseconds for microseconds), or leaves out columns.",
        "leave the setting out of conf; values can be cut in a component",
    ),
    Code(
        "BLZ541",
        Severity.WARNING,
        "a project that was edited by hand",
        "The compiler writes job.py and would have written over the changes.",
        "move the changes into the dataflow file or an operator module",
    ),
    Code(
        "BLZ551",
        Severity.ERROR,
        "code that Spark does not accept",
        "With --check-with-spark the code is given to Spark's own analyser, over empty tables with "
        "the declared columns. The job would stop with the same message when it starts.",
        "correct the code as Spark's message says, or the schema of the stream that it reads",
    ),
)

CODES: Final[Mapping[str, Code]] = MappingProxyType({code.id: code for code in _ROWS})
"""Code id -> what every report of it has in common."""
