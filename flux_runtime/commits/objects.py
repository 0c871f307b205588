"""Objects below an address of an object store, and the few verbs that keeping a state there takes.

`obstore` speaks to S3, Google Cloud Storage and Azure; credentials and endpoint come from the
environment (`AWS_...`, `GOOGLE_...`, `AZURE_...`). Transient errors are repeated by it, for
`RETRIES_S` at most.

All that a store must be able to do beyond keeping objects is to put one on a condition: only where
there is none, or only in place of a version that is named. `check_conditions` tries that out.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

SCHEMES: Final = ("s3", "s3a", "gs", "az", "abfs", "abfss")
RETRIES_S: Final = 60
DELETED_AT_ONCE: Final = 1000
PROBES: Final = 3
"""How often it is tried out whether a store can do what is needed."""


class StoreError(Exception):
    """An object store does not do what is asked of it; the message says what to do."""


class ConflictError(Exception):
    """An object is not, or not any more, the version that was to be replaced."""


def is_address(location: str) -> bool:
    """Whether a location is an address in an object store.

    >>> is_address("s3a://bucket/state"), is_address("/data/state"), is_address("hdfs://host/x")
    (True, False, False)
    """
    return location.partition("://")[0] in SCHEMES and "://" in location


@dataclass(frozen=True, slots=True)
class Version:
    """The version of an object: two are the same where their tags are."""

    e_tag: str
    generation: str | None = field(default=None, compare=False)
    """What Google Cloud Storage puts its conditions on."""

    @staticmethod
    def of(meta: Any) -> Version:
        """Of what the library says of an object."""
        return Version(str(meta["e_tag"]), meta["version"])


class Objects:
    """The objects below an address; for any thread.

    Args:
        address: `s3://BUCKET/PREFIX` and the like.

    Raises:
        StoreError: the package is missing, or the address is none.
    """

    first_wait_s = 0.1
    """How long to wait before a request is repeated; then twice as long each time."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        try:
            self._obstore: Any = importlib.import_module("obstore")
            store: Any = importlib.import_module("obstore.store")
        except ImportError as error:
            raise StoreError(
                f"{address}: a state in an object store needs a package: "
                f"pip install 'blazes[run]' ({error})"
            ) from None
        if not re.fullmatch(r"\w+://[^/]+/.*[^/].*", self.address):
            raise StoreError(f"{address}: add a folder for the state: s3://BUCKET/FOLDER")
        with self._explained():
            self._store = store.from_url(
                self.address,
                retry_config={
                    "max_retries": 10,
                    "backoff": {"init_backoff": timedelta(seconds=self.first_wait_s), "base": 2},
                    "retry_timeout": timedelta(seconds=RETRIES_S),
                },
            )

    def get(self, name: str) -> tuple[bytes, Version] | None:
        """The content of an object, and its version; None: there is none."""
        with self._explained():
            try:
                answer = self._obstore.get(self._store, name)
                return bytes(answer.bytes()), Version.of(answer.meta)
            except FileNotFoundError:
                return None

    def version(self, name: str) -> Version | None:
        """The version of an object; None: there is none."""
        with self._explained():
            try:
                return Version.of(self._obstore.head(self._store, name))
            except FileNotFoundError:
                return None

    def put(self, name: str, data: bytes) -> None:
        """Put an object of a new name, or that is the same whoever puts it."""
        with self._explained():
            self._obstore.put(self._store, name, data)

    def replace(self, name: str, data: bytes, version: Version | None) -> Version:
        """Put an object in place of a version of it; its new version.

        Args:
            name: of the object.
            data: its content.
            version: what there has to be; None: no object.

        Raises:
            ConflictError: there is something else. Or this was put, and the answer lost.
        """
        errors = self._obstore.exceptions
        mode: Any = "create"
        if version is not None:
            mode = {"e_tag": version.e_tag}
            if version.generation is not None:
                mode["version"] = version.generation
        with self._explained():
            try:
                put = self._obstore.put(self._store, name, data, mode=mode, use_multipart=False)
            except (errors.AlreadyExistsError, errors.PreconditionError, FileNotFoundError):
                raise ConflictError(f"{self.address}/{name}") from None
            return Version.of(put)

    def names(self, prefix: str) -> Iterator[str]:
        """The names of objects that begin so; a store may give a list that is not the newest."""
        with self._explained():
            for some in self._obstore.list(self._store, prefix):
                for entry in some:
                    yield entry["path"]

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects, as far as they are there."""
        names = list(names)
        for at in range(0, len(names), DELETED_AT_ONCE):
            with self._explained(), contextlib.suppress(FileNotFoundError):
                self._obstore.delete(self._store, names[at : at + DELETED_AT_ONCE])

    def check_conditions(self, place: str) -> None:
        """Return if the store puts objects on a condition.

        Args:
            place: the beginning of the names of objects to try it with, which nobody else has.

        Raises:
            StoreError: it does not, so that two drivers could both commit.
        """
        for attempt in range(PROBES):
            name = f"{place}-{attempt}"
            try:
                first = self.replace(name, b"1", None)
                self.replace(name, b"2", first)
                for version in (None, first):
                    with contextlib.suppress(ConflictError):
                        self.replace(name, b"3", version)
                        raise self._unfit(
                            "has put an object although its condition did not hold, so that two "
                            "drivers could both commit"
                        )
                return
            except ConflictError:  # or the answer to a put was lost
                continue
            finally:
                self.delete([name])
        raise self._unfit("has refused to replace the newest version of an object")

    def _unfit(self, problem: str) -> StoreError:
        return StoreError(
            f"{self.address} cannot hold a state: the store {problem}. Nothing was started. Take a "
            "store with conditional writes (S3, Google Cloud Storage, Azure), or a mounted file "
            "system"
        )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Say of an error of the store where it was."""
        try:
            yield
        except (StoreError, ConflictError):
            raise
        except Exception as error:
            message = str(error).partition("\n\nDebug source")[0]
            raise StoreError(f"{self.address}: {message}") from error
