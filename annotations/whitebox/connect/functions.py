"""Functions of components that are run to be read, or followed without being run.

What is followed is believed only where nothing of it is unknown: no value from elsewhere decided,
or is in the plan, and no call was passed over. Otherwise nothing is known of the function.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from annotations.whitebox import plan_json
from annotations.whitebox.connect.reading import Reading, place_text  # first: prepares the process

# isort: split
from annotations.whitebox.following import outside, permitted
from annotations.whitebox.following.interpreter import Interpreter
from annotations.whitebox.following.outside import Refused
from annotations.whitebox.following.places import caller
from annotations.whitebox.following.program import tree_of
from annotations.whitebox.following.script_functions import Scope
from annotations.whitebox.functions import known


def functions(home: Reading, request: Mapping[str, Any]) -> dict[str, Any]:
    """Functions from DataFrames to a DataFrame: a plan for each, or why there is none."""
    if not request.get("follow"):
        return {"functions": list(_ran(home, request))}
    folder = Path(request["folder"])
    permitted.wall(folder / "module.py")
    interpreter = Interpreter(outside.MODULES, ["module.py"])
    modules: dict[str, tuple[Scope, list[str]]] = {}
    answers = []
    for asked in request["functions"]:
        with home.failures() as failure:
            home.sources.declare(asked["inputs"])
            if asked["module"] not in modules:
                modules[asked["module"]] = _module(home, interpreter, folder, asked["module"])
            plan = _followed(home, *modules[asked["module"]], asked)
            failure |= {"plan": plan}
        if failure.get("error"):
            failure["position"] = place_text(caller())
            failure["left_open"] = asked.get("left_open", "text")
        answers.append(failure)
    return {"functions": answers}


def _ran(home: Reading, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The plans of functions that are run, and what of the place decided them."""
    outside.watch()
    sys.path.insert(0, request["folder"])
    of_modules: dict[str, str] = {}
    for asked in request["functions"]:
        outside.forget()
        with home.failures() as answer:
            home.sources.declare(asked["inputs"])
            function: Any = importlib.import_module(asked["module"])
            of_module = of_modules.setdefault(asked["module"], outside.left_to_the_place())
            for name in asked["function"].split("."):
                function = getattr(function, name)
            answer["plan"] = plan_json.to_json(home.plan(home.relation_of(function, asked)))
            answer["decided"] = of_module or outside.left_to_the_place()
        yield answer


def _module(
    home: Reading, interpreter: Interpreter, folder: Path, name: str
) -> tuple[Scope, list[str]]:
    """The names of a module, and what is not known of how it came to them."""
    base = folder.joinpath(*name.split("."))
    for file in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
        if file.is_file():
            names = {"__name__": name, "spark": home.spark}
            return interpreter.run(tree_of(file), file, names), list(_unknown())
    raise Refused(f"no {name}.py is here")


def _unknown() -> Iterator[str]:
    """Everything that was not known since the last call."""
    yield from (text for text, _ in outside.NOTES)
    yield from (f"`{value}` is not known without running it" for value in outside.DECIDED)
    outside.NOTES.clear()
    outside.DECIDED.clear()


def _followed(
    home: Reading, scope: Scope, before: Sequence[str], asked: dict[str, Any]
) -> dict[str, Any]:
    function = scope.names.get(asked["function"])
    if function is None or isinstance(function, outside.Outside):
        raise Refused(f"`{asked['function']}` is not a function that can be followed")
    relation = home.relation_of(function, asked)
    plan = plan_json.to_json(home.plan(relation))
    if any(node["has"].get("left_open") == "place" for node in plan["nodes"]):
        asked["left_open"] = "place"
    for reason in (*before, *_unknown()):
        raise Refused(reason)
    texts = repr(plan)
    for value in outside.MADE:
        if value in texts:
            raise Refused(f"`{value}` is not known without running it")
    for node in plan["nodes"]:
        parts = node["has"]
        if node["node"] == "Unknown":
            raise Refused(parts["reason"])
        if node["node"] == "Call" and parts["user"] is None and not known(parts["function"]):
            raise Refused(f"`{parts['function']}` is not known without running it")
    if outside.UNREAD.encode() in relation.SerializeToString():
        raise Refused("a call in it is not understood without being run")
    return plan
