"""Components out of what was read: paths, variants and the one that is chosen, implementations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from annotations.dataflow import EMPTY, Component, Implementation, Path, Processor
from annotations.diagnostics import Findings
from annotations.file.keys import COMPONENT, has_implementation
from annotations.file.notation import LabelValue, key_of
from annotations.file.records import Fields
from annotations.file.shapes import BAD
from annotations.file.unannotated import (
    COMPUTES,
    Declared,
    Ends,
    possible_paths,
    says_only_code,
)
from annotations.positions import Scalar
from annotations.vocabulary import STAR, UNKNOWN, Annotation, Gate, Repeats, Rows, Within


@dataclass(frozen=True, slots=True)
class Built:
    """A component with what the checks of its surroundings need."""

    component: Component
    fields: Fields
    all_paths: tuple[tuple[Path, Fields], ...]
    """Also those of variants that are not chosen, each with what was read of it."""
    broken: bool
    """True where the ends of a path could not be read, so that it may have further interfaces."""
    inputs: Mapping[str, Path]
    """Input interfaces of the active paths, each with the first path that begins there."""
    outputs: Mapping[str, Path]

    @property
    def unchosen(self) -> bool:
        """True where it has variants and none of them is chosen."""
        return bool(self.component.variants) and self.component.variant is None

    @property
    def all_inputs(self) -> set[str]:
        """Input interfaces, also of the variants that are not chosen."""
        return {path.source for path, _ in self.all_paths}

    @property
    def all_outputs(self) -> set[str]:
        """Output interfaces, also of the variants that are not chosen."""
        return {path.target for path, _ in self.all_paths}


_NO_ENDS: Final = Ends()


def build_component(
    declared: Declared, chosen: str | None, findings: Findings, ends: Ends = _NO_ENDS
) -> Built:
    """The component with the paths of the variant `chosen`; base paths only where it is None.

    A path of the variant replaces the base path from and to the same interfaces, in its place, and
    is added after the base paths where there is none. Where there is code and no annotation, the
    paths are those that the code may have between the `ends` that streams name.
    """
    name, fields = declared.key.text, declared.fields
    base = _paths(fields.get("annotation", ()), None, findings)
    variants = {
        variant: _paths(_variant_paths(value), variant, findings)
        for variant, (_, value) in declared.variants.items()
    }
    only_code = says_only_code(declared)
    possible = possible_paths(declared, ends, findings) if only_code else []
    all_paths = tuple(chain(base, possible, *variants.values()))
    active = variants.get(chosen) if chosen is not None else None
    paths = [path for path, _ in (base if active is None else _override(base, active))]
    implementations = EMPTY
    if possible or not only_code or paths:
        implementations = _implementations(declared, base or possible, variants, chosen, findings)
    if not paths:
        paths = [path for path, _ in possible if path.target in implementations]
    broken = findings.errors > 0 and (only_code or _may_lack_paths(declared))
    if not paths and not broken:
        _report_no_path(declared, findings)
    component = Component(
        name=name,
        paths=tuple(paths),
        rep=fields.get("Rep"),
        variants=tuple(variants),
        variant=chosen if active is not None else None,
        requests=_requests(fields),
        implementations=implementations,
        replicas=fields.get("replicas", 1),
        availability=fields.get("availability", "single"),
        engine=fields.get("engine"),
        output_mode=fields.get("output_mode", "append"),
        appends=fields.get("output_mode") == "append",
        order_by=tuple([attribute.text for attribute in fields.get("order_by", ())]),
        description=fields.get("description"),
        position=findings.position(declared.key.mark),
    )
    if component.replicas > 1 and component.rep is not True:
        message = f"{name} has {component.replicas} replicas, but not `Rep: true`"
        findings.add("BLZ060", message, fields.node.value_mark("replicas"))
    if not broken:
        _check_requests(name, fields, {path.source for path, _ in all_paths}, findings)
    inputs = {path.source: path for path in reversed(paths)}
    outputs = {path.target: path for path in reversed(paths)}
    return Built(component, fields, all_paths, broken, inputs, outputs)


def _requests(fields: Fields) -> tuple[str, ...] | None:
    nodes = fields.get("requests")
    return None if nodes is None else tuple(node.text for node in nodes if node is not BAD)


def _check_requests(name: str, fields: Fields, inputs: set[str], findings: Findings) -> None:
    """Requests come in somewhere (BLZ041)."""
    for node in fields.get("requests", ()):
        if node is not BAD and node.text not in inputs:
            near = findings.suggest(node.text, inputs)
            findings.add("BLZ041", f"{name} has no input `{node.text}`{near}", node.mark)


def _may_lack_paths(declared: Declared) -> bool:
    """True where a path of the component, or one of its ends, could not be read."""
    fields = declared.fields
    if not fields.node.entries or _unread(fields, "annotation") or _unread(fields, "variants"):
        return fields.broken
    several = [fields.get("annotation", ())]
    several += [_variant_paths(value) for _, value in declared.variants.values()]
    return any(path is BAD or not path.values.keys() >= _ENDS for path in chain(*several))


_ENDS: Final = {"from", "to"}


def _unread(fields: Fields, key: str) -> bool:
    """True where the key is there but could not be read, or may hide behind an unknown one."""
    entries = fields.node.entries
    return (key in entries and key not in fields) or not entries.keys() <= COMPONENT.keys.keys()


def _variant_paths(value: Any) -> Iterable[Any]:
    """The paths of a variant, each `Fields` or `BAD`."""
    if value is BAD:
        return (BAD,)
    if not isinstance(value, Fields):
        paths: Iterable[Any] = value
        return paths
    if not has_implementation(value.node):
        return (value,)
    return (BAD,) if _unread(value, "annotation") else value.get("annotation", ())


def _report_no_path(declared: Declared, findings: Findings) -> None:
    name, variants = declared.key.text, ", ".join(declared.variants)
    if declared.variants:
        message = f"{name} has paths only in its variants ({variants}), and none is chosen"
        remedy = f"Choose one: --variant {name}={next(iter(declared.variants))}"
        findings.add("BLZ025", message, declared.key.mark, remedy)
    elif says_only_code(declared):
        message = f"{name} has code and no path, and no streams say what comes in and goes out"
        remedy = f"Add streams with `to: {name}.INPUT` and `from: {name}.OUTPUT`."
        findings.add("BLZ025", message, declared.key.mark, remedy)
    else:
        findings.add("BLZ025", f"{name} has no path", declared.key.mark)


_Paths: TypeAlias = "list[tuple[Path, Fields]]"
"""Paths, each with what was read of it."""


def _override(base: _Paths, variant: _Paths) -> _Paths:
    ends = {(path.source, path.target): (path, fields) for path, fields in base}
    ends.update({(path.source, path.target): (path, fields) for path, fields in variant})
    return list(ends.values())


def _paths(several: Iterable[Any], variant: str | None, findings: Findings) -> _Paths:
    paths: dict[tuple[str, str], tuple[Path, Fields]] = {}
    for fields in several:
        path = None if fields is BAD else _path(fields, variant, findings)
        if path is None:
            continue
        ends = (path.source, path.target)
        if ends in paths:
            first = paths[ends][0].position
            line = f"; the first is in line {first.line}" if first else ""
            message = f"a second path from {path.source} to {path.target}{line}"
            remedy = "Keep the one with the more severe label."
            findings.add("BLZ006", message, fields.node.mark, remedy)
        else:
            paths[ends] = (path, fields)
    return list(paths.values())


_WITHIN: Final = {within.value: within for within in Within}


def _path(fields: Fields, variant: str | None, findings: Findings) -> Path | None:
    values = fields.values
    if "from" not in values or "to" not in values:
        return None
    source, target = values["from"].text, values["to"].text
    annotation = _annotation(fields, findings)
    if annotation is None and not fields.broken and "subscript" not in values:
        message = f"the path from {source} to {target} has no label and is taken for OW[*]"
        findings.add("BLZ023", message, fields.node.mark)
    lineage = values.get("lineage")
    return Path(
        source=source,
        target=target,
        annotation=annotation or UNKNOWN,
        state=values["state"].text if "state" in values else None,
        within=_WITHIN[values.get("within", "set")],
        nondeterministic=values.get("nondeterministic"),
        why=values.get("why"),
        lineage=None if lineage is None else _lineage(lineage),
        repeats=Repeats(values["repeats"]) if "repeats" in values else None,
        rows=Rows(values.get("rows", "many")),
        annotated=annotation is not None,
        variant=variant,
        position=findings.position(fields.node.mark),
    )


def _lineage(value: Mapping[str, tuple[Scalar, Any]]) -> Mapping[str, str]:
    copies = {attribute: copy.text for attribute, (_, copy) in value.items() if copy is not BAD}
    return MappingProxyType(copies)


def gate_of(fields: Fields) -> tuple[Scalar, ...]:
    """The attributes of a path's gate, where they stand; empty where it has none or `*`."""
    label: LabelValue | None = fields.get("label")
    return (label and label.gate) or fields.get("subscript") or ()


def _annotation(fields: Fields, findings: Findings) -> Annotation | None:
    """The annotation of `label` and `subscript` together; None where there is no label."""
    label: LabelValue | None = fields.values.get("label")
    gate: tuple[Scalar, ...] | None = fields.values.get("subscript")
    node = fields.node
    if label is None:
        if gate is not None and "label" not in node.entries and not fields.broken:
            message = "a subscript without a label"
            findings.add(
                "BLZ022", message, node.key_mark("subscript"), "Add `label: OR` or `label: OW`."
            )
        return None
    kind = label.kind
    if kind.confluent:
        if "subscript" in node.entries:
            message = f"a subscript on {kind.name}, which is confluent"
            findings.add("BLZ021", message, node.key_mark("subscript"))
        if fields.get("within") == "sequence":
            message = f"`within: sequence` on {kind.name}, which is confluent"
            findings.add("BLZ024", message, node.key_mark("within"))
        return Annotation(kind)
    if label.gate is not None and "subscript" in node.entries:
        findings.add("BLZ022", "the gate is in the label already", node.key_mark("subscript"))
    gate = label.gate if label.gate is not None else gate
    return Annotation(kind, Gate(key_of(gate)) if gate else STAR)


def _implementations(
    declared: Declared,
    base: _Paths,
    variants: Mapping[str, _Paths],
    chosen: str | None,
    findings: Findings,
) -> Mapping[str, Implementation]:
    """By output; those of the chosen variant take the place of the component's own."""
    fields = declared.fields
    brought = {
        variant: value
        for variant, (_, value) in declared.variants.items()
        if isinstance(value, Fields) and not COMPUTES.isdisjoint(value.values)
    }
    if not brought and COMPUTES.isdisjoint(fields.values):
        return EMPTY
    outputs = {path.target for path, _ in chain(base, *variants.values())}
    own = base or list(chain(*variants.values()))
    by_output = _computed(fields, own, outputs, findings)
    for variant, value in brought.items():
        theirs = _computed(value, variants[variant] or base, outputs, findings)
        if variant == chosen:
            by_output |= theirs
    active = {path.target for path, _ in (*base, *variants.get(chosen or "", ()))}
    return MappingProxyType({output: by for output, by in by_output.items() if output in active})


def _processor(fields: Fields) -> Processor | None:
    """The processor; None where a part that it needs could not be read."""
    time = fields.get("time", "none")
    event = isinstance(time, Fields)
    needed = {"event", "delay"} - time.values.keys() if isinstance(time, Fields) else set()
    if fields.broken or needed or not fields.values.keys() >= {"class", "key"}:
        return None
    return Processor(
        make=fields.values["class"],
        key=tuple(attribute.text for attribute in fields.values["key"] if attribute is not BAD),
        takes=fields.get("takes", "rows"),
        time="event" if event else time,
        event_time=time.values["event"].text if event else None,
        delay_s=time.values["delay"] if event else 0.0,
    )


def _computed(
    fields: Fields, paths: _Paths, outputs: set[str], findings: Findings
) -> dict[str, Implementation]:
    """Output -> implementation, as a component or variant with these paths declares them."""
    by_output: dict[str, Implementation] = {}
    own = list(dict.fromkeys(path.target for path, _ in paths))
    for key in COMPUTES:
        value = fields.get(key)
        if isinstance(value, Fields):
            value = _processor(value)
        if value is None:
            continue
        if isinstance(value, str | Processor):
            mark = fields.node.value_mark(key)
            if len(own) > 1 and key != "bloom":
                message = f"one `{key}` for the outputs {', '.join(own)}"
                example = "Write a mapping: {" + ", ".join(f"{name}: ..." for name in own) + "}"
                findings.add("BLZ063", message, mark, example)
            items = [(name, mark, value) for name in own]
        else:
            items = [(name, node.mark, text) for name, (node, text) in value.items() if text]
        for name, mark, text in items:
            if name not in outputs and not fields.broken:
                near = findings.suggest(name, outputs)
                findings.add("BLZ061", f"`{key}` for `{name}`, which no path leads to{near}", mark)
            elif name in by_output:
                before = next(k for k in COMPUTES if getattr(by_output[name], k) is not None)
                findings.add("BLZ062", f"both `{before}` and `{key}` for the output `{name}`", mark)
            else:
                how: dict[str, Any] = {key: text}
                by_output[name] = Implementation(**how, position=findings.position(mark))
    return by_output
