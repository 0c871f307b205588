"""What Ruby's methods and operators are in the relational representation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METHODS: Final[Mapping[str, str]] = {
    ruby: spark
    for spark, names in {
        "upper": "upcase",
        "lower": "downcase",
        "initcap": "capitalize",
        "size": "size length count",
        "string": "to_s to_sym inspect",
        "int": "to_i",
        "double": "to_f",
        "abs": "abs",
        "ceil": "ceil",
        "floor": "floor",
        "round": "round",
        "trim": "strip chomp",
        "ltrim": "lstrip",
        "rtrim": "rstrip",
        "reverse": "reverse",
        "isnull": "nil?",
        "array_sort": "sort sort_by",
        "array_distinct": "uniq",
        "array_min": "min",
        "array_max": "max",
        "flatten": "flatten",
        "array_contains": "include? member? contains?",
        "map_contains_key": "key? has_key?",
        "map_keys": "keys",
        "map_values": "values",
        "map_concat": "merge",
        "map_entries": "to_a",
        "element_at": "fetch at",
        "startswith": "start_with?",
        "endswith": "end_with?",
        "regexp_replace": "gsub sub tr",
        "split": "split",
        "array_join": "join",
        "substring": "slice",
        "filter": "select reject find_all",
        "transform": "map collect flat_map",
        "aggregate": "reduce inject",
        "exists": "any?",
        "forall": "all?",
        "array_union": "union",
        "array_except": "difference",
        "hash": "hash",
        "between": "between?",
        "mod": "even? odd? zero?",
    }.items()
    for ruby in names.split()
}
"""Methods of values, with the function that is determined by its arguments in the same way."""

OPERATORS: Final[Mapping[str, str]] = {
    "==": "=",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "&&": "and",
    "!": "not",
    "-": "-",
    "/": "/",
    "%": "%",
    "+": "+",
    "*": "*",
    "**": "power",
    "negative": "negative",
}
ARITHMETIC: Final = frozenset({"+", "-", "*", "/", "%", "negative"})
CHANCE: Final = {"rand": "rand", "budtime": "current_timestamp", "now": "current_timestamp"}
"""What a program can ask that is another answer each time."""
OWN: Final = frozenset({"ip_port", "ip", "port", "tabs", "int_ip_port"})
"""What a program can ask about itself; it does not change."""
