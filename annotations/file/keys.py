"""The keys of a dataflow file: the only place that says which there are and what they mean.

The decoder reads by these tables, and `annotations.file.schema` writes the JSON Schema out of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from annotations.dataflow import EMPTY
from annotations.file.notation import ATTRIBUTES, Dependency, Label, Schema, Seals, Subscript
from annotations.file.records import Entry, ListOf, MapOf, OneOf, Record, is_list, is_map, is_scalar
from annotations.file.shapes import (
    ATTRIBUTE_NAME,
    ENDPOINT_NAME,
    INTERVAL,
    REMEMBERED,
    Choice,
    Count,
    Duration,
    Flag,
    Name,
    Option,
    Text,
)
from annotations.positions import List, Map, Node

_INTERFACE: Final = Name("an interface")
_OPTIONS: Final = MapOf(Name("an option", ATTRIBUTE_NAME.pattern), Option(), "a mapping", True)


def _record(
    name: str,
    description: str,
    keys: dict[str, Entry],
    *,
    extensions: bool = False,
    elsewhere: Mapping[str, str] = EMPTY,
) -> Record:
    return Record(name, MappingProxyType(keys), description, extensions, elsewhere)


PATH: Final = _record(
    "a path",
    "A path through a component, from an input interface to an output interface.",
    {
        "from": Entry(_INTERFACE, "The input interface at which the path begins.", True),
        "to": Entry(_INTERFACE, "The output interface at which the path ends.", True),
        "label": Entry(
            Label(),
            "What the path does to its input: CR or CW if the set of outputs is the same for every "
            "order of inputs, OR or OW if not; R if it only reads state, W if it writes. "
            "OR and OW may carry the gate: OW[word, batch], OR[*].",
        ),
        "subscript": Entry(
            Subscript(),
            "The gate of OR or OW: the attributes that partition its work, or '*' if unknown.",
        ),
        "state": Entry(
            Name("a name"),
            "Name of the state that the path shares with others of the component. Without it all "
            "CW, OR and OW paths share one.",
        ),
        "within": Entry(
            Choice(("set", "sequence")),
            "What the result for a gate partition depends on: the records as a set (default), or "
            "also their order (first, collect_list, row numbers). Of the gate `*` it says nothing.",
        ),
        "nondeterministic": Entry(
            Text("the reason"),
            "Why the output is not a function of the input: random numbers, clocks, outside calls.",
        ),
        "repeats": Entry(
            Choice(("absorb", "pass", "make", "corrupt")),
            "What a record that comes again, at any time, does to the outputs: absorb (nothing), "
            "pass (the same rows, some again), corrupt (wrong rows), make (as pass, and rows come "
            "again by themselves). Without it, pass for CR and corrupt for the others.",
        ),
        "rows": Entry(
            Choice(("one", "many")),
            "Whether one record makes at most one row, so that what identifies the record "
            "identifies the row; many without.",
        ),
        "why": Entry(Text("a reason"), "Why the label is right, for those who read it later."),
        "lineage": Entry(
            MapOf(
                ATTRIBUTE_NAME, ATTRIBUTE_NAME, "a mapping from output to input attributes", True
            ),
            "Which output attribute is an unchanged copy of which input attribute. Without it, the "
            "copies that the component's SQL makes; of other code, attributes of equal name.",
        ),
    },
    elsewhere=dict.fromkeys(
        (
            "Rep",
            "replicas",
            "order_by",
            "engine",
            "availability",
            "output_mode",
            "sql",
            "python",
            "operator",
            "processor",
            "bloom",
        ),
        "It belongs to the component: put it beside `annotation`.",
    ),
)

PATHS: Final = ListOf(PATH, "a path or a list of paths", one=True)


def _implementation(text: Text) -> OneOf:
    by_output = MapOf(_INTERFACE, text, f"a mapping from outputs to {text.expects}")
    return OneOf(
        ((is_map, by_output), (is_scalar, text)), f"{text.expects}, or one for each output"
    )


_FUNCTION: Final = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"

_EVENT_TIME: Final = _record(
    "a time of events",
    "Event time, with the watermark that Spark's withWatermark has.",
    {
        "event": Entry(ATTRIBUTE_NAME, "The column that has a record's event time.", True),
        "delay": Entry(Duration(), "How far the watermark is behind the newest record.", True),
    },
)
PROCESSOR: Final = _record(
    "a processor",
    "A StatefulProcessor of PySpark, and what transformWithState is told of it.",
    {
        "class": Entry(
            Text("`module:Class`", _FUNCTION),
            "module:Class of the processor, or module:function that takes nothing and gives one.",
            True,
        ),
        "key": Entry(ATTRIBUTES, "The attributes that records are grouped by.", True),
        "takes": Entry(
            Choice(("rows", "pandas")),
            "What it takes and gives: rows (transformWithState, without this key) or pandas "
            "(transformWithStateInPandas).",
        ),
        "time": Entry(
            OneOf(
                ((is_map, _EVENT_TIME), (is_scalar, Choice(("none", "processing")))),
                "none, processing, or {event: ATTRIBUTE, delay: INTERVAL}",
            ),
            "Spark's time mode: none (without this key), processing, or {event: ATTRIBUTE, delay: "
            "INTERVAL}. Timers need one, a time to live needs processing.",
        ),
    },
)

_IMPLEMENTATIONS: Final = {
    "sql": Entry(
        _implementation(Text("a Spark SQL query")),
        "Spark SQL over the input interfaces by their names: one query, or one for each output.",
    ),
    "python": Entry(
        _implementation(Text("`module:function`", _FUNCTION)),
        "module:function that takes one DataFrame for each input interface, by name, and returns "
        "one: one function, or one for each output.",
    ),
    "operator": Entry(
        _implementation(Text("`module:function`", _FUNCTION)),
        "module:function that takes nothing and gives a Flux operator: an object with process, "
        "get_state, install_state and state_size. For components that run as pairs.",
    ),
    "processor": Entry(PROCESSOR, PROCESSOR.description + " For components that run as pairs."),
    "bloom": Entry(
        Text("`file.bloom#Module`, or the text of a module"),
        "A Bloom module whose interfaces are those of the component. The annotations follow from "
        "its rules, which are not executed.",
    ),
}

VARIANT: Final = _record(
    "a variant",
    "Another behaviour of a component, chosen with --variant Component=VARIANT. Its paths replace "
    "the component's paths of equal ends, or are added.",
    {"annotation": Entry(PATHS, "The paths of the variant."), **_IMPLEMENTATIONS},
)


def has_implementation(node: Node) -> bool:
    """True for a mapping that is a variant and not a path."""
    return type(node) is Map and not node.entries.keys().isdisjoint(VARIANT.keys)


VARIANT_OR_PATHS: Final = OneOf(
    ((has_implementation, VARIANT), (is_map, PATH), (is_list, PATHS)),
    "a path, a list of paths, or a mapping with `annotation`",
)

COMPONENT: Final = _record(
    "a component",
    "A unit of computation and storage.",
    {
        "annotation": Entry(
            PATHS,
            "The paths through the component: one, or a list. Without it, and with `streams`, the "
            "paths are derived from the code.",
        ),
        "Rep": Entry(
            Flag(),
            "Whether several instances run on the same input. Without it, a component is "
            "replicated if a replicated stream enters it.",
        ),
        "variants": Entry(
            MapOf(Name("a variant"), VARIANT_OR_PATHS, "a mapping from variants to their paths"),
            "Other behaviours, at most one of which is chosen.",
        ),
        **_IMPLEMENTATIONS,
        "requests": Entry(
            ListOf(_INTERFACE, "an input or a list of inputs", one=True),
            "Inputs whose records ask and are not kept: what they see depends on when they come. "
            "The code does not tell them from other inputs when annotations are derived from it.",
        ),
        "replicas": Entry(Count(), "How many instances run; more than one needs `Rep: true`."),
        "availability": Entry(
            Choice(("single", "pairs")),
            "Whether each instance has a second one that takes over when it fails.",
        ),
        "engine": Entry(
            Choice(("spark", "flux")), "What runs it. Without it, the compiler chooses."
        ),
        "output_mode": Entry(
            Choice(("append", "update")),
            "Spark's output mode where it runs uncoordinated; under an order `update`, but for "
            "a `python` function where `append` is written here.",
        ),
        "order_by": Entry(
            ATTRIBUTES,
            "Attributes that order its input records totally: the order inside a partition.",
        ),
        "description": Entry(Text(), "What the component does."),
    },
    elsewhere=dict.fromkeys(
        PATH.keys, "It belongs to a path: write `annotation: {from: ..., to: ..., label: ...}`."
    ),
)

_END_KEYS: Final = {
    "format": Entry(Text("a Spark format"), "json, parquet, kafka, rate, ...", True),
    "path": Entry(Text("a path"), "File or folder, relative to the folder of this file."),
    "options": Entry(_OPTIONS, "Options of the format, passed on as they are."),
}
_AVRO: Final = _record(
    "values in Avro",
    "Messages whose values are records in Avro's binary form.",
    {
        "format": Entry(Choice(("avro",)), "avro", True),
        "schema": Entry(
            Text("a file"),
            "The schema, a file beside this one: what records are read as, or written by. A source "
            "with a `registry` may go without.",
        ),
        "registry": Entry(
            Text("the address of a schema registry"),
            "A registry like Confluent's. Values name a schema of it: by which they were written "
            "(source), or which is registered there as TOPIC-value (sink). Without it, values have "
            "no header, and `schema` is what they were written by.",
        ),
    },
)
_PART: Final = r"^(key|topic|partition|offset|timestamp|headers\..+)$"
SOURCE: Final = _record(
    "a source",
    "Where records come from: a Spark format with its options.",
    {
        **_END_KEYS,
        "value": Entry(
            OneOf(
                ((is_map, _AVRO), (is_scalar, Choice(("json",)))),
                "json, or {format: avro, schema: FILE, registry: URL}",
            ),
            "Of kafka: what the values of messages are. The schema is that of the values then, and "
            "a message whose value is something else is a dead letter. Without it, the columns are "
            "those of Kafka (key, value, headers, ...).",
        ),
        "columns": Entry(
            MapOf(
                ATTRIBUTE_NAME,
                Text("key, topic, partition, offset, timestamp or headers.NAME", _PART),
                "a mapping from attributes to parts of a message",
                True,
            ),
            "Of kafka, with `value`: attributes of the schema that are another part of the "
            "message: key, topic, partition, offset, timestamp, or a header (headers.NAME).",
        ),
    },
    elsewhere=dict.fromkeys(
        ("key", "delivery"), "`key` is for sinks; `delivery` of a source stands beside `source`."
    ),
)
SINK: Final = _record(
    "a sink",
    "Where rows go: a Spark format with its options.",
    {
        **_END_KEYS,
        "value": Entry(
            _AVRO,
            "Of kafka: what the values of messages are. Each column is a field of the value then, "
            "but for `key`, `headers`, `partition`, `topic`. Without it, a column `value` is it, "
            "or all columns as a JSON object.",
        ),
        "key": Entry(ATTRIBUTES, "The sink replaces the row that has the same key (upsert)."),
        "delivery": Entry(
            Choice(("once", "may-repeat")),
            "What the writer guarantees: each row once, or its last batch perhaps again after a "
            "failure. Without it, `once` for files, delta and where no format is given, and "
            "`may-repeat` for kafka, jdbc, foreach, console and any other format.",
        ),
        "function": Entry(
            Text("`module:name`", _FUNCTION),
            "Of foreachBatch: module:function that takes the rows of a commit as a DataFrame, and "
            "the number of the commit. Of foreach: module:name of a function that takes a row, or "
            "of an object with open, process and close.",
        ),
    },
    elsewhere={"python": "Where rows go is a `function` of format foreachBatch or foreach."},
)

_PUNCTUATION: Final = _record(
    "a punctuation",
    "How the records that are punctuations are recognised. All are Spark SQL expressions.",
    {
        "when": Entry(Text("a condition"), "True for the records that are punctuations.", True),
        "count": Entry(
            Text("an expression"), "How many records the producer sent for the key value.", True
        ),
        "digest": Entry(
            Text("an expression"), "Sum of the records' 64-bit hashes, as a decimal string."
        ),
    },
)

_REGISTERED: Final = _record(
    "a registration",
    "Producers that ZooKeeper knows.",
    {
        "registered": Entry(
            Text("a file"), "JSON file with the producers of each key value, to register.", True
        )
    },
)

_PRODUCERS: Final = OneOf(
    (
        (is_scalar, Choice(("one", "registered"))),
        (is_map, _REGISTERED),
        (is_list, ListOf(Text("a producer"), "a list of producers")),
    ),
    "one, registered, {registered: FILE}, or a list of producers",
)

STREAM: Final = _record(
    "a stream",
    "Connects an output to an input. Without `from` it comes from outside, without `to` it is a "
    "result.",
    {
        "from": Entry(ENDPOINT_NAME, "Component.output that it comes from."),
        "to": Entry(ENDPOINT_NAME, "Component.input that it goes to."),
        "seal": Entry(
            Seals(),
            "What its producers punctuate: one key (a list of attributes), a list of keys, or "
            "Seal[campaign].",
        ),
        "Rep": Entry(Flag(), "Whether several instances of the consumer get the same records."),
        "label": Entry(
            Choice(("Run", "Inst", "Diverge")),
            "Nondeterminism of a source from outside: its contents differ between runs, between "
            "instances, or for ever.",
        ),
        "schema": Entry(Schema(), "Attributes and their Spark SQL types, in order."),
        "id": Entry(
            ATTRIBUTES,
            "What identifies a record of a source: two deliveries agree on these attributes "
            "exactly if they are the same record. Where the stream is sealed, a record that is "
            "known already is dropped before it counts; only without `from`.",
        ),
        "delivery": Entry(
            Choice(("once", "may-repeat")),
            "Of a source, what it guarantees: each record once, or perhaps again. Without it, "
            "`once` for files, delta, iceberg, table, rate and where no format is given, and "
            "`may-repeat` for kafka, kinesis, eventhubs, socket and any other format. Of a stream "
            "between components, `may-repeat` where it leaves the job. Of a result, `once` where "
            "no row may come again; without it some may, but none is wrong.",
        ),
        "repeat_within": Entry(
            INTERVAL,
            "A promise of a source: a record comes again within this interval or never, so that "
            "its id need not be remembered for longer. Of files, by their modification times.",
        ),
        "source": Entry(SOURCE, "Where the records come from; only without `from`."),
        "sink": Entry(SINK, "Where the records go; only without `to`."),
        "producer": Entry(ATTRIBUTE_NAME, "The column that names the producer of a record."),
        "punctuation": Entry(_PUNCTUATION, _PUNCTUATION.description),
        "producers": Entry(
            _PRODUCERS,
            "Who contributes to a partition: one (whoever punctuates it), registered (ZooKeeper "
            "knows), or the list of all.",
        ),
        "late": Entry(
            Choice(("dead-letter", "fail")), "What happens to a record that comes after its seal."
        ),
        "seal_timeout": Entry(
            Duration(), "Age at which a partition that is still open is warned about (600 s)."
        ),
        "remember": Entry(
            REMEMBERED,
            "How long released partitions are remembered (forever). A record that comes within "
            "that time is late; one that comes after it opens the partition anew, and waits. Where "
            "a component waits for several streams, the longest counts.",
        ),
        "lateness": Entry(
            INTERVAL, "A promise: no record is later than this behind the newest one."
        ),
        "description": Entry(Text(), "What the stream carries."),
    },
    elsewhere=dict.fromkeys(
        SINK.keys, "It belongs to an end: write `source: {format: ...}` or `sink: {format: ...}`."
    ),
)

DEPLOYMENT: Final = _record(
    "a deployment",
    "Where and how the compiled job runs. The environment overrides it.",
    {
        "master": Entry(Text("a Spark master"), "Spark master; local[*] if nobody says."),
        "zookeeper": Entry(
            Text(
                "embedded, or host:port,host:port",
                r"^(embedded|[^\s:,]+:[0-9]+(,[^\s:,]+:[0-9]+)*)$",
            ),
            "embedded, or the addresses of an ensemble.",
        ),
        "zookeeper_access": Entry(
            MapOf(
                Name(
                    "user, password, sasl, ca, certificate or key",
                    re.compile("user|password|sasl|ca|certificate|key"),
                    "^(user|password|sasl|ca|certificate|key)$",
                ),
                Option(),
                "a mapping",
            ),
            "How the ensemble lets the job in: user and password (every znode is theirs alone), "
            "sasl: DIGEST-MD5 where the servers know them by SASL, "
            "and PEM files for TLS: ca, which the servers are checked with, certificate and key of "
            "the job. Values may be ${env:NAME} and ${file:PATH}.",
        ),
        "trigger": Entry(INTERVAL, "Interval between micro-batches; as fast as possible without."),
        "conf": Entry(_OPTIONS, "Spark settings."),
        "sites": Entry(
            Count(),
            "How many Spark tasks host a Flux stage; 3 without: a pair and a standby. With 1 there "
            "is one copy.",
        ),
        "copies": Entry(
            Count("1 or 2", most=2),
            "How many copies of its state a Flux stage keeps, each on another site; 2 without. "
            "With 1 it takes half the work, and a site that fails stops the stage until others "
            "have begun again from the states that are kept (`keep_every`).",
        ),
        "partitions": Entry(
            Count(), "How many partitions a Flux stage with a gate has; 4 without."
        ),
        "balance": Entry(
            Choice(("none", "load", "memory", "hybrid")),
            "Whether partitions move off busy sites while the job runs, and by which policy; none "
            "without.",
        ),
        "site_memory": Entry(
            Text("a size such as 512m or 2g", r"^[1-9][0-9]*[kmgKMG]$"),
            "How much state a site keeps in memory; the rest is on its disk. All of it without.",
        ),
        "keep_every": Entry(
            Count(),
            "After how many batches a Flux stage keeps its state in files and forgets the order "
            "before; 1000 without. It does so sooner where much has been recorded meanwhile.",
        ),
    },
)

COMPONENT_NAME: Final = Name("a component")
_NAME: Final = Entry(Name("a name"), "Name of the dataflow; the name of the file without.")
_STREAMS: Final = Entry(
    MapOf(Name("a stream"), STREAM, "a mapping from names to streams", empty=True),
    "The streams. Without this key, interfaces of equal name are connected.",
)
_FDS: Final = Entry(
    ListOf(Dependency(), "a list of dependencies", one=True, empty=True),
    "Functional dependencies, over all streams together: 'id -> campaign' (each id has one "
    "campaign), 'company <-> symbol'.",
)
_DEPLOYMENT: Final = Entry(DEPLOYMENT, DEPLOYMENT.description)

SECTIONS: Final = {"name": _NAME, "streams": _STREAMS, "fds": _FDS, "deployment": _DEPLOYMENT}
"""Top-level keys beside the components, in both forms of a file."""

DATAFLOW: Final = _record(
    "a dataflow",
    "A dataflow: its components and the streams between them. Keys that begin with x- are ignored, "
    "so that anchors have a place.",
    {
        "name": _NAME,
        "components": Entry(
            MapOf(COMPONENT_NAME, COMPONENT, "a mapping from names to components"),
            "The components, by name.",
            True,
        ),
        "streams": _STREAMS,
        "fds": _FDS,
        "deployment": _DEPLOYMENT,
    },
    extensions=True,
)


def is_component(node: Node) -> bool:
    """True at top level for a mapping that is a component and not the path of a variant."""
    return type(node) is Map and {"from", "to"}.isdisjoint(node.entries)


def looks_like_listing(node: Node) -> bool:
    """True at top level for what has anything of a component or a path about it."""
    if type(node) is List:
        return any(type(item) is Map for item in node.items)
    known = COMPONENT.keys.keys() | PATH.keys.keys()
    return type(node) is Map and (not node.entries or not known.isdisjoint(node.entries))


LISTING: Final = OneOf(
    ((is_component, COMPONENT), (is_map, PATH), (is_list, PATHS)),
    "a component, or the path of a variant",
)
"""An entry at top level of the paper's own form: a component, or a variant of the one above."""

RECORDS: Final = (
    PATH,
    VARIANT,
    PROCESSOR,
    _EVENT_TIME,
    COMPONENT,
    STREAM,
    SOURCE,
    SINK,
    _AVRO,
    _PUNCTUATION,
    _REGISTERED,
    DEPLOYMENT,
)
"""Every record that the schema defines."""
