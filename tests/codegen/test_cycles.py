"""The layout of random graphs against its definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codegen.cycles import layout

Graph = dict[int, list[tuple[str, int]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(1, 8))
    nodes = st.integers(0, size - 1)
    pairs = draw(st.lists(st.tuples(nodes, nodes), max_size=16))
    graph: Graph = {node: [] for node in range(size)}
    for number, (start, end) in enumerate(pairs):
        graph[start].append((f"s{number}", end))
    return graph


def reachable(graph: Graph, start: int, without: frozenset[str] = frozenset()) -> set[int]:
    found: set[int] = set()
    todo = [start]
    while todo:
        for edge, target in graph[todo.pop()]:
            if edge not in without and target not in found:
                found.add(target)
                todo.append(target)
    return found


@given(graphs())
def test_every_node_stands_after_what_feeds_it(graph: Graph) -> None:
    found = layout(graph)
    assert sorted(found.order) == sorted(graph)
    place = {node: index for index, node in enumerate(found.order)}
    for node, edges in graph.items():
        for edge, target in edges:
            assert edge in found.closing or place[node] < place[target]


@given(graphs())
def test_cyclic_nodes_reach_themselves(graph: Graph) -> None:
    found = layout(graph)
    assert found.cyclic == {node for node in graph if node in reachable(graph, node)}


@given(graphs())
def test_closing_edges_lie_in_cycles_and_leave_none(graph: Graph) -> None:
    found = layout(graph)
    for node, edges in graph.items():
        assert node not in reachable(graph, node, found.closing)
        for edge, target in edges:
            if edge in found.closing:
                assert target == node or node in reachable(graph, target)


def test_a_graph_without_cycles_keeps_the_order_of_the_file() -> None:
    graph: dict[str, list[tuple[str, str]]] = {"c": [], "a": [("s", "b")], "b": []}
    assert layout(graph).order == ("c", "a", "b")


def test_a_long_chain_takes_no_recursion() -> None:
    chain = {number: [(f"s{number}", number + 1)] for number in range(20_000)}
    chain[20_000] = [("back", 0)]
    found = layout(chain)
    assert found.closing == {"back"}
    assert len(found.cyclic) == 20_001
