"""Checks across a whole dataflow: interfaces are fed, attributes exist, records arrive."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import product
from typing import Final

from annotations.dataflow import Endpoint, Stream
from annotations.diagnostics import Findings
from annotations.file import formats
from annotations.file.components import Built, gate_of
from annotations.file.notation import DependencyValue
from annotations.file.records import Fields
from annotations.file.shapes import BAD, Pairs
from annotations.file.streams import Streams
from annotations.positions import Scalar, place_inside
from annotations.type_names import named_types

COMPARED_MAX: Final = 1_000
"""Pairs of names that `check_alike` compares; a file with more is left unchecked."""
TIME_TYPE: Final = "spark.sql.timeType.enabled"
"""Spark 4 takes no column of type TIME without this setting."""
ALIKE: Final = 0.85
"""Part of the letters of two names that are the same where the names are alike."""


def check_ends(streams: Streams, findings: Findings) -> None:
    """Every input of an active path needs a stream (BLZ044), every output should have one."""
    makers: dict[str, str] = {}
    missing: set[str] = set()
    for name, built in streams.components.items():
        for interface in built.outputs:
            makers.setdefault(interface, name)
    for name, built in streams.components.items():
        for interface, path in built.inputs.items():
            end = Endpoint(name, interface)
            if end not in streams.inputs:
                maker = makers.get(interface)
                begin = f"from: {maker}.{interface}, " if maker not in (None, name) else ""
                remedy = f"Add a stream, such as `{interface}: {{{begin}to: {end}}}`."
                findings.add("BLZ044", f"no stream goes to {end}", path.position, remedy)
                missing.add(interface)
    for name, built in streams.components.items():
        for interface, path in built.outputs.items():
            end = Endpoint(name, interface)
            if end not in streams.outputs and interface not in missing:
                remedy = f"Add a stream: `{interface}: {{from: {end}}}` makes it a result."
                findings.add("BLZ045", f"no stream comes from {end}", path.position, remedy)


def check_unchosen(
    components: Mapping[str, Built],
    chosen: Collection[str],
    left_out: Mapping[str, list[str]],
    findings: Findings,
) -> None:
    """Say what is missing where a component has variants and none is chosen (BLZ031)."""
    for name, built in components.items():
        if built.unchosen and built.component.paths and name not in chosen:
            variants = built.component.variants
            message = f"{name} has variants ({', '.join(variants)}) and none is chosen; "
            message += "only its own paths count"
            if missing := left_out.get(name):
                message += f", and {', '.join(missing)} is left out"
            remedy = f"Choose one: --variant {name}={variants[0]}"
            findings.add("BLZ031", message, built.component.position, remedy)


def check_schemas(streams: Pairs, conf: Mapping[str, str], findings: Findings) -> None:
    """Keys, producer columns (BLZ050) and ids (BLZ076) must be in the stream's schema.

    The settings in `conf` decide which types Spark has (BLZ053).
    """
    has_times = conf.get(TIME_TYPE, "").strip().lower() == "true"
    for name, (_, fields) in streams.items():
        if fields is BAD or "schema" not in fields:
            continue
        schema: Pairs = fields.get("schema")
        if not has_times:
            _check_times(schema, findings)
        for key in fields.get("seal", ()):
            for attribute in key:
                _known(attribute, schema, f"the schema of {name}", findings)
        if "producer" in fields:
            _known(fields.get("producer"), schema, f"the schema of {name}", findings)
        sink = fields.get("sink")
        for attribute in sink.get("key", ()) if sink else ():
            _known(attribute, schema, f"the schema of {name}", findings)
        if "from" not in fields.node.entries:
            for attribute in fields.get("id", ()):
                _known(attribute, schema, f"the schema of {name}", findings, "BLZ076")
            _check_punctuation(name, fields, findings)


def _check_times(schema: Pairs, findings: Findings) -> None:
    for key, spark_type in schema.values():
        if "time" in map(str.lower, named_types(spark_type)):
            message = f"Spark has the type of `{key.text}`, TIME, only where {TIME_TYPE} is true"
            remedy = f"Write TIMESTAMP or STRING, or {TIME_TYPE}: true in `conf` of `deployment`."
            findings.add("BLZ053", message, key.mark, remedy)


def _check_punctuation(name: str, fields: Fields, findings: Findings) -> None:
    """The expressions of a source's punctuation must be over columns that it has (BLZ054)."""
    source, value = fields.get("source"), fields.get("punctuation")
    format = (source.get("format", "json") if source else "json").lower()
    decoded = source is not None and "value" in source
    brought = () if decoded else formats.COLUMNS.get(format)
    if not value or (brought is None and format not in formats.FILES):
        return
    columns = [*fields.get("schema"), *(brought or ())]
    for key in ("when", "count", "digest"):
        node = value.node.entries[key][1] if key in value.node.entries else None
        if type(node) is Scalar and key in value and not only_names(node.text, columns):
            from annotations.whitebox.checking import of_expression

            for mistake in of_expression(node.text, columns, of=name):
                mark = place_inside(node, mistake.start, findings.text)
                findings.add(mistake.code, f"`{key}`: {mistake.message}", mark, mistake.remedy)


_LITERALS: Final = re.compile(r"'[^'\\]*'|\b[0-9]+(\.[0-9]+)?\b")


def only_names(expression: str, columns: Collection[str]) -> bool:
    """True for an expression without functions that names nothing but these columns.

    It need not be parsed then, which takes longer than everything else about a small file.

    >>> only_names("kind = 'end' AND n > 0", ["kind", "n"]), only_names("knd = 1", ["kind"])
    (True, False)
    """
    text = _LITERALS.sub(" ", expression)
    if not re.fullmatch(r"[\w\s=<>!]*", text):
        return False
    known = {name.lower() for name in columns} | {"and", "or", "not", "is", "null", "true", "false"}
    return all(word.lower() in known for word in re.findall(r"\w+", text))


def check_component_attributes(streams: Streams, findings: Findings) -> None:
    """Gates, `order_by` and lineage must name attributes of some stream into the component.

    Only where all of these streams declare their schema. A gate may name an attribute that one of
    several inputs lacks: the paper's WINDOW asks by `window`, which only the clicks have.
    """
    for name, known in streams.attributes.items():
        if known is None:
            continue
        built = streams.components[name]
        where = f"any schema of the streams into {name}"
        for attribute in built.fields.get("order_by", ()):
            _known(attribute, known, where, findings)
        for _, fields in built.all_paths:
            for attribute in gate_of(fields):
                _known(attribute, known, where, findings)
            for _, copy in fields.get("lineage", {}).values():
                if copy is not BAD:
                    _known(copy, known, where, findings)


def _known(
    attribute: Scalar, known: Collection[str], where: str, findings: Findings, code: str = "BLZ050"
) -> None:
    if attribute.text not in known:
        near = findings.suggest(attribute.text, known)
        remedy = f"Correct the attribute, or add it. There are {', '.join(sorted(known))}."
        findings.add(code, f"`{attribute.text}` is not in {where}{near}", attribute.mark, remedy)


def check_dependencies(
    fds: list[DependencyValue], streams: Pairs, components: Mapping[str, Built], findings: Findings
) -> None:
    """Dependencies must be about attributes that exist (BLZ051), or at least occur (BLZ052)."""
    if not fds:
        return
    fields = [value for _, value in streams.values() if value is not BAD]
    declared = {name for stream in fields for name in stream.get("schema", ())}
    complete = bool(fields) and all("schema" in stream for stream in fields)
    mentioned = declared | _mentioned(fields, components)
    in_dependencies = Counter(
        name for fd in fds for name in {item.text for item in (*fd.determinant, *fd.dependent)}
    )
    errors = findings.errors
    for fd in fds:
        for attribute in (*fd.determinant, *fd.dependent):
            name = attribute.text
            if complete and name not in declared:
                near = findings.suggest(name, declared)
                findings.add(
                    "BLZ051", f"no stream has the attribute `{name}`{near}", attribute.mark
                )
            elif not errors and name not in mentioned and in_dependencies[name] == 1:
                near = findings.suggest(name, mentioned)
                message = f"nothing else mentions the attribute `{name}`{near}"
                findings.add("BLZ052", message, attribute.mark)
                break


def _mentioned(streams: Iterable[Fields], components: Mapping[str, Built]) -> set[str]:
    """Attributes that seals, gates, lineage and orders name."""
    names = {
        attribute.text for stream in streams for key in stream.get("seal", ()) for attribute in key
    }
    for built in components.values():
        names.update(attribute.text for attribute in built.fields.get("order_by", ()))
        for path, fields in built.all_paths:
            names.update(attribute.text for attribute in gate_of(fields))
            names.update(path.lineage or (), (path.lineage or {}).values())
    return names


def check_alike(
    components: Mapping[str, Built], streams: Mapping[str, Stream], findings: Findings
) -> None:
    """Sources and results whose names are alike were perhaps meant to be one stream (BLZ049)."""
    results = [
        stream.producer for stream in streams.values() if stream.producer and not stream.consumer
    ]
    sources = [
        stream.consumer for stream in streams.values() if stream.consumer and not stream.producer
    ]
    if len(results) * len(sources) > COMPARED_MAX:
        return
    for source, result in product(sources, results):
        if source.component != result.component and _alike(source.interface, result.interface):
            message = f"{source} comes from outside, not from {result}, which is named alike"
            position = components[source.component].inputs[source.interface].position
            findings.add("BLZ049", message, position)


def _alike(one: str, other: str) -> bool:
    """True for names that differ by about a letter, and by no digit."""
    from difflib import SequenceMatcher

    if one == other or re.findall(r"\d+", one) != re.findall(r"\d+", other):
        return False
    first, second = (re.sub(r"[-_]", "", name).lower() for name in (one, other))
    alike: float = SequenceMatcher(None, first, second).ratio()
    return alike >= ALIKE


def check_reach(
    components: Mapping[str, Built], streams: Mapping[str, Stream], findings: Findings
) -> None:
    """Every component should be reached by records from outside (BLZ046)."""
    after: dict[str, list[str]] = {}
    todo: list[str] = []
    for stream in streams.values():
        if stream.consumer is None:
            continue
        if stream.producer is None:
            todo.append(stream.consumer.component)
        else:
            after.setdefault(stream.producer.component, []).append(stream.consumer.component)
    if not todo and components:
        position = next(iter(components.values())).component.position
        findings.add("BLZ046", "no stream comes from outside", position)
        return
    reached: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo.extend(after.get(name, ()))
    for name, built in components.items():
        if name not in reached:
            findings.add("BLZ046", f"nothing from outside reaches {name}", built.component.position)
