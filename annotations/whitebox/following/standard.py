"""The few parts of Python's own library that a script is configured by, worked out here.

What they are given is as the script says or not known; nothing of them reaches outside. Whatever
else of the library a script uses is not known.
"""

from __future__ import annotations

import string
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from annotations.whitebox.following import configuration, permitted
from annotations.whitebox.following.outside import Default, DefaultDict, Open, Outside, Setting
from annotations.whitebox.following.values import chance_of


class Namespace:
    """A module of the user, or what stands for one: its names are all that there is."""

    def __init__(self, names: Mapping[str, Any], called: str = "") -> None:
        self.names = dict(names)
        self.called = called
        """Its name and a dot, where it is a module of Python."""


class Environment(DefaultDict):
    """The variables of the environment: none has a value here, and any may be there."""

    def __missing__(self, name: str) -> Setting:
        return Setting(f"${name}")

    def get(self, name: str, default: Any = None) -> Any:
        """The value that the script has set; else a text by default; else an unknown value."""
        if name in self:
            return self[name]
        return Default(default) if isinstance(default, str) else Setting(f"${name}")


class Kind:
    """Stands for a class of Python whose objects are what they are made of, and can be constants of
    a query: `datetime.date`. What else it has is not known.

    Args:
        called: its name.
        maker: makes an object.
        texts: names of methods that make one of a text.
    """

    def __init__(self, called: str, maker: Callable[..., Any], *texts: str) -> None:
        self._called = called
        self._maker = maker
        self._texts = texts

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """An object; one that is not known, made of what is not."""
        return self._of(self._called, self._maker, arguments, named)

    def __getattr__(self, name: str) -> Any:
        called = f"{self._called}.{name}"
        if name not in self._texts:
            return Outside(f"${called}")
        method = getattr(self._maker, name)
        return lambda *arguments, **named: self._of(called, method, arguments, named)

    def _of(
        self,
        called: str,
        maker: Callable[..., Any],
        arguments: Sequence[Any],
        named: Mapping[str, Any],
    ) -> Any:
        parts = [*arguments, *named.values()]
        known = all(isinstance(p, str | int | float) for p in parts)
        if not known or any(isinstance(part, Outside | Open) for part in parts):
            return chance_of(parts, Outside(f"${called}(...)"))
        return maker(*arguments, **named)


class Chain(list[Any]):
    """Stands for `itertools.chain`: the items of several lists."""

    def __init__(self, *several: Iterable[Any]) -> None:
        if any(isinstance(value, str) for value in several):
            raise TypeError("the items of a text, or of what is not known")
        super().__init__(item for value in several for item in value)

    @classmethod
    def from_iterable(cls, several: Iterable[Iterable[Any]]) -> Chain:
        """The items of the lists that a list holds."""
        return cls(*several) if not isinstance(several, str) else cls(several)


class Template:
    """Stands for `string.Template`."""

    def __init__(self, text: str) -> None:
        self._text = text

    def substitute(self, *given: Mapping[str, Any], **named: Any) -> Any:
        """The text with values in their places."""
        if isinstance(self._text, Outside):
            return self._text
        text = string.Template(self._text).substitute(*given, **named)
        return Default(text) if isinstance(self._text, Default) else text

    safe_substitute = substitute


def dedent(text: Any) -> Any:
    """Stands for `textwrap.dedent`."""
    return text if isinstance(text, Outside) else textwrap.dedent(text)


def copied(value: Any) -> Any:
    """Stands for `copy.deepcopy`, of what can be copied so."""
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    if type(value) is list:
        return [copied(item) for item in value]
    fixed = permitted.frame(value) or isinstance(value, str | int | float | None)
    return value if fixed else Outside("$copy.deepcopy()")


def modules(arguments: list[str]) -> dict[str, Namespace]:
    """Name of a module -> what is known of it. `arguments`: of the script."""
    environment = Environment()
    paths = Namespace({"join": permitted.join, **configuration.PATHS}, "os.path.")
    system = {"environ": environment, "getenv": environment.get, "path": paths}
    return {
        **{name: Namespace(known, f"{name}.") for name, known in _MODULES.items()},
        **{name: Namespace(known) for name, known in configuration.MODULES.items()},
        "os": Namespace(system, "os."),
        "os.path": paths,
        "sys": Namespace({"argv": arguments}, "sys."),
    }


_MODULES: Final[Mapping[str, Mapping[str, Any]]] = {
    "collections": {"OrderedDict": dict},
    "copy": {"copy": copied, "deepcopy": copied},
    "datetime": {
        "date": Kind("datetime.date", date, "fromisoformat"),
        "datetime": Kind("datetime.datetime", datetime, "fromisoformat", "strptime"),
        "timedelta": Kind("datetime.timedelta", timedelta),
    },
    "decimal": {"Decimal": Kind("decimal.Decimal", Decimal)},
    "itertools": {"chain": Chain},
    "string": {"Template": Template},
    "textwrap": {"dedent": dedent},
    "typing": {"TYPE_CHECKING": False},
}
