"""The input of code that a front end reads, as far as it is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from annotations.dataflow import Position
from annotations.whitebox.datatypes import parse_type
from annotations.whitebox.file_metadata import open_type
from annotations.whitebox.ir import Column, Role, Source


@dataclass(frozen=True, slots=True)
class Input:
    """An input by its schema (attribute -> Spark SQL type), and how its records come."""

    schema: Mapping[str, str] | None = None
    """None: not declared; the input may have any attributes."""
    role: Role = Role.STREAM
    repeats: str | None = None
    """Why the same record may come more than once; None where it may not."""
    keys: tuple[frozenset[str], ...] = ()

    def source(
        self, name: str, position: Position | None = None, wanted: Iterable[str] = ()
    ) -> Source:
        """An occurrence of the input; without a schema it has at least the columns `wanted`."""
        if self.schema is None:
            columns = tuple([Column(name, open_type(name), position=position) for name in wanted])
        else:
            types = ((attribute, *parse_type(text)) for attribute, text in self.schema.items())
            columns = tuple(
                [Column(attribute, kind, nullable) for attribute, kind, nullable in types]
            )
        return Source(
            name,
            columns,
            self.role,
            complete=self.schema is not None,
            repeats=self.repeats,
            keys=self.keys,
            position=position,
        )
