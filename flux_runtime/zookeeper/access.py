"""An ensemble: its addresses, and how a client is let in, with references in place of secrets.

With a user, every znode that a client makes can be read and changed by that user alone: whoever
knows the password (a digest ACL), or whom the servers know by it (`sasl`). With certificates, the
connection is encrypted (TLS), the servers are checked, and the client shows who it is where it has
a certificate of its own. An `Ensemble` may travel and be printed: it holds no secret, and each
process that connects takes the values where it runs.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kazoo.security import make_acl, make_digest_acl

from flux_runtime.secrets import resolved

USER: Final = "user"
PASSWORD: Final = "password"
SASL: Final = "sasl"
MECHANISM: Final = "DIGEST-MD5"
"""The one mechanism of SASL by a password that ZooKeeper's servers speak."""
FILES: Final[Mapping[str, str]] = {"ca": "ca", "certificate": "certfile", "key": "keyfile"}
"""Option that is a PEM file -> kazoo's argument."""


@dataclass(frozen=True, slots=True)
class Ensemble:
    """An ensemble, as the deployment section has it.

    Args:
        hosts: `host:port,host:port`; a path at the end is a chroot.
        access: `user`, `password`, `sasl`, `ca`, `certificate`, `key`, as they were declared.
        root: relative paths in it are relative to that.

    Raises:
        ValueError: options that are unknown, or need others that are missing; all at once.
    """

    hosts: str
    access: Mapping[str, str] = field(default_factory=dict)
    root: Path = field(default_factory=Path)

    def __post_init__(self) -> None:
        names = self.access.keys()
        problems = [
            f"there is no {name}" for name in sorted(names - {USER, PASSWORD, SASL, *FILES})
        ]
        if (USER in names) != (PASSWORD in names):
            problems.append("user and password go together")
        if SASL in names and self.access[SASL] != MECHANISM:
            problems.append(f"sasl is {MECHANISM}, not {self.access[SASL]}")
        if SASL in names and USER not in names:
            problems.append("sasl needs user and password")
        if ("certificate" in names) != ("key" in names):
            problems.append("certificate and key go together")
        if "certificate" in names and "ca" not in names:
            problems.append("a certificate needs the ca that the servers are checked with")
        if problems:
            raise ValueError(f"zookeeper_access: {'; '.join(problems)}")

    def __str__(self) -> str:
        return self.hosts

    def arguments(self) -> Mapping[str, Any]:
        """The arguments of kazoo's client.

        Raises:
            ValueError: a reference leads nowhere, or a file is missing; all at once.
        """
        access = resolved(self.access, self.root, of="zookeeper_access")
        arguments: dict[str, Any] = {}
        if USER in access:
            user, password = access[USER], access[PASSWORD]
        if SASL in access:
            if importlib.util.find_spec("puresasl") is None:
                raise ValueError(
                    "zookeeper_access: sasl needs a package: pip install 'blazes[sasl]'"
                )
            names = {"mechanism": MECHANISM, "username": user, "password": password}
            arguments["sasl_options"] = names
            arguments["default_acl"] = [make_acl("sasl", user, all=True)]
        elif USER in access:
            arguments["auth_data"] = [("digest", f"{user}:{password}")]
            arguments["default_acl"] = [make_digest_acl(user, password, all=True)]
        files = {name: self.root / access[name] for name in FILES if name in access}
        missing = [
            f"{name} is {file}: no file" for name, file in files.items() if not file.is_file()
        ]
        if missing:
            raise ValueError(f"zookeeper_access: {'; '.join(missing)}")
        if files:
            arguments["use_ssl"] = True
            arguments |= {FILES[name]: str(file) for name, file in files.items()}
        return arguments


def ensemble_of(zookeeper: str | Ensemble) -> Ensemble:
    """The ensemble at addresses that let everybody in, or that was given."""
    return zookeeper if isinstance(zookeeper, Ensemble) else Ensemble(zookeeper)
