"""The YAML front end: a file becomes a `Dataflow`, or all of its mistakes are named in one run.

`positions` makes a tree that knows its places, `keys` and `shapes` read it by tables, `components`,
`streams` and `connect` build the dataflow, `checks` looks at it as a whole. Format:
`docs/reference/file-format.md`; the paper's own listings (Blazes section VI) load unchanged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from annotations.dataflow import EMPTY, Component, Dataflow, Deployment, Stream
from annotations.diagnostics import BadInput, Diagnostic, Findings
from annotations.file import checks
from annotations.file.completion import completed
from annotations.file.components import Built, build_component
from annotations.file.connect import connect
from annotations.file.keys import (
    COMPONENT_NAME,
    DATAFLOW,
    LISTING,
    SECTIONS,
    is_component,
    looks_like_listing,
)
from annotations.file.notation import DependencyValue, key_of
from annotations.file.records import Fields
from annotations.file.shapes import BAD, Pairs
from annotations.file.splits import with_splits
from annotations.file.streams import Streams, check_secrets, texts
from annotations.file.unannotated import Declared, Ends, ends_of
from annotations.gc_pause import gc_paused
from annotations.positions import Map, Node, Place, Scalar, describe, place_at, read_tree, shorten
from annotations.vocabulary import FunctionalDependency

if TYPE_CHECKING:
    from annotations.whitebox.sandbox import Limits

BYTES_MAX: Final = 256 * 2**20
"""Size of the largest file that is read."""


def load(
    path: str | FilePath,
    *,
    variants: Mapping[str, str] = EMPTY,
    execute: Limits | None = None,
) -> tuple[Dataflow, tuple[Diagnostic, ...]]:
    """The dataflow of a file, or of a module in Python that declares one, and warnings.

    Raises `BadInput` with every mistake of the file, warnings among them.

    Args:
        path: of the file.
        variants: component -> the variant to choose.
        execute: what the Python functions of components without an annotation may take when they
            are run to be read; None: nothing of the user's is run.
    """
    file = FilePath(path)
    try:
        with file.open("rb") as stream:
            data = stream.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _unreadable(str(path), f"{path} cannot be read: {reason}") from None
    if len(data) > BYTES_MAX:
        raise _unreadable(str(path), f"{path} has more than {BYTES_MAX // 2**20} MiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        message = f"byte {error.start + 1} of {path} is not UTF-8"
        raise _unreadable(str(path), message, place_at(before, len(before))) from None
    name = "-".join(re.findall(r"\w+", file.stem)) or "dataflow"
    module = file.stem if file.suffix == ".py" else None
    return _Reading(text, str(path), variants, execute, module).dataflow(name, file, data)


def loads(
    text: str,
    *,
    file: str = "<string>",
    variants: Mapping[str, str] = EMPTY,
    execute: Limits | None = None,
    module: str | None = None,
) -> tuple[Dataflow, tuple[Diagnostic, ...]]:
    """As `load`, of a text; `file` is what positions call it, `module` its name if it is Python."""
    data = text.encode("utf-8", "surrogatepass")
    return _Reading(text, file, variants, execute, module).dataflow("dataflow", None, data)


def _unreadable(file: str, message: str, where: Place | None = None) -> BadInput:
    findings = Findings(file)
    findings.add("BLZ001", message, where)
    return BadInput(findings.sorted())


_BESIDE_CODE: Final = frozenset({"BLZ053", "BLZ054"})
"""Errors with which the code can still be checked, so that all mistakes are told in one run."""


class _Reading:
    """One run over one file."""

    def __init__(
        self,
        text: str,
        file: str,
        variants: Mapping[str, str],
        execute: Limits | None,
        module: str | None,
    ) -> None:
        self.text = text.removeprefix("\ufeff")
        self.module = module
        self.findings = Findings(file, self.text)
        self.chosen = variants
        self.execute = execute
        self.declared: dict[str, Declared] = {}
        self.sections: dict[str, Any] = {}
        """Key at top level -> its value, as far as it could be read."""
        self.complete = True
        """False where a component or a stream may be missing, so that nothing can be said of the
        whole."""

    def dataflow(
        self, name: str, file: FilePath | None, data: bytes
    ) -> tuple[Dataflow, tuple[Diagnostic, ...]]:
        """The dataflow, or `BadInput`."""
        with gc_paused():
            dataflow = self._run(name, file, data)
            self.declared, self.sections = {}, {}  # the collector need not see the tree
        if dataflow is None or self.findings.errors:
            raise BadInput(self.findings.sorted())
        return dataflow, self.findings.sorted()

    def _run(self, name: str, file: FilePath | None, data: bytes) -> Dataflow | None:
        if self.module is not None:
            from annotations.file.python_module import read_module

            root = read_module(self.text, self.findings, module=self.module)
        else:
            root = read_tree(self.text, self.findings)
        self.complete = not self.findings.errors
        if root is None or not self._read(root):
            return None
        return self._build(name, file, data)

    def _read(self, root: Node) -> bool:
        """Read the file by the key tables; False where there are no components to go on with."""
        if type(root) is not Map or not root.entries:
            self.findings.add("BLZ003", f"expected a mapping, found {describe(root)}", root.mark)
            return False
        if "components" in root.entries:
            fields = DATAFLOW.read(root, self.findings)
            assert isinstance(fields, Fields)
            self.sections = fields.values
            for name, (key, value) in self.sections.get("components", {}).items():
                self._declare(name, key, value)
            self._count_entries(root, "components", self.declared)
        else:
            self._read_listing(root)
        self._count_entries(root, "streams", self.sections.get("streams", ()))
        return bool(self.declared)

    def _declare(self, name: str, key: Scalar, value: Any) -> None:
        """A component; `value` is `BAD` where nothing but its name could be read."""
        fields = value if isinstance(value, Fields) else Fields(Map(key.mark))
        fields.broken |= value is BAD
        self.declared[name] = Declared(key, fields, dict(fields.get("variants", {})))

    def _count_entries(self, root: Map, section: str, read: Collection[str]) -> None:
        node = root.entries[section][1] if section in root.entries else None
        if node is not None and (type(node) is not Map or len(node.entries) != len(read)):
            self.complete = False

    def _read_listing(self, root: Map) -> None:
        """The paper's own form: components and variants at top level, beside the sections."""
        last: Declared | None = None
        for text, (key, node) in root.entries.items():
            self.findings.key = text
            if text in SECTIONS:
                value = SECTIONS[text].shape.read(node, self.findings)
                if value is not BAD:
                    self.sections[text] = value
            elif (
                self._misspelt_section(key, node) or COMPONENT_NAME.read(key, self.findings) is BAD
            ):
                self.complete = False
            else:
                self.findings.key = text
                value = LISTING.read(node, self.findings)
                if is_component(node):
                    self._declare(text, key, value)
                    last = self.declared[text]
                elif value is BAD:
                    self.complete = False
                else:
                    self._add_variant(last, key, value)
        if not self.declared and self.complete:
            self.findings.add("BLZ003", "the file has no components", root.mark)

    def _misspelt_section(self, key: Scalar, node: Node) -> bool:
        """True, and noted, for what is neither a component nor a variant and named much alike."""
        if looks_like_listing(node):
            return False
        near = self.findings.suggest(key.text, (*SECTIONS, "components"))
        if near:
            self.findings.add("BLZ010", f"unknown key `{shorten(key.text)}`{near}", key.mark)
        return bool(near)

    def _add_variant(self, component: Declared | None, key: Scalar, value: Any) -> None:
        if component is None:
            message = f"the path {key.text} stands above every component"
            self.findings.add("BLZ032", message, key.mark)
        elif key.text in component.variants:
            message = f"a second variant {key.text} of {component.key.text}"
            self.findings.add("BLZ006", message, key.mark)
        else:
            paths = [value] if isinstance(value, Fields) else value
            component.variants[key.text] = (key, paths)

    def _build(self, name: str, file: FilePath | None, data: bytes) -> Dataflow:
        ends = ends_of(self.sections.get("streams", {}))
        components = {
            text: build_component(
                declared, self._choice(text, declared), self.findings, ends.get(text, Ends())
            )
            for text, declared in self.declared.items()
        }
        self._check_choices()
        streams = self._streams(components)
        dataflow = self._whole(name, file, data, components, streams)
        if not self.findings.only(_BESIDE_CODE):
            return dataflow
        code: Code | None = None
        has_sql = any(map(_has_sql, dataflow.components.values()))
        derive = any(map(_to_derive, dataflow.components.values()))
        if has_sql or derive:
            from annotations.whitebox.code import Code
            from annotations.whitebox.code_checks import check_code
            from annotations.whitebox.deriving import with_derived_paths

            code = Code(dataflow, self.text, execute=self.execute)
            if has_sql:
                check_code(code, self.findings)
            if derive and not self.findings.errors:
                dataflow = with_derived_paths(code, self.findings)
        if self.findings.errors:
            return dataflow
        dataflow = completed(dataflow, self.text, execute=self.execute, code=code)
        return with_splits(dataflow, self.text, execute=self.execute, before=code)

    def _whole(
        self,
        name: str,
        file: FilePath | None,
        data: bytes,
        components: Mapping[str, Built],
        streams: Mapping[str, Stream],
    ) -> Dataflow:
        return Dataflow(
            name=self.sections["name"].text if "name" in self.sections else name,
            components=MappingProxyType({n: built.component for n, built in components.items()}),
            streams=MappingProxyType(streams),
            fds=tuple(
                FunctionalDependency(key_of(fd.determinant), key_of(fd.dependent), fd.injective)
                for fd in self._dependencies()
            ),
            deployment=_deployment(self.sections.get("deployment"), self.findings),
            file=file,
            sha256=hashlib.sha256(data).hexdigest(),
        )

    def _dependencies(self) -> list[DependencyValue]:
        return [fd for fd in self.sections.get("fds", ()) if fd is not BAD]

    def _choice(self, name: str, declared: Declared) -> str | None:
        """The variant chosen for the component, if it has it."""
        chosen = self.chosen.get(name)
        if chosen is None or chosen in declared.variants:
            return chosen
        if not declared.fields.broken:
            near = self.findings.suggest(chosen, declared.variants)
            message = f"{name} has no variant `{chosen}`{near}"
            known = ", ".join(declared.variants)
            remedy = f"{name} has {known}." if known else f"{name} has no variants at all."
            self.findings.add("BLZ030", message, declared.key.mark, remedy)
        return None

    def _check_choices(self) -> None:
        for name, variant in self.chosen.items():
            if name not in self.declared and self.complete:
                near = self.findings.suggest(name, self.declared)
                message = f"the variant {name}={variant} is for a component that is not there{near}"
                self.findings.add("BLZ030", message, None)

    def _streams(self, components: Mapping[str, Built]) -> Mapping[str, Stream]:
        """The streams, declared or by equal names, after every check of the whole."""
        findings, complete = self.findings, self.complete
        declared: Pairs = self.sections.get("streams", {})
        complete = complete and not any(built.broken for built in components.values())
        streams = Streams(components, findings)
        for key, fields in declared.values():
            if isinstance(fields, Fields):
                streams.add(key, fields)
        complete = complete and not streams.broken and len(streams.seen) == len(declared)
        deployment = self.sections.get("deployment")
        conf = texts(deployment.get("conf", {})) if deployment else {}
        checks.check_schemas(declared, conf, findings)
        if complete and "streams" in self.sections:
            checks.check_ends(streams, findings)
            checks.check_component_attributes(streams, findings)
        elif complete:
            streams.streams = connect(components, findings)
            checks.check_alike(components, streams.streams, findings)
        if complete:
            checks.check_dependencies(self._dependencies(), declared, components, findings)
        checks.check_unchosen(components, self.chosen, streams.left_out, findings)
        if not findings.errors and not streams.left_out:
            checks.check_reach(components, streams.streams, findings)
        return streams.streams


def _to_derive(component: Component) -> bool:
    """True where the paths are only those that the code may have."""
    return any(path.derived is not None for path in component.paths)


def _has_sql(component: Component) -> bool:
    return any(by.sql is not None for by in component.implementations.values())


def _deployment(fields: Fields | None, findings: Findings) -> Deployment:
    if fields is None:
        return Deployment()
    for options in ("conf", "zookeeper_access"):
        check_secrets(fields.get(options, {}), findings)
    return Deployment(
        master=fields.get("master"),
        zookeeper=fields.get("zookeeper", "embedded"),
        zookeeper_access=texts(fields.get("zookeeper_access", {})),
        trigger=fields.get("trigger"),
        conf=texts(fields.get("conf", {})),
        sites=fields.get("sites", 3),
        copies=fields.get("copies", 2),
        partitions=fields.get("partitions", 4),
        balance=fields.get("balance", "none"),
        site_memory=fields.get("site_memory"),
        keep_every=fields.get("keep_every"),
    )
