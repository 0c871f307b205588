"""The values that a script may have set, where it is not known which of several ways it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from annotations.whitebox.following import permitted
from annotations.whitebox.following.classes import Class, Method, Object
from annotations.whitebox.following.outside import PLACE, UNREAD, Outside, Refused
from annotations.whitebox.following.script_functions import Function, Scope
from annotations.whitebox.following.standard import Environment
from annotations.whitebox.following.values import UNSET, chance_of, perhaps, same_value

STEPS_MAX: Final = 200_000
"""Statements and expressions that are worked out of one script, and half as many objects, lists and
scopes of which every branch keeps what they hold."""


class Returned(Exception):  # noqa: N818
    """`return`."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Left(Exception):  # noqa: N818
    """`break` or `continue`."""

    def __init__(self, on: bool) -> None:
        self.on = on


class Ended(Refused):
    """The script ends here: it raises an error, or is too long to be followed."""


class Raised(Ended):
    """The script raises an error."""


State: TypeAlias = list[tuple[dict[str, Any] | list[Any], Any]]
"""Whatever holds values that statements may set, and a copy of it."""


class Yielded(list[Any]):
    """The values that a generator of the script yields, all of them at once."""


class Branches:
    """The values that names, objects and lists have where ways of a script part and meet again.

    Attributes:
        objects: all that were made of the script's own classes.
    """

    def __init__(self) -> None:
        self._given: dict[int, Any] = {}
        """Functions that PySpark has made of the script's own (`udf`), and some of ours, by id."""
        self.objects: list[Object] = []
        self._steps = 0
        self._unsure = 0
        """In how many ways that may not be taken the place lies that is being read."""

    def _call(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The value of a call."""
        raise NotImplementedError

    def _step(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise Ended(
                "it is too long, or has too many branches, to be followed without being run"
            )

    def _state(self, scope: Scope) -> State:
        """Whatever may be set from here: names, what objects and classes hold, lists."""
        todo: list[Any] = [scope.names, *(outer.names for outer in scope.around())]
        todo += [target.names for target in self.objects]
        copies: dict[int, tuple[Any, Any]] = {}
        while todo:
            holder = todo.pop()
            if id(holder) in copies or isinstance(holder, Environment):
                continue
            copy: Any = dict(holder) if isinstance(holder, dict) else list(holder)
            copies[id(holder)] = (holder, copy)
            inside = holder.values() if isinstance(holder, dict) else holder
            todo += [
                value.names if isinstance(value, Class) else value
                for value in inside
                if isinstance(value, dict | list | Class)
            ]
        self._steps += len(copies) // 2
        return list(copies.values())

    def _either(self, states: Sequence[State], test: str) -> None:
        """Let everything that may be set be as in one of several states."""
        holders = {id(holder): holder for state in states for holder, _ in state}
        copies = [{id(holder): copy for holder, copy in state} for state in states]
        for key, holder in holders.items():
            several = [copy[key] for copy in copies if key in copy]
            if isinstance(holder, dict):
                merged = dict(several[0])
                for copy in several[1:]:
                    for name in copy.keys() | merged.keys():
                        if copy.get(name, UNSET) is not merged.get(name, UNSET):
                            merged[name] = UNSET
                for name in [name for name, value in merged.items() if value is UNSET]:
                    values = [value.get(name, UNSET) for value in several]
                    merged[name] = self._one_of(values, name, test)
                holder.clear()
                holder.update(merged)
            elif len({len(value) for value in several}) == 1:
                holder[:] = [
                    self._one_of(parts, "item", test) for parts in zip(*several, strict=True)
                ]
            else:
                every = {id(part): part for value in several for part in value}
                sure = set(every).intersection(*(map(id, value) for value in several))
                holder[:] = [part if key in sure else perhaps(part) for key, part in every.items()]

    def _one_of(self, values: Sequence[Any], name: str, test: str) -> Any:
        """One of several values, it is not known which: of DataFrames, what any reads is read."""
        several: list[Any] = []
        for value in values:
            if value is not UNSET and not any(same_value(value, item) for item in several):
                several.append(value)
        candidates = [value for value in several if value is not None]
        if len(several) == 1 or (
            len(candidates) == 1 and not isinstance(candidates[0], permitted.PLAIN)
        ):
            return candidates[0] if candidates else None  # nothing can be done with the others
        frames = [value for value in candidates if permitted.frame(value)]
        if all(isinstance(value, Function | Method) for value in candidates):

            def any_of_them(*arguments: Any, **named: Any) -> Any:
                self._unsure += 1
                try:
                    given = [self._call(value, arguments, named) for value in candidates]
                finally:
                    self._unsure -= 1
                return self._one_of(given, name, test)

            any_of_them.chosen_from = tuple(candidates)  # type: ignore[attr-defined]
            self._given[id(any_of_them)] = any_of_them
            return any_of_them
        if not frames:
            return chance_of([*values, test], Outside(f"${name}"))
        union = frames[0]
        for frame in frames[1:]:
            union = union.union(frame)
        place = () if test.startswith("how") else (PLACE,)  # running it tells how often
        return union.hint(UNREAD, f"{test} is not known here", *place)


def restore(state: State) -> None:
    """Let everything be as it was."""
    for holder, copy in state:
        if isinstance(holder, dict):
            holder.clear()
            holder.update(copy)
        else:
            holder[:] = copy
