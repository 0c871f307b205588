"""Cycles between outputs, and an order in which every other output stands after its inputs."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Node = TypeVar("Node", bound=Hashable)
Edge = TypeVar("Edge", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Layout(Generic[Node, Edge]):
    """A graph without the edges that close its cycles."""

    order: tuple[Node, ...]
    """Every node after those that feed it, closing edges aside; else as they were given."""
    closing: frozenset[Edge]
    """Edges that lead back to a node that the walk is still inside of."""
    cyclic: frozenset[Node]
    """Nodes that reach themselves."""


def layout(successors: Mapping[Node, Sequence[tuple[Edge, Node]]]) -> Layout[Node, Edge]:
    """Order a graph of node -> (edge, next node); an edge may lead to several nodes.

    >>> layout({"a": [("s", "b")], "b": [("t", "a"), ("u", "c")], "c": []}).order
    ('a', 'b', 'c')
    """
    closing = frozenset(closing_edges(successors))
    place = {node: index for index, node in enumerate(successors)}
    waiting = dict.fromkeys(successors, 0)
    for edges in successors.values():
        for edge, target in edges:
            waiting[target] += edge not in closing
    ready = [(place[node], node) for node, number in waiting.items() if not number]
    order: list[Node] = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for edge, target in successors[node]:
            if edge not in closing:
                waiting[target] -= 1
                if not waiting[target]:
                    heapq.heappush(ready, (place[target], target))
    return Layout(tuple(order), closing, frozenset(cyclic_nodes(successors)))


def closing_edges(successors: Mapping[Node, Sequence[tuple[Edge, Node]]]) -> Iterator[Edge]:
    """The back edges of a depth-first walk; without them there is no cycle."""
    inside, done = set[Node](), set[Node]()
    for root in successors:
        if root in done:
            continue
        stack = [(root, iter(successors[root]))]
        inside.add(root)
        while stack:
            node, edges = stack[-1]
            step = next(edges, None)
            if step is None:
                stack.pop()
                inside.discard(node)
                done.add(node)
                continue
            edge, target = step
            if target in inside:
                yield edge
            elif target not in done:
                inside.add(target)
                stack.append((target, iter(successors[target])))


def cyclic_nodes(successors: Mapping[Node, Sequence[tuple[Edge, Node]]]) -> Iterator[Node]:
    """Nodes of strongly connected parts with an edge inside (Tarjan, without recursion)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    path: list[Node] = []
    on_path = set[Node]()
    for root in successors:
        if root in index:
            continue
        stack = [(root, iter(successors[root]))]
        while stack:
            node, edges = stack[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                path.append(node)
                on_path.add(node)
            step = next(edges, None)
            if step is not None:
                target = step[1]
                if target not in index:
                    stack.append((target, iter(successors[target])))
                elif target in on_path:
                    low[node] = min(low[node], index[target])
                continue
            stack.pop()
            if stack:
                above = stack[-1][0]
                low[above] = min(low[above], low[node])
            if low[node] == index[node]:
                part = [path.pop()]
                while part[-1] != node:
                    part.append(path.pop())
                on_path.difference_update(part)
                if len(part) > 1 or any(target == node for _, target in successors[node]):
                    yield from part
