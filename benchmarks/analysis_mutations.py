"""Does a test notice every change of the analysis core? Change one thing at a time, at random.

    python benchmarks/analysis_mutations.py [--count 200] [--seed 7] [--only SEALS] [--keep]

Each mutation turns one operator, condition, constant or statement of a copy of the core around.
The quick tests of `tests/blazes` that concern the module run against it, cases first, then
properties, until one fails. `--keep` writes what was found into
`benchmarks/analysis_mutations.json`; `WHY` says of each survivor why nothing notices.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import mutating

FOUND: Final = Path(__file__).with_suffix(".json")
"""What became of every mutation when it was last tried."""
CORE: Final = {
    **{
        module: f"blazes/core/{module}.py"
        for module in ("graph", "propagation", "effects", "rules", "deliveries", "limits")
    },
    **{
        module: f"blazes/{module}.py"
        for module in ("analysis", "seals", "coordination", "choice", "repairs")
    },
}
"""Module -> its file."""
PLACES: Final = {
    name: name
    for name in ("annotations", "blazes", "codegen", "examples", "tests", "pyproject.toml")
}
CASES: Final = ("test_rule_cases.py", "test_published_results.py")
"""What is run first, of every module: cases."""
LABELS: Final = (
    "test_analysis_graph.py",
    "test_analysis_properties.py::test_the_analyser_agrees_with_the_reference_on_hundreds",
)
PLANS: Final = tuple(
    f"test_plan_properties.py::test_{name}"
    for name in (
        *("every_entry_is_complete", "a_plan_names_every_order_sensitive_path_once"),
        *("a_sealed_writer_waits_for_the_other_writers_of_its_state",),
        *("an_output_waits_for_one_key_where_its_inputs_have_one_in_common",),
        *("a_vote_is_held_unless_one_producer_is_known_to_be_alone",),
        *("every_minimal_key_that_makes_an_order_unnecessary_is_an_alternative",),
        *("every_alternative_makes_the_order_unnecessary",),
        *("what_stays_ordered_leaves_the_key_to_others_of_its_output",),
        *("a_gate_drops_known_ids_of_all_sources_whose_records_it_holds_back",),
        *("what_is_above_the_target_is_inherited",),
        *("the_ordered_paths_are_the_only_smallest_set_of_fifty",),
    )
)
NEAR: Final = {
    "seals": PLANS,
    "coordination": PLANS,
    "repairs": ("test_deliveries.py",),
    "deliveries": ("test_deliveries.py",),
    "choice": ("test_choice.py",),
}
"""Then those of the module; `LABELS` where nothing is said."""
REST: Final = ("test_deliveries.py", *PLANS, *LABELS, "test_choice.py", "test_json_result.py")
"""With `--rest` also these, for what survives."""
SWAPS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
WHY: Final[dict[str, str]] = {
    "coordination._Entries._alternatives: stream.producer and "
    "propagation.handed_on.get(stream.producer) == NO_KEY => "
    "(propagation.handed_on.get(stream.producer) == NO_KEY)": (
        "equivalent: keys are handed on by outputs, and a source comes from none"
    ),
    "seals._Choice._hands_on: all(interpreter.refusal(path.shape, *before) is None for "
    "path in output.paths) => any((interpreter.refusal(path.shape, *before) is None "
    "for path in output.paths))": (
        "equivalent: the paths of an output that hands keys on have its code in common"
    ),
    "seals._Choice._choose: len(wanted) > 1 => (len(wanted) >= 1)": (
        "performance only: a single key that is wanted is chosen in a further round"
    ),
    "effects.Interpreter._infer: writes_run or (shape.writes and self.dynamic) => (writes_run)": (
        "equivalent: who reads a state that an ordered path writes is exposed, and so ordered "
        "itself, and `agreed` makes Run of what it gives"
    ),
    "deliveries.Deliveries._of_output: in_cycle or base is CORRUPT => (in_cycle)": (
        "equivalent: the stream behind the output drops the id of corrupt rows, too"
    ),
    'seals._declared_single: producers.rule == "all" and len(producers.members) == 1 => '
    "(len(producers.members) == 1)": ("equivalent: no other rule has members"),
    "deliveries._union: union >= _WHOLE_ROW => (union > _WHOLE_ROW)": (
        "equivalent: a union that is just the whole row is equal to it"
    ),
    "effects.merge: one is None or one is other => (one is None)": (
        "performance only: a label that meets itself is itself"
    ),
    "coordination._Entries._order: self._alternatives(path, gate) if self._with_alternatives "
    "else () => (self._alternatives(path, gate))": (
        "performance only: who asks for no alternatives reads none"
    ),
    "effects.at_least: label.label >= least => (label.label > least)": (
        "equivalent: `least` is never Seal, and of every other label there is one value"
    ),
    "propagation.Propagation._source: declared.label > Label.ASYNC => (declared.label >= "
    "Label.ASYNC)": ("equivalent: a source is declared Run, Inst or Diverge, or nothing"),
    "repairs._Planning._cut: 1 => 2": (
        "equivalent: any count above that of the streams keeps the costs in their order"
    ),
    "propagation.Propagation._raise_labels.raise_to: label <= "
    "self.input_labels[consumer].label => (label < self.input_labels[consumer].label)": (
        "performance only: an input is looked at again that has not risen"
    ),
    "effects.Interpreter._infer: shape.writes and label.label is Label.RUN => "
    "(label.label is Label.RUN)": (
        "equivalent: outside of cycles only writers are asked, and in a cycle the Run "
        "that a reader puts out comes round to every output of it"
    ),
    "coordination._plan: analysis.propagation or explore(analysis.dataflow, "
    "rules=analysis.rules) => (analysis.propagation and explore(analysis.dataflow, "
    "rules=analysis.rules))": ("performance only: the labels that are there are worked out again"),
    "propagation._most_severe: AnnotationKind.CW if path.shape.writes else "
    "AnnotationKind.CR => (AnnotationKind.CR)": (
        "equivalent: nothing worse than Run enters a path that is ordered, and up to "
        "there the published rules treat CW as CR"
    ),
    "deliveries.Deliveries.cross: own_gate.attributes if own_gate else None => "
    "(own_gate.attributes)": ("equivalent: a path of kind OW has a gate"),
    "analysis._Derivations._adds: gate or STAR => (gate)": (
        "equivalent: only OR leaves an unsafe read, and has a gate"
    ),
    "effects.Interpreter._seal_behind: keeps is Keeps.COMPATIBLE and shape.gate is not "
    "None => (keeps is Keeps.COMPATIBLE or shape.gate is not None)": (
        "equivalent: the kinds of which compatible keys are kept are those with a gate"
    ),
}
"""Mutation -> why no test can, or need, notice it."""


@dataclass(frozen=True)
class Mutation:
    """A piece of a module's text, by line and column, and what it becomes."""

    module: str
    function: str
    begin: tuple[int, int]
    end: tuple[int, int]
    old: str
    new: str

    @property
    def name(self) -> str:
        """What it is called where it is kept; the same as long as the code stays."""
        return f"{self.module}.{self.function}: {self.old} => {self.new}"

    def applied(self, text: str) -> str:
        """The module's text with it."""
        lines = text.splitlines(keepends=True)
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        first, last = (starts[line - 1] + column for line, column in (self.begin, self.end))
        return text[:first] + self.new + text[last:]


class _Finder(ast.NodeVisitor):
    """All mutations of a module."""

    def __init__(self, module: str, text: str) -> None:
        self.module = module
        self.text = text
        self.found: list[Mutation] = []
        self._in: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._in.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._in.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._in.append(node.name)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                self.visit(statement)
        self._in.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_Raise(self, node: ast.Raise) -> None:
        pass

    def generic_visit(self, node: ast.AST) -> None:
        for new in _changes(node):
            self._add(node, new)
        super().generic_visit(node)

    def _add(self, node: ast.AST, new: str) -> None:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        old = ast.get_source_segment(self.text, node) or ""
        if not self._in or old == new:
            return
        where = ".".join(self._in)
        begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        self.found.append(Mutation(self.module, where, begin, end, " ".join(old.split()), new))


def _changes(node: ast.AST) -> Iterator[str]:
    """What a node may become, as text."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in SWAPS:
            swapped = SWAPS[type(op)]()
            assert isinstance(swapped, ast.cmpop)
            yield f"({ast.unparse(ast.Compare(left, [swapped], [right]))})"
        case ast.BoolOp(op=op, values=values):
            swapped = SWAPS[type(op)]()
            assert isinstance(swapped, ast.boolop)
            yield f"({ast.unparse(ast.BoolOp(swapped, values))})"
            yield from (f"({ast.unparse(value)})" for value in values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPS:
            swapped = SWAPS[type(op)]()
            assert isinstance(swapped, ast.operator)
            yield f"({ast.unparse(ast.BinOp(left, swapped, right))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=bool(value)):
            yield str(not value)
        case ast.Constant(value=int(value)):
            yield str(value + 1)
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in NAMES:
            swapped_call = ast.Call(ast.Name(NAMES[name]), arguments, node.keywords)
            yield ast.unparse(swapped_call)
        case ast.IfExp(body=body, orelse=other):
            yield f"({ast.unparse(body)})"
            yield f"({ast.unparse(other)})"
        case ast.Continue():
            yield "pass"
        case ast.Break():
            yield "pass"
        case ast.AugAssign() | ast.Expr(value=ast.Call() | ast.Yield()):
            yield "pass"
        case _:
            pass


def mutations(count: int | None = None, *, seed: int = 0) -> list[Mutation]:
    """So many mutations of the core, or all of them, from a seed; each name once.

    A change of the code elsewhere leaves a mutation where it is in the order.
    """
    found: dict[str, Mutation] = {}
    for module in CORE:
        text = (mutating.ROOT / CORE[module]).read_text(encoding="utf-8")
        finder = _Finder(module, text)
        finder.visit(ast.parse(text))
        for each in finder.found:
            found.setdefault(each.name, each)

    def place(name: str) -> bytes:
        return hashlib.sha256(f"{seed} {name}".encode()).digest()

    return [found[name] for name in sorted(found, key=place)[:count]]


def try_out(mutation: Mutation, folder: Path, *, rest: bool) -> str:
    """Run the tests against the mutated core, perhaps the rest of them too; what noticed."""
    target = folder / CORE[mutation.module]
    text = target.read_text(encoding="utf-8")
    target.write_text(mutation.applied(text), encoding="utf-8")
    try:
        near = NEAR.get(mutation.module, LABELS)
        for names in (CASES, near, *([REST] if rest else [])):
            paths = [f"tests/blazes/{name}" for name in names]
            if (killed := mutating.noticed(folder, paths)) is not None:
                return killed
    finally:
        target.write_text(text, encoding="utf-8")
    return "survived"


def main() -> int:
    """Print one line per mutation, then the survivors that nobody has explained."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="", help="mutations whose name contains this")
    parser.add_argument(
        "--again", action="store_true", help="also those that are kept as killed or explained"
    )
    parser.add_argument("--rest", action="store_true", help="try survivors with all quick tests")
    parser.add_argument("--keep", action="store_true", help="write down what was found")
    args = parser.parse_args()
    os.environ.update(CI="1", PYTHONDONTWRITEBYTECODE="1")  # CI: the same examples every time
    known = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.exists() else {}
    chosen = mutations(args.count, seed=args.seed)
    names = [mutation.name for mutation in mutations(seed=args.seed)]
    survivors = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mutating.copied(folder, PLACES)
        for mutation in chosen:
            if args.only not in mutation.name:
                continue
            before = str(known.get(mutation.name, ""))
            if not args.again and before.startswith(("killed", "survived: ")):
                continue
            started = time.perf_counter()
            said = try_out(mutation, folder, rest=args.rest)
            if not said.startswith("killed"):
                why = WHY.get(mutation.name)
                said += f": {why}" if why else ""
                survivors += [] if why else [mutation.name]
            print(
                f"{mutation.name}\n    {said}  ({time.perf_counter() - started:.1f} s)", flush=True
            )
            if args.keep:
                mutating.keep(FOUND, {mutation.name: said}, names)
    print("survivors without an explanation:", *(survivors or ["none"]), sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
