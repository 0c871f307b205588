"""Scripts, notebooks and pipelines as people write them, and what the report says of each.

What must be said stands in `expected.yaml`. The share of files of which all of it is said is held;
that nothing is claimed that does not hold, and that what is imported can be read again, is asked of
every file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from annotations.file import loads
from annotations.file.import_code import Module
from annotations.file.importing import functions_of, text_of
from annotations.whitebox import ir
from annotations.whitebox.components import written_path
from annotations.whitebox.derivation import Derivation, DerivedPath
from annotations.whitebox.derive import annotate
from annotations.whitebox.existing import Derived, Graph, derived, read_all
from annotations.whitebox.pyspark_code import Function, Input, Unreadable, read_functions
from annotations.whitebox.sandbox import Limits
from annotations.whitebox.type_text import schema_text

pytestmark = pytest.mark.slow

FOLDER: Final = Path(__file__).parent
EXPECTED: Final[dict[str, dict[str, Any]]] = yaml.safe_load(
    FOLDER.joinpath("expected.yaml").read_text(encoding="utf-8")
)
USEFUL_MIN: Final = 0.96
"""The share of files of which everything is said that has to be."""
HELPERS: Final = ("helpers", "jobs", "settings", "transformations", "setup.py")
"""What is read with another file."""


@pytest.fixture(scope="module")
def found() -> dict[str, Graph | Unreadable]:
    """The graph of every file, all of them read by one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BLAZES_CACHE", "off")
        paths = [FOLDER / name for name in EXPECTED]
        return dict(zip(EXPECTED, read_all(paths, execute=Limits(30.0)), strict=True))


def test_every_file_is_expected() -> None:
    files = {
        str(file.relative_to(FOLDER))
        for folder in ("scripts", "notebooks", "pipelines")
        for file in FOLDER.joinpath(folder).rglob("*.*")
        if file.suffix != ".pyc" and not set(file.parts) & set(HELPERS)
    }
    assert files == EXPECTED.keys()
    assert len(files) >= 60


def test_the_share_that_is_useful(found: Mapping[str, Graph | Unreadable]) -> None:
    lacks = {name: _lacking(EXPECTED[name], graph) for name, graph in found.items()}
    useful = [name for name, lacking in lacks.items() if not lacking]
    wrong = "\n".join(f"{name}: {lacking}" for name, lacking in lacks.items() if lacking)
    assert len(useful) >= USEFUL_MIN * len(found), wrong


def test_nothing_is_claimed_that_does_not_hold(found: Mapping[str, Graph | Unreadable]) -> None:
    for name, graph in found.items():
        if isinstance(graph, Graph):
            expected = EXPECTED[name]["paths"]
            labels = _labels(derived(graph))
            for path, label in labels.items():
                assert path in expected, f"{name}: {path}"
                assert not claims_more(label, expected[path]), f"{name}: {path} {label}"
            missing = expected.keys() - labels.keys()
            assert not missing, f"{name}: lost without a word: {missing}"


def test_what_is_imported_can_be_read_again(found: Mapping[str, Graph | Unreadable]) -> None:
    for name, graph in found.items():
        if isinstance(graph, Graph):
            dataflow, _ = loads(text_of(graph, derived(graph)), file=name)
            assert len(dataflow.components) == len(graph.nodes), name


def test_what_a_function_of_foreach_batch_writes_may_come_again(
    found: Mapping[str, Graph | Unreadable],
) -> None:
    graph = found["scripts/foreach_batch_two_sinks.py"]
    assert isinstance(graph, Graph)
    dataflow, _ = loads(text_of(graph, derived(graph)))
    sinks = [stream.sink for stream in dataflow.streams.values() if stream.sink is not None]
    assert [sink.delivery for sink in sinks] == ["may-repeat", "may-repeat"]


@pytest.mark.parametrize(
    ("label", "expected", "more"),
    [
        ("CR", "CW", True),
        ("CW", "CR", False),
        ("CW", "OW[a]", True),
        ("OW[*]", "OW[a]", False),
        ("OW[a]", "OW[*]", True),
        ("OW[a,b]", "OW[a]", True),
        ("CR", "CR, chance", True),
    ],
)
def test_a_claim_that_is_too_strong_is_noticed(label: str, expected: str, more: bool) -> None:
    assert claims_more(label, expected) is more


def claims_more(label: str, expected: str) -> bool:
    """Whether a label promises more than another: confluence, reading alone, a larger gate."""
    kind, held = label[:2], expected[:2]
    if ("chance" in expected and "chance" not in label) or (kind[0] == "C" and held[0] == "O"):
        return True
    if kind[1] == "R" and held[1] == "W":
        return True
    return kind[0] == "O" and not _gate(label) <= _gate(expected)


def _gate(label: str) -> set[str]:
    return set(label.partition("[")[2].partition("]")[0].split(",")) - {"*", ""}


def _labels(nodes: Mapping[str, Derived]) -> dict[str, str]:
    """`source -> node` -> its label, with `chance` where it is left to that."""
    return {
        f"{source} -> {name}": str(written_path(path, "out").annotation)
        + (", chance" if path.nondeterministic else "")
        for name, node in nodes.items()
        for source, path in node.paths.items()
    }


def _lacking(expected: Mapping[str, Any], graph: Graph | Unreadable) -> list[str]:
    """What is expected of a file and not said."""
    if isinstance(graph, Unreadable):
        return [text for text in expected["says"] if text not in str(graph)]
    nodes = derived(graph)
    labels = _labels(nodes)
    said = [text for text, _ in graph.problems]
    said += [str(e) for node in nodes.values() for p in node.paths.values() for e in p.evidence]
    said += [assumption.text for node in nodes.values() for assumption in node.assumptions]
    sources = {name: source["format"] for name, source in graph.sources.items()}
    sinks = {name: node.sink.format for name, node in graph.nodes.items() if node.sink}
    return [
        *[
            f"{path} is {labels.get(path)}, not {label}"
            for path, label in expected["paths"].items()
            if labels.get(path) != label
        ],
        *([] if sources == expected["sources"] else [f"sources {sources}"]),
        *([] if sinks == expected["sinks"] else [f"sinks {sinks}"]),
        *[text for text in expected.get("says", ()) if not any(text in each for each in said)],
    ]


# ---- the code that is imported with it

CARRIED_MIN: Final = 0.8
"""The share of the components that are no SQL whose code is imported, too."""


@pytest.fixture(scope="module")
def carried(found: Mapping[str, Graph | Unreadable]) -> dict[str, Module]:
    """The module of every file."""
    return {
        name: functions_of(graph, derived(graph), f"code_{number}")
        for number, (name, graph) in enumerate(found.items())
        if isinstance(graph, Graph)
    }


def test_the_share_whose_code_is_imported(carried: Mapping[str, Module]) -> None:
    functions = sum(len(module.functions) for module in carried.values())
    reasons = {f"{n}: {c}": why for n, m in carried.items() for c, why in m.reasons.items()}
    takers = {taker for module in carried.values() for taker, _ in module.takers.values()}
    assert takers == {"foreach", "foreachBatch"}
    assert all(reasons.values())
    assert functions >= CARRIED_MIN * (functions + len(reasons)), reasons


def test_what_is_imported_does_what_the_original_does(
    found: Mapping[str, Graph | Unreadable], carried: Mapping[str, Module], tmp_path: Path
) -> None:
    assert _differences(found, carried, tmp_path) == []


def test_an_import_that_leaves_something_out_is_noticed(
    found: Mapping[str, Graph | Unreadable], carried: Mapping[str, Module], tmp_path: Path
) -> None:
    name = "scripts/dedup_events.py"
    module = carried[name]
    text = re.sub(r"\.dropDuplicates\(.*?\)", "", module.text)
    assert text != module.text
    planted = {name: replace(module, text=text)}
    assert _differences(found, planted, tmp_path) == [f"{name}: events_query"]


def _interfaces(graph: Graph) -> dict[str, dict[str, str]]:
    """Component -> its inputs, called as they are in the project."""
    return {
        name: {source: re.sub(r"\W", "_", source) for source in node.paths}
        for name, node in derived(graph).items()
    }


def _differences(
    found: Mapping[str, Graph | Unreadable], modules: Mapping[str, Module], folder: Path
) -> list[str]:
    """The components whose function is read as something else than what it was imported from."""
    asked: list[Function] = []
    expected: list[tuple[str, Derived]] = []
    for name, module in modules.items():
        graph = found[name]
        assert isinstance(graph, Graph)
        folder.joinpath(f"{module.name}.py").write_text(module.text, encoding="utf-8")
        nodes = derived(graph)
        for component, function in module.functions.items():
            if component in module.takers:
                continue  # what it does lies in the function that takes its rows
            inputs = {
                interface: Input(_columns(graph, nodes, source))
                for source, interface in _interfaces(graph)[component].items()
            }
            asked.append(Function(module.name, function, inputs))
            expected.append((f"{name}: {component}", nodes[component]))
    plans = read_functions(asked, folder=folder, limits=Limits(60.0))
    return [
        name
        for (name, node), plan in zip(expected, plans, strict=True)
        if not _agree(node, annotate(plan, output_mode=node.node.fills[0].output_mode))
    ]


def _columns(graph: Graph, nodes: Mapping[str, Derived], source: str) -> dict[str, str] | None:
    if source in nodes:
        return {c.name: schema_text(c.type) for c in nodes[source].columns} or None
    columns = graph.sources.get(source, {}).get("columns")
    return None if not columns else dict(columns)


def _agree(node: Derived, imported: Derivation) -> bool:
    """Whether an imported function does what its original does: where the columns of its input
    are not known, more care is no difference."""
    before, after = _paths(node.paths), _paths(imported.paths)
    if before.keys() != after.keys():
        return False
    columns = [[column.name for column in each.columns] for each in (node, imported)]
    if columns[1] and columns[0] != columns[1]:
        return False
    if not columns[1]:
        return not any(claims_more(label, before[source]) for source, label in after.items())
    return before == after


def _paths(paths: Mapping[str, DerivedPath]) -> dict[str, str]:
    return {
        re.sub(r"\W", "_", source): str(written_path(path, "out").annotation)
        for source, path in paths.items()
    }


def test_a_function_that_is_followed_is_what_running_it_shows(
    found: Mapping[str, Graph | Unreadable], carried: Mapping[str, Module], tmp_path: Path
) -> None:
    """Of most functions all is known without running them; of the others nothing is claimed."""
    asked: list[Function] = []
    for name, module in carried.items():
        graph = found[name]
        assert isinstance(graph, Graph)
        tmp_path.joinpath(f"{module.name}.py").write_text(module.text, encoding="utf-8")
        nodes = derived(graph)
        for component, function in module.functions.items():
            inputs = {
                interface: Input(_columns(graph, nodes, source))
                for source, interface in _interfaces(graph)[component].items()
            }
            asked.append(Function(module.name, function, inputs))
    ran = read_functions(asked, folder=tmp_path, limits=Limits(120.0))
    followed = read_functions(asked, folder=tmp_path, limits=Limits(120.0), follow=True)
    alike = 0
    for function, before, after in zip(asked, ran, followed, strict=True):
        if isinstance(after, ir.Opaque) and not after.columns:
            continue
        alike += 1
        assert annotate(after).paths == annotate(before).paths, function
    assert alike >= 0.7 * len(asked), f"{alike} of {len(asked)}"


# ---- the same files, followed without being run

FOLLOWED_MIN: Final = 0.9
"""The share of the scripts of which as much is read without running them."""


@pytest.fixture(scope="module")
def followed() -> dict[str, Graph | Unreadable]:
    """The graph of every script and notebook, as far as it can be read without being run."""
    names = [name for name in EXPECTED if Path(name).suffix in (".py", ".ipynb")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BLAZES_CACHE", "off")
        graphs = read_all([FOLDER / name for name in names], execute=Limits(30.0), follow=True)
    return dict(zip(names, graphs, strict=True))


def test_what_is_followed_never_claims_more(followed: Mapping[str, Graph | Unreadable]) -> None:
    alike = 0
    for name, graph in followed.items():
        expected = EXPECTED[name].get("paths", {})
        labels = _labels(derived(graph)) if isinstance(graph, Graph) else {}
        for path, label in labels.items():
            if "$" in path or "_collect " in path:  # one of a loop over what is not known
                continue
            assert path in expected, f"{name}: {path}"
            assert not claims_more(label, expected[path]), f"{name}: {path} {label}"
        alike += labels == expected
        if labels != expected and isinstance(graph, Graph):
            said = [text for text, _ in graph.problems if "--execute" in text]
            assert len(said) == 1, name
    assert alike >= FOLLOWED_MIN * len(followed)
