"""Bloom modules with what they include and import: collections and rules by their full names.

`include` brings the declarations and rules of another module in, `import B => :b` the same under
names that begin with `b.`. A file that `require_relative` or `require` names is read too, if it
lies beside the file or in a folder above. What a rule may not do is noted here (BLZ091, BLZ092).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from annotations.dataflow import Position
from annotations.diagnostics import Findings
from annotations.positions import place_at
from annotations.whitebox.bloom.modules import (
    BUILT_IN,
    LATTICES,
    PERSISTENT,
    SENT,
    Collection,
    Module,
    ModuleRule,
)
from annotations.whitebox.bloom.parser import parse
from annotations.whitebox.bloom.tree import (
    Array,
    Declaration,
    Expr,
    ModuleText,
    Name,
    Pair,
    Place,
    Rule,
    Send,
    Symbol,
)

KINDS: Final = PERSISTENT | LATTICES | SENT | {"scratch", "loopback", "periodic", "interface"}
KNOWN_MODULES: Final = frozenset({"Bud"})
FILES_MAX: Final = 50
"""Files that one text may require."""
PARENTS_MAX: Final = 3
"""Folders above a file in which those that it requires are looked for."""
PARTS_MAX: Final = 200
"""Modules that one module may include and import, in all."""
DEPTH_MAX: Final = 8
"""Modules that may be imported through one another."""

_INSTANT: Final = frozenset({"table", "scratch", "temp", "input", "output", "halt", "lattice"})
OPERATORS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "<=": _INSTANT,
        "<+": _INSTANT,
        "<-": frozenset({"table"}),
        "<+-": frozenset({"table"}),
        "<~": frozenset({"channel", "stdio", "loopback", "output", "store"}),
    }
)
"""Which kinds of collections an operator may fill; `table` stands for all that persist."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A module as it was written, and where its offsets stand."""

    module: ModuleText
    place: Place


class Library:
    """The modules of a file and of the files that it requires."""

    def __init__(
        self,
        text: str,
        *,
        file: str,
        out: Findings,
        folder: Path | None = None,
        place: Place | None = None,
    ) -> None:
        self.out = out
        self.own: list[str] = []
        """The names of the modules of the file itself."""
        self.incomplete = False
        """True where something that is not there or not understood may declare collections."""
        self._texts: dict[str, _Text] = {}
        self._files: set[Path] = set()
        self.own += self._read(text, folder, place or _places(text, file))

    def _read(self, text: str, folder: Path | None, place: Place) -> list[str]:
        """Read a text and what it requires; the names of its modules."""
        errors = self.out.errors
        modules, required = parse(text, self.out, place)
        self.incomplete = self.incomplete or self.out.errors > errors
        names = []
        for module in modules:
            if module.name in self._texts:
                self.out.add("BLZ006", f"a second module {module.name}", place(module.at))
                continue
            self._texts[module.name] = _Text(module, place)
            names.append(module.name)
        for name in required:
            self._require(name, folder)
        return names

    def _require(self, name: str, folder: Path | None) -> None:
        if folder is None or len(self._files) >= FILES_MAX:
            return
        for above in (folder, *folder.parents[:PARENTS_MAX]):
            for path in (above / f"{name}.bloom", above / f"{name}.rb", above / name):
                if not path.is_file():
                    continue
                if path.resolve() not in self._files:
                    self._files.add(path.resolve())
                    try:
                        text = path.read_text(encoding="utf-8")
                    except (OSError, UnicodeDecodeError):
                        return
                    self._read(text, path.parent, _places(text, str(path)))
                return

    def module(self, name: str) -> Module:
        """A module of the texts that were read, with what it includes."""
        return _Builder(self).built(self._texts[name])

    def text_of(self, name: str, at: Position) -> _Text | None:
        """The text of a module that another one uses."""
        if name not in self._texts and name not in KNOWN_MODULES:
            self.incomplete = True
            near = self.out.suggest(name, self._texts)
            message = f"there is no module {name}{near}"
            remedy = "Correct the name, or put the module into this file or `require` its file."
            self.out.add("BLZ091", message, at, remedy)
        return self._texts.get(name)


class _Builder:
    """One module on its way from texts to full names."""

    def __init__(self, library: Library) -> None:
        self.library, self.out = library, library.out
        self.collections: dict[str, Collection] = {}
        self.rules: list[ModuleRule] = []
        self.done: set[tuple[str, str]] = set()

    def built(self, text: _Text) -> Module:
        """The module with everything in it."""
        position = text.place(text.module.at)
        self._add(text, "")
        for name, columns in BUILT_IN.items():
            collection = Collection(name, name, columns, columns, None, position)
            self.collections.setdefault(name, collection)
        module = Module(
            text.module.name, MappingProxyType(self.collections), tuple(self.rules), position
        )
        for rule in module.rules:
            self._check(module, rule)
        known = tuple(rule for rule in module.rules if rule.target in module.collections)
        return replace(module, rules=known)

    def _add(self, text: _Text, scope: str) -> None:
        if (text.module.name, scope) in self.done or len(self.done) > PARTS_MAX:
            return
        self.done.add((text.module.name, scope))
        for name, at in text.module.includes:
            other = self.library.text_of(name, text.place(at))
            if other is not None:
                self._add(other, scope)
        for name, alias, at in text.module.imports:
            other = self.library.text_of(name, text.place(at))
            if other is not None and scope.count(".") < DEPTH_MAX:
                self._add(other, f"{scope}{alias}.")
        for declaration in text.module.declarations:
            self._declare(declaration, text, scope)
        for rule in text.module.rules:
            self._rule(rule, text, scope)

    def _declare(self, declaration: Declaration, text: _Text, scope: str) -> None:
        position = text.place(declaration.at)
        if declaration.kind not in KINDS:
            self.library.incomplete = True
            near = self.out.suggest(declaration.kind, KINDS)
            message = f"`{declaration.kind}` is no kind of collection{near}"
            self.out.add("BLZ091", message, position)
            return
        kind, declaration = _kind(declaration)
        if kind == "interface":
            self.out.add("BLZ091", "an interface is `input` or `output`", position)
            return
        name = scope + declaration.name
        columns, keys, address = self._schema(declaration, kind, scope)
        twice = next((c for at, c in enumerate(columns) if c in columns[:at]), None)
        if twice is not None:
            self.out.add("BLZ006", f"the column `{twice}` is there twice", position)
        collection = Collection(name, kind, columns, keys, address, position)
        before = self.collections.get(name)
        if before is None or (before.columns == columns and before.kind == kind):
            self.collections.setdefault(name, collection)
        else:
            message = f"`{declaration.name}` is declared in {before.position} already"
            self.out.add("BLZ006", message, position)

    def _schema(
        self, declaration: Declaration, kind: str, scope: str
    ) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
        """Columns, keys, and the column with the address of a channel."""
        for argument in declaration.arguments:
            match argument:
                case Pair(left=Array(items=keys), right=Array(items=values)):
                    return _columns(keys, values)
                case Array(items=keys):
                    return _columns(keys, ())
                case Send(receiver=Name(text=other), method="schema") if (
                    scope + other in self.collections
                ):
                    like = self.collections[scope + other]
                    return like.columns, like.keys, None
        if kind == "channel":
            return ("address", "val"), ("val",), "address"
        if kind in LATTICES:
            return ("value",), (), None
        return ("key", "val"), ("key",), None

    def _rule(self, rule: Rule, text: _Text, scope: str) -> None:
        target = scope + rule.target
        if rule.temporary and target not in self.collections:
            position = text.place(rule.at)
            self.collections[target] = Collection(target, "temp", (), (), None, position)
        elif target not in self.collections and rule.target in BUILT_IN:
            target = rule.target
        self.rules.append(
            ModuleRule(target, rule.operator, rule.source, scope, text.place, rule.at)
        )

    def _check(self, module: Module, rule: ModuleRule) -> None:
        target = module.collections.get(rule.target)
        if target is None:
            near = self.out.suggest(rule.target, self.collections)
            message = f"`{rule.target}` is not declared{near}"
            self.out.add("BLZ091", message, rule.position)
            return
        kind = "table" if target.persistent else "lattice" if target.lattice else target.kind
        if {kind, target.kind} & OPERATORS[rule.operator]:
            return
        allowed = " or ".join(
            f"`{operator}`" for operator, kinds in OPERATORS.items() if kind in kinds
        )
        remedy = f"Write {allowed}." if allowed else "Nothing can be put into it."
        shown = "an" if target.kind[0] in "aio" else "a"
        message = f"`{rule.target}` is {shown} {target.kind}, which `{rule.operator}` cannot fill"
        self.out.add("BLZ092", message, rule.position, remedy)


def _places(text: str, file: str) -> Place:
    """Where the offsets of a file's text stand."""

    def place(at: int) -> Position:
        mark = place_at(text, at)
        return Position(file, mark.line + 1, mark.column + 1)

    return place


def _kind(declaration: Declaration) -> tuple[str, Declaration]:
    """The kind that is declared; of an interface that is `input` or `output`, one of these."""
    if declaration.kind != "interface":
        return declaration.kind, declaration
    direction = declaration.direction
    match declaration.arguments:
        case (Symbol(text=name), *rest) if direction is None:
            # `interface :input, :name, [...]`
            direction = declaration.name
            declaration = replace(declaration, name=name, arguments=tuple(rest))
    return direction if direction in ("input", "output") else "interface", declaration


def _columns(
    keys: tuple[Expr, ...], values: tuple[Expr, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    named = [column for column in (*keys, *values) if isinstance(column, Symbol)]
    address = next((column.text for column in named if column.address), None)
    key = tuple(e.text for e in keys if isinstance(e, Symbol) and not e.address)
    return tuple(column.text for column in named), key, address
