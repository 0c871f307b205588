"""Streams as the file declares them, with their ends looked up among the components."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from annotations.dataflow import Avro, Endpoint, External, Producers, Punctuation, Stream
from annotations.delivery import CALLS, counts, may_repeat
from annotations.diagnostics import Findings
from annotations.file.avro import AvroError, columns_of, difference, schema_text
from annotations.file.components import Built
from annotations.file.formats import OPTIONS, OTHERS, is_known, is_secret, unknown_option
from annotations.file.notation import key_of
from annotations.file.records import Fields
from annotations.file.shapes import ENDPOINT, Pairs
from annotations.positions import Scalar, shorten
from annotations.vocabulary import Label

_ONLY_WITHOUT: Final = {"source": "from", "label": "from", "sink": "to"}
"""Keys that a stream cannot have beside this end (BLZ043)."""
_ABOUT_PUNCTUATIONS: Final = ("producer", "punctuation", "producers", "lateness")
"""Keys that change nothing about a stream from a component that declares no seal (BLZ048)."""
_OF_SOURCES: Final = ("id", "repeat_within")
"""Keys that only a source can declare (BLZ076)."""


_TWICE: Final = (
    "release partitions too early",
    "Declare an `id`, give the punctuation a `digest`, or write `delivery: once` if that holds.",
)
_STOPPED: Final = (
    "stop partitions in quarantine",
    "Declare an `id`, by which copies are dropped, or write `delivery: once` if that holds.",
)
"""What copies do where the punctuation has no digest, and where it has one; and what to do."""


class Streams:
    """The streams of a file, and which interfaces they use."""

    def __init__(self, components: Mapping[str, Built], findings: Findings) -> None:
        self.components = components
        self.out = findings
        self.streams: dict[str, Stream] = {}
        self.broken = False
        """True where a stream could not be read, so that it may have used any interface."""
        self.seen: set[str] = set()
        """Names of the streams that could be read."""
        self.inputs: set[Endpoint] = set()
        """Interfaces that a stream goes to, whether or not the stream is left out."""
        self.outputs: set[Endpoint] = set()
        self.attributes: dict[str, set[str] | None] = {}
        """Component -> attributes of the streams into it; None where a schema is not declared."""
        self.left_out: dict[str, list[str]] = {}
        """Component without a chosen variant -> streams that only its variants have use for."""

    def add(self, key: Scalar, fields: Fields) -> None:
        """Add the stream `key`, or note what is wrong with it."""
        self.seen.add(key.text)
        entries = fields.node.entries
        if "from" not in entries and "to" not in entries:
            if not fields.broken:
                message = f"the stream {key.text} has neither `from` nor `to`"
                self.out.add("BLZ042", message, key.mark)
            self.broken = True
            return
        producer = self._end("from", fields)
        consumer = self._end("to", fields)
        self._check_keys(fields)
        if (producer is None and "from" in entries) or (consumer is None and "to" in entries):
            self.broken = True
            return
        if producer is not None:
            self.outputs.add(producer)
        if consumer is not None:
            self.inputs.add(consumer)
            self._collect_attributes(consumer.component, fields)
        if self._sleeps(key, producer, consumer):
            return
        values = {
            field: convert(fields.values[text], self.out)
            for text, (field, convert) in _CONVERSIONS.items()
            if text in fields.values
        }
        position = self.out.position(key.mark)
        stream = Stream(key.text, producer, consumer, position=position, **values)
        self.streams[key.text] = stream
        self._check_repeats(stream, fields)
        self._check_avro(stream, fields)

    def _check_avro(self, stream: Stream, fields: Fields) -> None:
        """The attributes of a source are fields of its Avro schema (BLZ068)."""
        source = stream.source
        if source is None or not isinstance(source.value, Avro) or source.value.schema is None:
            return
        has = columns_of(source.value.schema)
        for name, (key, declared) in fields.get("schema", {}).items():
            if name not in source.columns and (other := difference(has, name, declared)):
                self.out.add("BLZ068", other, key.mark)

    def _collect_attributes(self, component: str, fields: Fields) -> None:
        schema: Pairs | None = fields.get("schema")
        known = self.attributes.setdefault(component, set())
        if schema is None or known is None:
            self.attributes[component] = None
        else:
            known.update(schema)

    def _end(self, side: str, fields: Fields) -> Endpoint | None:
        """The end that `from` or `to` names; None where there is none, the reason noted."""
        node: Scalar | None = fields.get(side)
        if node is None:
            return None
        component, interface = ENDPOINT.fullmatch(node.text).groups()  # type: ignore[union-attr]
        built = self.components.get(component)
        if built is None:
            near = self.out.suggest(component, self.components)
            self.out.add("BLZ040", f"there is no component `{component}`{near}", node.mark)
            return None
        active = built.outputs if side == "from" else built.inputs
        if interface in active or interface in _all(built, side):
            return Endpoint(component, interface)
        if not built.broken:
            self._report_interface(built, side, interface, node)
        return None

    def _report_interface(self, built: Built, side: str, interface: str, node: Scalar) -> None:
        name = built.component.name
        here, other = ("output", "input") if side == "from" else ("input", "output")
        known = _all(built, side)
        if interface in _all(built, "to" if side == "from" else "from"):
            hint = f"; it is an {other}"
        else:
            hint = self.out.suggest(interface, known)
        message = f"{name} has no {here} `{interface}`{hint}"
        remedy = f"The {here}s of {name} are {', '.join(sorted(known))}." if known else None
        self.out.add("BLZ041", message, node.mark, remedy)

    def _check_keys(self, fields: Fields) -> None:
        node = fields.node
        for text, end in _ONLY_WITHOUT.items():
            if text in node.entries and end in node.entries:
                message = f"`{text}` beside `{end}`"
                self.out.add("BLZ043", message, node.key_mark(text))
        if "from" in node.entries and "seal" not in node.entries:
            for text in _ABOUT_PUNCTUATIONS:
                if text in node.entries:
                    message = f"`{text}` on a stream from a component, without `seal`"
                    self.out.add("BLZ048", message, node.key_mark(text))

        for text in _OF_SOURCES:
            if text in node.entries and "from" in node.entries:
                message = f"`{text}` on a stream from a component"
                remedy = "Declare it on the stream that comes in; the rest follows from it."
                self.out.add("BLZ076", message, node.key_mark(text), remedy)
        inner = "from" in node.entries and "to" in node.entries
        if inner and fields.get("delivery") == "once":
            message = "`delivery: once` on a stream between components"
            remedy = "Remove it: inside of a job records come once. `may-repeat` says otherwise."
            self.out.add("BLZ076", message, node.key_mark("delivery"), remedy)
        if "remember" in node.entries:
            if "to" not in node.entries:
                message = "`remember` on a stream that no component takes"
                self.out.add("BLZ048", message, node.key_mark("remember"))
            elif node.entries.keys().isdisjoint({"seal", "from"}):
                message = "`remember` on a stream without `seal`"
                self.out.add("BLZ048", message, node.key_mark("remember"))

    def _check_repeats(self, stream: Stream, fields: Fields) -> None:
        """Say what a repeated record does to a sealed stream without an id (BLZ074)."""
        if not (counts(stream) and may_repeat(stream)) or stream.id:
            return
        given = "delivery: may-repeat"
        if stream.delivery is None and stream.source is not None:
            given = f"format: {shorten(stream.source.format)}"
        digest = stream.punctuation.digest if stream.punctuation else None
        outcome, remedy = _TWICE if digest is None else _STOPPED
        message = f"records of {stream.name} that come again (`{given}`) {outcome}"
        self.out.add("BLZ074", message, fields.node.key_mark("seal"), remedy)

    def _sleeps(self, key: Scalar, producer: Endpoint | None, consumer: Endpoint | None) -> bool:
        """True for a stream that ends at an interface of a variant that is not chosen."""
        for end, side in ((producer, "from"), (consumer, "to")):
            if end is None:
                continue
            built = self.components[end.component]
            if end.interface in (built.outputs if side == "from" else built.inputs):
                continue
            if built.unchosen:
                self.left_out.setdefault(end.component, []).append(key.text)
            else:
                chosen = f"{end.component}={built.component.variant}"
                message = f"the stream {key.text} is left out: {end} is not part of {chosen}"
                self.out.add("BLZ033", message, key.mark)
            return True
        return False


def _all(built: Built, side: str) -> set[str]:
    """Interfaces at which a stream can come `from`, or go `to`, with any variant."""
    return built.all_outputs if side == "from" else built.all_inputs


def _external(fields: Fields, findings: Findings, *, writes: bool = False) -> External:
    _check_format(fields, findings)
    check_secrets(fields.get("options", {}), findings)
    return External(
        format=fields.get("format", ""),
        path=fields.get("path"),
        options=texts(fields.get("options", {})),
        key=tuple(name.text for name in fields.get("key", ())),
        delivery=fields.get("delivery"),
        value=_value(fields, findings, writes),
        columns=texts(fields.get("columns", {})),
        function=fields.get("function"),
        position=findings.position(fields.node.mark),
    )


def _value(fields: Fields, findings: Findings, writes: bool) -> str | Avro | None:
    given: str | Fields | None = fields.get("value")
    if not isinstance(given, Fields):
        return given
    file, registry = given.get("schema"), given.get("registry")
    if registry is not None and is_secret("registry", registry):
        message = "the value of `registry` looks like a secret"
        findings.add("BLZ066", message, given.node.key_mark("registry"))
    if file is None:
        if not given.broken and (writes or registry is None):
            message = "values in Avro without a `schema`"
            findings.add("BLZ068", message, fields.node.key_mark("value"))
        return Avro(None, registry)
    try:
        text = schema_text(Path(findings.file).parent / file)
        columns_of(text)
    except AvroError as error:
        findings.add("BLZ068", f"{file}: {error}", given.node.value_mark("schema"))
        return Avro(None, registry)
    return Avro(text, registry)


def _check_format(fields: Fields, findings: Findings) -> None:
    """The format should be known, and its options should be its own (BLZ064, BLZ065)."""
    format = fields.get("format")
    if format is None:
        return
    if not is_known(format):
        near = findings.suggest(format.lower(), (*OPTIONS, *OTHERS))
        message = f"the format `{shorten(format)}` is not known{near}"
        findings.add("BLZ064", message, fields.node.value_mark("format"))
    if format.lower() != "kafka" and ("value" in fields or "columns" in fields):
        message = "`value` and `columns` are for kafka"
        findings.add("BLZ065", message, fields.node.value_mark("format"))
    if "function" in fields:
        named = fields.get("function")
        if format.lower() in CALLS:
            message = f"what `{named}` does with its rows is not known"
            findings.add("BLZ067", message, fields.node.value_mark("function"))
        else:
            message = "`function` of a sink is for foreachBatch and foreach"
            findings.add("BLZ065", message, fields.node.value_mark("format"))
    for key, _ in fields.get("options", {}).values():
        if unknown_option(format, key.text):
            near = findings.suggest(key.text, sorted(OPTIONS[format.lower()]))
            message = f"{format} has no option `{shorten(key.text)}`{near}"
            findings.add("BLZ065", message, key.mark)


def check_secrets(options: Pairs, findings: Findings) -> None:
    """No option should hold a secret (BLZ066)."""
    for key, text in options.values():
        if text and is_secret(key.text, text):
            findings.add(
                "BLZ066", f"the value of `{shorten(key.text)}` looks like a secret", key.mark
            )


def texts(pairs: Pairs) -> Mapping[str, str]:
    """The texts of a mapping, without the places."""
    return MappingProxyType({name: text for name, (_, text) in pairs.items() if text})


def _punctuation(fields: Fields, findings: Findings) -> Punctuation:
    when, count = fields.get("when", ""), fields.get("count", "")
    return Punctuation(when=when, count=count, digest=fields.get("digest"))


def _producers(value: str | list[str] | Fields, findings: Findings) -> Producers:
    if isinstance(value, str):
        return Producers(value)
    if isinstance(value, list):
        return Producers("all", tuple(value))
    return Producers("registered", registrations=value.get("registered"))


def _same(value: Any, findings: Findings) -> Any:
    return value


_LABELS: Final = {"Run": Label.RUN, "Inst": Label.INST, "Diverge": Label.DIVERGE}
_CONVERSIONS: Final[Mapping[str, tuple[str, Callable[[Any, Findings], Any]]]] = {
    "seal": ("seals", lambda keys, findings: tuple(dict.fromkeys(map(key_of, keys)))),
    "Rep": ("rep", _same),
    "label": ("label", lambda label, findings: _LABELS[label]),
    "schema": ("schema", lambda types, findings: texts(types)),
    "id": ("id", lambda names, findings: tuple(name.text for name in names)),
    "delivery": ("delivery", _same),
    "repeat_within": ("repeat_within", _same),
    "source": ("source", _external),
    "sink": ("sink", partial(_external, writes=True)),
    "producer": ("producer_column", lambda node, findings: node.text),
    "punctuation": ("punctuation", _punctuation),
    "producers": ("producers", _producers),
    "late": ("late", _same),
    "seal_timeout": ("seal_timeout_s", _same),
    "remember": ("remember_s", _same),
    "lateness": ("lateness", _same),
    "description": ("description", _same),
}
"""Key of the file -> field of `Stream`, and how the value becomes the field's."""
