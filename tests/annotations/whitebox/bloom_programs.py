"""Random Bloom modules: a few rules over inputs, tables and scratches, each reading what is there.

The columns are numbers. Collections are made one after the other; now and then a table that is
there already gets another rule, so that rules may go in circles through tables.
"""

from __future__ import annotations

import random
from collections.abc import Callable

Schema = tuple[str, ...]


class Writer:
    """A module that grows rule by rule."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.state = [
            "interface input, :a, [:id] => [:k, :v]",
            "interface input, :b, [:id] => [:k, :w]",
            "interface input, :ask, [:no] => [:k]",
        ]
        self.rules: list[str] = []
        self.known: dict[str, Schema] = {
            "a": ("id", "k", "v"),
            "b": ("id", "k", "w"),
            "ask": ("no", "k"),
        }
        self.tables: list[str] = []

    def text(self, rules: int) -> str:
        """A module with so many rules and an output."""
        for name in ("a", "b"):
            if self.choose.random() < 0.7:
                self.make("table", name, self.known[name])
        for _ in range(rules):
            self.choose.choice(MAKERS)(self)
        last = list(self.known)[-1]
        columns = ", ".join(f":{c}" for c in self.known[last])
        self.state.append(f"interface output, :out, [{columns}]")
        self.rules.append(f"out <= {last}")
        state = "\n".join(f"    {line}" for line in self.state)
        rules_text = "\n".join(f"    {line}" for line in self.rules)
        return f"module Case\n  state do\n{state}\n  end\n  bloom do\n{rules_text}\n  end\nend\n"

    def some(self, names: list[str] | None = None) -> str:
        """A collection that is there, most likely one of the last."""
        names = names or list(self.known)
        return names[max(self.choose.randrange(len(names)) for _ in range(2))]

    def column(self, name: str) -> str:
        """A column of a collection."""
        return self.choose.choice(self.known[name])

    def make(self, kind: str, source: str, columns: Schema, operator: str = "<=") -> str:
        """A new collection that a rule fills."""
        name = f"{kind[0]}{len(self.known)}"
        shown = ", ".join(f":{c}" for c in columns)
        self.state.append(f"{kind} :{name}, [{shown}]")
        self.rules.append(f"{name} {operator} {source}")
        self.known[name] = columns
        if kind == "table":
            self.tables.append(name)
        return name

    def kind(self) -> str:
        """What the next collection is."""
        return self.choose.choice(("table", "scratch", "scratch"))

    # ---- rules

    def project(self) -> None:
        """Some columns, in another order, of the rows that pass a test."""
        name = self.some()
        columns = list(self.known[name])
        self.choose.shuffle(columns)
        kept = tuple(columns[: self.choose.randint(1, len(columns))])
        values = ", ".join(f"t.{c}" for c in kept)
        test = f" if t.{self.column(name)} > {self.choose.randint(-1, 3)}"
        operator = "<+" if self.choose.random() < 0.2 else "<="
        made = f"{name} {{|t| [{values}]{test if self.choose.random() < 0.5 else ''}}}"
        self.make(self.kind(), made, kept, operator)

    def join(self) -> None:
        """Pairs of rows of two collections."""
        left, right = self.some(), self.some()
        one, other = self.column(left), self.column(right)
        columns, values = ("x", "y", "z"), []
        for side, name in ((0, left), (1, right), (0, left)):
            values.append(f"{'lr'[side]}.{self.column(name)}")
        made = f"({left} * {right}).pairs(:{one} => :{other}) {{|l, r| [{', '.join(values)}]}}"
        if left != right:
            self.make(self.kind(), made, columns)

    def half(self) -> None:
        """Rows that have a partner."""
        left, right = self.some(), self.some()
        if left != right:
            pair = f":{self.column(left)} => :{self.column(right)}"
            self.make(self.kind(), f"({left} * {right}).lefts({pair})", self.known[left])

    def absent(self) -> None:
        """Rows that have no partner."""
        left, right = self.some(), self.some()
        if left != right:
            pair = f":{self.column(left)} => :{self.column(right)}"
            self.make(self.kind(), f"{left}.notin({right}, {pair})", self.known[left])

    def group(self) -> None:
        """An aggregate, shown or tested."""
        name = self.some()
        key, value = self.column(name), self.column(name)
        aggregate = self.choose.choice(("count", "max", "min", "sum"))
        call = "count" if aggregate == "count" else f"{aggregate}(:{value})"
        test = self.choose.choice(("", ">= 2", "< 2", "> 0"))
        made = f"{name}.group([:{key}], {call})"
        if test:
            made += f" {{|g| [g[0], 7] if g[1] {test}}}"
        self.make(self.kind(), made, (key, "n"))

    def most(self) -> None:
        """The rows with the greatest value."""
        name = self.some()
        key, value = self.column(name), self.column(name)
        self.make(self.kind(), f"{name}.argmax([:{key}], :{value})", self.known[name])

    def chosen(self) -> None:
        """Groups of the rows that requests choose, and back to the requests."""
        rows, asking = self.some(), self.some(["a", "b", "ask"])
        if rows == asking:
            return
        one, other = self.column(rows), self.column(asking)
        key = one if self.choose.random() < 0.7 else self.column(rows)
        made = f"({rows} * {asking}).lefts(:{one} => :{other})"
        part = self.make("scratch", made, self.known[rows])
        groups = self.make("scratch", f"{part}.group([:{key}], count)", (key, "n"))
        pair = f":{key} => :{other}"
        shown = f"{{|g, q| [g.n, q.{other}]}}"
        self.make(self.kind(), f"({groups} * {asking}).pairs({pair}) {shown}", ("x", "y"))

    def ways(self) -> None:
        """A block with two ways through it."""
        name = self.some()
        one, other, tested = (self.column(name) for _ in range(3))
        made = f"{name} {{|t| if t.{tested} > 1 then [t.{one}, 1] else [t.{other}, t.{one}] end}}"
        self.make(self.kind(), made, ("x", "y"))

    def closure(self) -> None:
        """What can be reached, within a timestep or step by step."""
        name = self.some()
        made = self.make(
            self.kind(),
            f"{name} {{|t| [t.{self.column(name)}, t.{self.column(name)}]}}",
            ("x", "y"),
        )
        later = made in self.tables and self.choose.random() < 0.5
        follow = f"({made} * {made}).pairs(:y => :x) {{|l, r| [l.x, r.y]}}"
        self.rules.append(f"{made} {'<+' if later else '<='} {follow}")

    def lattice(self) -> None:
        """A fact once a value has grown past a number, or has not."""
        name = self.some()
        made, kind = f"l{len(self.known)}", self.choose.choice(("lmax", "lmin", "lset"))
        self.state.append(f"{kind} :{made}")
        self.rules.append(f"{made} <= {name} {{|t| t.{self.column(name)}}}")
        number = self.choose.randint(-1, 3)
        value = f"{made}.size" if kind == "lset" else made
        test = self.choose.choice(("gt", "lt_eq"))
        self.make(
            self.kind(), f"{value}.{test}({number}).when_true {{ [1, {number}] }}", ("x", "y")
        )

    def keep(self) -> None:
        """A scratch that hands its facts on."""
        name = self.some()
        made = self.make("scratch", name, self.known[name])
        self.rules.append(f"{made} <+ {made}")

    def delete(self) -> None:
        """Rows taken out of a table."""
        if self.tables:
            table, other = self.choose.choice(self.tables), self.some()
            if table != other:
                pair = f":{self.column(table)} => :{self.column(other)}"
                self.rules.append(f"{table} <- ({table} * {other}).lefts({pair})")

    def again(self) -> None:
        """Another rule for a table, from something that may depend on it."""
        if self.tables:
            table, other = self.choose.choice(self.tables), self.some()
            values = ", ".join(f"t.{self.column(other)}" for _ in self.known[table])
            self.rules.append(f"{table} <+ {other} {{|t| [{values}]}}")

    def latest(self) -> None:
        """The latest row of each key."""
        name = self.some()
        columns = self.known[name]
        made = f"u{len(self.known)}"
        key, rest = columns[0], ", ".join(f":{c}" for c in columns[1:])
        self.state.append(f"table :{made}, [:{key}]" + (f" => [{rest}]" if rest else ""))
        self.rules.append(f"{made} <+- {name}")
        self.known[made] = columns
        self.tables.append(made)


MAKERS: tuple[Callable[[Writer], None], ...] = (
    Writer.project,
    Writer.project,
    Writer.join,
    Writer.join,
    Writer.half,
    Writer.absent,
    Writer.group,
    Writer.group,
    Writer.most,
    Writer.delete,
    Writer.again,
    Writer.latest,
    Writer.chosen,
    Writer.ways,
    Writer.closure,
    Writer.lattice,
    Writer.keep,
)


def program(choose: random.Random) -> str:
    """The text of a random module."""
    return Writer(choose).text(choose.randint(1, 4))
