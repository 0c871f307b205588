"""A Python module that declares a dataflow, as the tree that a dataflow file gives.

    clicks = blazes.source("clicks", schema={"id": "BIGINT"}, format="json", path="data/clicks")

    @blazes.component(label="OW[id]", why="...")
    def counts(clicks: DataFrame) -> DataFrame: ...

    blazes.sink(counts, format="json", path="results/counts")

Nothing of the module is run: its declarations are read off the syntax tree (`python_values`), and
become the mappings that `keys` describes, with the places of the module. What is a mistake in a
file is therefore the same mistake here.

A component is a function, whose parameters are its inputs; a parameter stands for the source or
the output of its name, unless `reads` says otherwise. Streams follow from that; `stream` declares
one with both ends.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from annotations.diagnostics import Findings
from annotations.file.python_declarations import (
    ENDS,
    KEYWORDS,
    OF_PATH,
    Declared,
    End,
    Entries,
    Names,
    Part,
    at_start,
    enter_text,
)
from annotations.file.python_streams import Reader, Streams, ends_of_streams
from annotations.file.python_values import Mark, NotConstant, Values
from annotations.file.unannotated import COMPUTES
from annotations.positions import List, Map, Node, Place, Scalar, shorten


def read_module(text: str, findings: Findings, *, module: str) -> Node | None:
    """The tree of what a module declares; None where it cannot be read.

    Args:
        text: of the module.
        findings: gets its mistakes.
        module: its name, by which a job imports it.
    """
    try:
        tree = ast.parse(text)
        return _Module(tree, text, findings, module).tree()
    except SyntaxError as error:
        place = Place(max((error.lineno or 1) - 1, 0), max((error.offset or 1) - 1, 0))
        findings.add("BLZ095", f"this is not Python: {error.msg}", place)
    except (ValueError, RecursionError, MemoryError):
        findings.add("BLZ005", "the module is nested too deeply", Place(0, 0))
    return None


class _Module:
    """One module on its way into a tree."""

    def __init__(self, tree: ast.Module, text: str, findings: Findings, module: str) -> None:
        self._tree, self._findings, self._module = tree, findings, module
        self._names = Names(tree)
        self._values = Values(tree, text, findings, module)
        self._read: set[int] = set()
        """Identities of the calls and decorators that were read as declarations."""
        self._known: dict[int, Declared | Part] = {}
        """Identity of a call or function -> what it declares."""
        self._parts: dict[str, Part] = {}
        self._components = Map(at_start())
        self._streams: list[Declared] = []
        """Sources, streams and sinks, as they stand in the module."""
        self._dataflow: Declared | None = None

    def tree(self) -> Node | None:
        """The tree; None where the module declares nothing."""
        for statement in self._tree.body:
            match statement:
                case ast.FunctionDef():
                    self._function(statement)
                case ast.Expr(value=ast.Call() as call):
                    self._declare(call)
                case ast.Assign(value=ast.Call() as call) | ast.AnnAssign(value=ast.Call() as call):
                    self._declare(call)
        self._check_all_read()
        if not self._parts and not self._streams:
            message = "the module declares no component"
            self._findings.add("BLZ003", message, at_start(), "Decorate a function: "
                               "`@blazes.component(...)`.")  # fmt: skip
            return None
        root = Map(at_start())
        if self._dataflow is not None:
            root.entries |= self._dataflow.entries
        self._enter(root, "components", self._components)
        streams = Map(at_start())
        for name, node in self._connected().all():
            if name.text in streams.entries:
                first = self._findings.position(streams.key_mark(name.text))
                message = f"a second stream `{name.text}`; the first is in line {first.line}"
                self._findings.add("BLZ006", message, name.mark)
            streams.entries[name.text] = name, node
        self._enter(root, "streams", streams)
        return root

    def _connected(self) -> Streams:
        """The streams, with everything looked up that is read."""
        takers: dict[End, list[Declared]] = {}
        for sink in self._streams:
            if sink.takes is not None and (end := self._output(sink.takes)) is not None:
                takers.setdefault(end, []).append(sink)
        inlets = ends_of_streams(self._streams, "to")
        readers: dict[End, list[Reader]] = {}
        for part in self._parts.values():
            for interface, mark in part.inputs.items():
                reader = Reader(part.name.text, interface, mark)
                if reader.end not in inlets:
                    for end in self._read_by(part, reader):
                        readers.setdefault(end, []).append(reader)
        return Streams(self._streams, tuple(self._parts.values()), readers, takers, self._findings)

    def _output(self, taken: ast.expr) -> End | None:
        end = self.end(taken, "the sink takes")
        if end is not None and end.component is None:
            self.refuse(taken, f"`{end.name}` is a source, and a sink takes an output")
            return None
        return end

    def _read_by(self, part: Part, reader: Reader) -> Iterator[End]:
        verb = f"{reader.component} reads"
        if reader.interface in part.reads:
            ends = [self.end(item, verb) for item, _ in part.reads[reader.interface]]
        elif not part.computed:
            ends = []
        else:
            ends = [self.named(Scalar(reader.interface, reader.mark), verb)]
        yield from filter(None, ends)

    @staticmethod
    def _enter(root: Map, key: str, node: Node) -> None:
        root.entries[key] = Scalar(key, at_start()), node

    def refuse(self, node: ast.expr, reason: str, remedy: str | None = None) -> None:
        """Note that something of a declaration is not understood."""
        self._findings.add("BLZ095", reason, self._values.mark(node), remedy)

    def _check_all_read(self) -> None:
        """A declaration that is not a statement of the module itself would have no effect."""
        for node in ast.walk(self._tree):
            inner: list[ast.expr] = []
            if isinstance(node, ast.Call) and self._names.declared_by(node.func):
                inner = [node]
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = [d for d in node.decorator_list if self._names.declared_by(d)]
            for declaration in inner:
                if id(declaration) not in self._read:
                    message = "a declaration inside of another statement is not read"
                    remedy = "Declare at the top level of the module, one statement for each."
                    self.refuse(declaration, message, remedy)

    # ---- declarations

    def _declare(self, call: ast.Call) -> Declared | Part | None:
        """The declaration that a call is; None where it is none, or not understood."""
        kind = self._names.declared_by(call.func)
        if kind is None:
            return None
        if id(call) in self._known:
            return self._known[id(call)]
        if id(call) in self._read:
            return None
        self._read.add(id(call))
        declared = self._declaration(kind, call)
        if declared is not None:
            self._known[id(call)] = declared
        return declared

    def _declaration(self, kind: str, call: ast.Call) -> Declared | Part | None:
        keywords = self._keywords(kind, call)
        positional = list(call.args)
        at_most = {"sql": 2, "sink": 1}.get(kind, 1)
        if any(isinstance(argument, ast.Starred) for argument in positional):
            self.refuse(call, f"`{kind}` with `*` is not understood")
            return None
        if len(positional) > at_most:
            self.refuse(positional[at_most], f"`{kind}` takes no argument here; name it")
            return None
        if kind == "sink":
            return self._sink(call, positional, keywords)
        if kind == "dataflow":
            if positional:
                keywords["name"] = Scalar("name", self._values.mark(positional[0])), positional[0]
            return self._whole(call, keywords)
        name = self._name(kind, call, positional[0] if positional else None, keywords)
        if name is None:
            return None
        if kind == "component":
            return self._component(call, name, keywords, {}, None)
        if kind == "sql":
            if len(positional) < 2:
                self.refuse(call, "`sql` needs a name and a query")
                return None
            query = self._node(positional[1])
            key = Scalar("sql", self._values.mark(positional[1]))
            own: Entries = {} if query is None else {"sql": (key, query)}
            return self._component(call, name, keywords, own, None)
        declared = Declared(kind, name, self._entries(keywords, ()), self._values.mark(call))
        self._streams.append(declared)
        return declared

    def _whole(
        self,
        call: ast.Call,
        keywords: dict[str, tuple[Scalar, ast.expr | Node]],
    ) -> Declared:
        mark = self._values.mark(call)
        entries = self._entries(keywords, ())
        if self._dataflow is not None:
            first = self._findings.position(self._dataflow.mark)
            message = f"a second dataflow; the first is in line {first.line}"
            self._findings.add("BLZ006", message, mark)
        self._dataflow = Declared("dataflow", Scalar("", mark), entries, mark)
        return self._dataflow

    def _keywords(self, kind: str, call: ast.Call) -> dict[str, tuple[Scalar, ast.expr | Node]]:
        """The keywords of a declaration; those that it does not have are mistakes (BLZ010)."""
        keywords: dict[str, tuple[Scalar, ast.expr | Node]] = {}
        known = (*KEYWORDS[kind], "name")
        for keyword in call.keywords:
            if keyword.arg is not None:
                key = Scalar(keyword.arg, self._values.mark(keyword))
                keywords[keyword.arg] = key, keyword.value
            elif isinstance(several := self._node(keyword.value), Map):
                keywords |= several.entries
            elif several is not None:
                self.refuse(keyword.value, "`**` takes a dictionary")
        for text, (key, _) in list(keywords.items()):
            if text not in known and kind != "stream":
                near = self._findings.suggest(text, known)
                message = f"`{kind}` has no keyword `{shorten(text)}`{near}"
                self._findings.add("BLZ010", message, key.mark)
                del keywords[text]
        return keywords

    def _name(
        self,
        kind: str,
        call: ast.Call,
        given: ast.expr | None,
        keywords: dict[str, tuple[Scalar, ast.expr | Node]],
    ) -> Scalar | None:
        """The name that a declaration gives."""
        value = keywords.pop("name", (None, given))[1] if given is None else given
        if given is not None and "name" in keywords:
            self.refuse(given, "the name stands here twice")
        if value is None:
            self.refuse(call, f"`{kind}` needs a name")
            return None
        node = self._node(value) if isinstance(value, ast.expr) else value
        if node is None:
            return None
        if not isinstance(node, Scalar) or node.plain:
            self._findings.add("BLZ014", f"the name of a `{kind}` is a text", node.mark)
            return None
        return node

    def _node(self, expression: ast.expr) -> Node | None:
        """The value of an expression; None, and noted, where it is not known."""
        try:
            return self._values.node(expression)
        except NotConstant as unknown:
            self.refuse(unknown.node, unknown.reason)
            return None

    def _entries(
        self,
        keywords: Mapping[str, tuple[Scalar, ast.expr | Node]],
        left_out: Collection[str],
    ) -> Entries:
        """Keywords as the keys of a mapping; one that is None is not there."""
        entries: Entries = {}
        for text, (key, value) in keywords.items():
            if text in left_out:
                continue
            if isinstance(value, ast.Constant) and value.value is None:
                continue
            node = self._node(value) if isinstance(value, ast.expr) else value
            if node is not None:
                plain = text.removesuffix("_") if text == "from_" else text
                entries[plain] = (Scalar(plain, key.mark), node)
        return entries

    def _sink(
        self,
        call: ast.Call,
        positional: list[ast.expr],
        keywords: dict[str, tuple[Scalar, ast.expr | Node]],
    ) -> Declared | None:
        if not positional:
            self.refuse(call, "`sink` needs what it takes: a component, or the name of an output")
            return None
        if isinstance(positional[0], ast.Call):
            self._declare(positional[0])
        mark = self._values.mark(call)
        name = self._name("sink", call, None, keywords) if "name" in keywords else None
        named = name or Scalar("", mark)
        declared = Declared("sink", named, self._entries(keywords, ()), mark, positional[0])
        self._streams.append(declared)
        return declared

    # ---- components

    def _function(self, function: ast.FunctionDef) -> None:
        for decorator in function.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            kind = self._names.declared_by(call.func if call is not None else decorator)
            if kind is None:
                continue
            self._read.add(id(decorator))
            if kind != "component":
                self.refuse(decorator, f"a function is a `component`, not a `{kind}`")
                continue
            keywords = {} if call is None else self._keywords(kind, call)
            name: Scalar | None = Scalar(function.name, self._values.name_mark(function))
            if call is not None and (call.args or "name" in keywords):
                given = call.args[0] if call.args else None
                name = self._name(kind, call, given, keywords)
            if name is None:
                continue
            reference = Scalar(f"{self._module}:{function.name}", self._values.name_mark(function))
            own: Entries = {"python": (Scalar("python", reference.mark), reference)}
            node = call or decorator
            part = self._component(node, name, keywords, own, function)
            if part is not None:
                self._known[id(function)] = part

    def _component(
        self,
        node: ast.expr,
        name: Scalar,
        keywords: dict[str, tuple[Scalar, ast.expr | Node]],
        own: Entries,
        function: ast.FunctionDef | None,
    ) -> Part | None:
        for computes in COMPUTES & keywords.keys() if own else ():
            message = f"both `{computes}` and a function, or a query, for {name.text}"
            self._findings.add("BLZ062", message, keywords.pop(computes)[0].mark)
        entries = own | self._entries(keywords, (*OF_PATH, "reads", "output"))
        about_paths = self._entries(
            {key: value for key, value in keywords.items() if key in OF_PATH}, ()
        )
        reads = self._reads(keywords["reads"][1]) if "reads" in keywords else {}
        inputs = {text: several[0][1] for text, several in reads.items()}
        if function is not None:
            inputs = self._parameters(function)
            for text in reads.keys() - inputs.keys():
                near = self._findings.suggest(text, inputs)
                message = f"`{function.name}` has no parameter `{text}`{near}"
                self._findings.add("BLZ041", message, reads[text][0][1])
        outputs = self._outputs(name, keywords, entries, function)
        ends = _ends_of(entries)
        if ends is not None:
            inputs, outputs = {**ends[0], **inputs}, tuple(ends[1])
        if about_paths and "annotation" in entries:
            key = next(iter(about_paths.values()))[0]
            message = f"`{key.text}` stands beside `annotation`, which has it for each path"
            self._findings.add("BLZ006", message, key.mark)
        elif about_paths and not inputs:
            message = (
                f"`{next(iter(about_paths))}` is said of what {name.text} reads, and nothing is"
            )
            self._findings.add("BLZ012", message, name.mark, "Say with `reads=` what it reads.")
        elif about_paths:
            annotation = self._annotation(name, inputs, outputs, about_paths)
            entries = {"annotation": (Scalar("annotation", name.mark), annotation), **entries}
        if name.text in self._parts:
            first = self._findings.position(self._parts[name.text].name.mark)
            message = f"a second component {name.text}; the first is in line {first.line}"
            self._findings.add("BLZ006", message, name.mark)
            return None
        mapping = Map(name.mark)
        mapping.entries |= entries
        self._components.entries[name.text] = name, mapping
        part = self._parts[name.text] = Part(name, inputs, outputs, reads, bool(own))
        return part

    def _parameters(self, function: ast.FunctionDef) -> dict[str, Mark]:
        """The inputs of a function: its parameters, but for those that have a value already."""
        arguments = function.args
        others = [arguments.vararg, arguments.kwarg, *arguments.posonlyargs]
        for other in filter(None, others):
            mark = self._values.mark(other)
            message = f"`{other.arg}` is no input: DataFrames come in by the names of parameters"
            self._findings.add("BLZ095", message, mark, "Name each input as a parameter.")
        plain = arguments.args[: len(arguments.args) - len(arguments.defaults)]
        required = [
            argument
            for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is None
        ]
        return {argument.arg: self._values.mark(argument) for argument in (*plain, *required)}

    def _outputs(
        self,
        name: Scalar,
        keywords: Mapping[str, tuple[Scalar, ast.expr | Node]],
        entries: Entries,
        function: ast.FunctionDef | None,
    ) -> tuple[str, ...]:
        """The outputs: what `output` says, those of several queries, else one of the name."""
        if "output" in keywords:
            value = keywords["output"][1]
            node = self._node(value) if isinstance(value, ast.expr) else value
            if isinstance(node, Scalar) and not node.plain:
                return (node.text,)
            if node is not None:
                self._findings.add("BLZ014", "`output` is the name of an interface", node.mark)
        several = [
            text
            for key in COMPUTES
            if key in entries and isinstance(mapping := entries[key][1], Map)
            for text in mapping.entries
        ]
        if several:
            return tuple(several)
        return (name.text if function is None else function.name,)

    def _annotation(
        self, name: Scalar, inputs: Mapping[str, Mark], outputs: tuple[str, ...], about: Entries
    ) -> Node:
        """The claims about all paths, for each of them; `label` may differ by input."""
        paths = List(name.mark)
        label = about.get("label")
        by_input = label[1] if label is not None and isinstance(label[1], Map) else None
        if by_input is not None:
            for source, (key, _) in by_input.entries.items():
                if source not in inputs:
                    near = self._findings.suggest(source, inputs)
                    message = f"{name.text} has no input `{source}`{near}"
                    self._findings.add("BLZ041", message, key.mark)
        for source in inputs:
            for target in outputs:
                mark = label[1].mark if label is not None and by_input is None else name.mark
                if by_input is not None and source in by_input.entries:
                    mark = by_input.entries[source][0].mark
                path = Map(mark)
                enter_text(path, "from", source)
                enter_text(path, "to", target)
                path.entries |= about
                if by_input is not None:
                    del path.entries["label"]
                    if source in by_input.entries:
                        key, value = by_input.entries[source]
                        path.entries["label"] = Scalar("label", key.mark), value
                paths.items.append(path)
        return paths

    # ---- what reads what

    def _reads(self, value: ast.expr | Node) -> dict[str, list[tuple[ast.expr, Mark]]]:
        """Input -> the sources and outputs that it stands for, as `reads` says it."""
        reads: dict[str, list[tuple[ast.expr, Mark]]] = {}
        bound = self._values.bound
        while isinstance(value, ast.Name) and isinstance(bound.get(value.id), ast.List | ast.Dict):
            value = bound[value.id]  # type: ignore[assignment]
        match value:
            case ast.Dict(keys=keys, values=values):
                for key, item in zip(keys, values, strict=True):
                    named = None if key is None else self._node(key)
                    if key is None or not isinstance(named, Scalar):
                        self.refuse(key or item, "a key of `reads` is the name of an input")
                        continue
                    several = item.elts if isinstance(item, ast.List | ast.Tuple) else [item]
                    mark = self._values.mark(key)
                    reads[named.text] = [(one, mark) for one in several]
            case ast.List(elts=items) | ast.Tuple(elts=items):
                for item in items:
                    mark = self._values.mark(item)
                    if isinstance(item, ast.Constant) and isinstance(item.value, str):
                        interface = item.value.rpartition(".")[2]
                        reads.setdefault(interface, []).append((item, mark))
                    elif (end := self.end(item, "it reads")) is not None:
                        reads.setdefault(end.name, []).append((item, mark))
            case ast.expr():
                self.refuse(value, "`reads` is a list, or a dictionary from inputs")
            case _:
                message = "`reads` is a list, or a dictionary from inputs, written in the call"
                self._findings.add("BLZ095", message, value.mark)
        return reads

    def end(self, expression: ast.expr, verb: str) -> End | None:
        """The source or output that an expression stands for; None, and noted, where none does."""
        declared: Declared | Part | None = None
        node: ast.AST = expression
        while isinstance(node, ast.Name) and node.id in self._values.bound:
            node = self._values.bound[node.id]
        if isinstance(node, ast.Call):
            declared = self._declare(node)
            if declared is None and id(node) in self._read:
                return None
        elif isinstance(node, ast.FunctionDef):
            declared = self._known.get(id(node))
            if declared is None and any(id(d) in self._read for d in node.decorator_list):
                return None
        match declared:
            case Declared(kind="source"):
                return End(None, declared.name.text)
            case Part(outputs=(output,)):
                return End(declared.name.text, output)
            case Part():
                message = f"{declared.name.text} has several outputs; name one of them"
                self.refuse(expression, message, f'Write "{declared.name.text}.OUTPUT".')
                return None
            case Declared():
                self.refuse(expression, f"a `{declared.kind}` gives no records")
                return None
        text = self._node(expression)
        if text is None:
            return None
        if not isinstance(text, Scalar) or text.plain or ":" in text.text:
            message = f"{verb} a source, a component, or the name of one"
            self._findings.add("BLZ095", message, text.mark)
            return None
        return self.named(text, verb)

    def named(self, name: Scalar, verb: str) -> End | None:
        """The source or output of a name; None, and noted, where none or several are called so."""
        component, dot, output = name.text.partition(".")
        ends = self.ends()
        if dot:
            called = [end for end in ends if end == End(component, output)]
            names = [str(end) for end in ends if end.component]
        else:
            called = [end for end in ends if end.name == name.text]
            called = called or [end for end in ends if end.component == name.text]
            names = [end.name for end in ends]
        if len(called) == 1:
            return called[0]
        if not called:
            near = self._findings.suggest(name.text, names)
            message = f"{verb} `{shorten(name.text)}`, which is neither a source nor an output"
            remedy = f'Declare it, such as `blazes.source("{shorten(name.text)}", ...)`, or say '
            remedy += "with `reads=` what the input stands for."
            self._findings.add("BLZ044", f"{message}{near}", name.mark, remedy)
        else:
            of = ", ".join(f"of {end.component}" if end.component else "a source" for end in called)
            message = f"{verb} `{name.text}`, of which there are several: {of}"
            remedy = 'Write "Component.output", or give them different names.'
            self._findings.add("BLZ047", message, name.mark, remedy)
        return None

    def ends(self) -> list[End]:
        """Every source and output."""
        sources = [End(None, s.name.text) for s in self._streams if s.kind == "source"]
        outputs = [
            End(part.name.text, output) for part in self._parts.values() for output in part.outputs
        ]
        return [*dict.fromkeys(sources), *outputs]


def _ends_of(entries: Entries) -> tuple[dict[str, Mark], list[str]] | None:
    """The interfaces that `annotation` and variants name; None where there is no annotation."""
    inputs: dict[str, Mark] = {}
    outputs: list[str] = []
    todo = [entries[key][1] for key in ("annotation", "variants") if key in entries]
    if not todo:
        return None
    while todo:
        node = todo.pop(0)
        if isinstance(node, List):
            todo[:0] = node.items
        elif isinstance(node, Map) and ENDS & node.entries.keys():
            source, target = (node.entries.get(key, (None, None))[1] for key in ("from", "to"))
            if isinstance(source, Scalar):
                inputs.setdefault(source.text, source.mark)  # type: ignore[arg-type]
            if isinstance(target, Scalar):
                outputs.append(target.text)
        elif isinstance(node, Map):
            todo[:0] = [value for _, value in node.entries.values()]
    return (inputs, list(dict.fromkeys(outputs))) if outputs else None
