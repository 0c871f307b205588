"""An object store that does what a store can do to those who use it.

A small S3 in memory, over HTTP: whole objects, lists, and puts on the conditions `If-None-Match: *`
and `If-Match`. It can be told to answer badly (`KINDS`), or to strike at a request. A test compares
it with `moto` while it is calm.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET: Final = "bucket"
ADDRESS: Final = f"s3a://{BUCKET}/attacked/state"
LATE_S: Final = 1.0


KINDS: Final = ("late", "refused", "conflict", "lost", "failed after", "stale")
"""How a request can be answered: late; with 503, or 412 where it has a condition, though nothing
was done; not at all, or with 500, though it was done; from a list that is not the newest."""


class Store:
    """The store; its objects can be looked at and changed.

    Args:
        rng: decides which requests are answered badly.
        ignores: conditions that it takes no notice of.
    """

    def __init__(self, rng: random.Random, *, ignores: Sequence[str] = ()) -> None:
        self.ignores = ignores
        self.objects: dict[str, bytes] = {}
        self.lock = threading.RLock()
        self.older: list[str] = []
        """The names of some time ago."""
        self._rng = rng
        self._rates: Mapping[str, float] = {}
        self._met: Counter[str] = Counter()
        self._strike: tuple[int, bool, Callable[[], object]] | None = None
        self._at_writes = False

    def version(self, name: str) -> str | None:
        """The version of an object; None: there is none."""
        data = self.objects.get(name)
        return None if data is None else f'"{hashlib.md5(data).hexdigest()}"'

    # ---- faults

    def disturb(self, rates: Mapping[str, float]) -> None:
        """Answer a share of the requests as `KINDS` say, until `calm`."""
        self._rates, self._met = rates, Counter()

    def strike(self, number: int, *, writes: bool, after: bool, how: Callable[[], object]) -> None:
        """Call something at a request, after or before it is done; it is not answered.

        `writes`: requests that change nothing are not counted.
        """
        self._strike, self._at_writes = (number, after, how), writes

    def calm(self) -> Counter[str]:
        """End all that; how many requests met what."""
        self._rates, self._strike = {}, None
        return self._met

    def meets(self, kind: str) -> bool:
        """Whether a request is answered so."""
        with self.lock:
            met = self._rng.random() < self._rates.get(kind, 0.0)
            self._met[kind] += met
            return met

    def strikes(self, method: str) -> tuple[bool, Callable[[], object]] | None:
        """Whether this request is the one to strike at: after it is done?, and how."""
        with self.lock:
            if self._strike is None or (self._at_writes and method in ("GET", "HEAD")):
                return None
            number, after, how = self._strike
            self._strike = (number - 1, after, how) if number > 1 else None
            return (after, how) if number <= 1 else None

    def copy(self) -> dict[str, bytes]:
        """All objects."""
        return dict(self.objects)

    def put_back(self, objects: Mapping[str, bytes]) -> None:
        """Put back a copy."""
        with self.lock:
            self.objects = dict(objects)

    def damage(self, name: str, rng: random.Random) -> str:
        """Delete an object, cut it short, or change a byte of it; which of these."""
        with self.lock:
            data = self.objects[name]
            how = rng.choice(["deleted", "cut short", "changed"])
            if how == "deleted" or not data:
                del self.objects[name]
                return "deleted"
            at = rng.randrange(len(data))
            changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
            self.objects[name] = data[:at] if how == "cut short" else changed
            return how


@contextlib.contextmanager
def serving(store: Store) -> Iterator[Mapping[str, str]]:
    """Serve the store on loopback; the environment variables that lead to it."""
    handler = type("Handler", (_Handler,), {"store": store})
    server = _Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Nothing: those who ask are killed."""


class _Handler(BaseHTTPRequestHandler):
    store: Store
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # each answer in one piece, which nobody has to wait for

    def do_PUT(self) -> None:
        """Put an object, perhaps on a condition."""
        data = self._body()
        self._answer(lambda: self._put(self._key, data))

    def do_GET(self) -> None:
        """An object, or a list."""
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._answer(lambda: self._list(query.get("prefix", [""])[0]))
        else:
            self._answer(self._get)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        """Delete several objects."""
        names = re.findall(r"<Key>(.*?)</Key>", self._body().decode())
        self._answer(lambda: self._delete(names))

    def do_DELETE(self) -> None:
        """Delete an object."""
        self._answer(lambda: self._delete([self._key]))

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    # ---- what is done

    def _put(self, name: str, data: bytes) -> tuple[int, bytes, str | None]:
        there = self.store.version(name)
        if self._condition("If-None-Match") == "*" and there is not None:
            return 412, b"", None
        expected = self._condition("If-Match")
        if expected is not None and expected != there:
            return (404 if there is None else 412), b"", None
        self.store.objects[name] = data
        return 200, b"", self.store.version(name)

    def _condition(self, header: str) -> str | None:
        return None if header in self.store.ignores else self.headers[header]

    def _get(self) -> tuple[int, bytes, str | None]:
        data = self.store.objects.get(self._key)
        if data is None:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>", None
        return 200, data, self.store.version(self._key)

    def _list(self, prefix: str) -> tuple[int, bytes, str | None]:
        names = sorted(self.store.objects)
        if self.store.meets("stale"):
            names = self.store.older
        self.store.older = sorted(self.store.objects)
        entries = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>0</Size><ETag>x</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for name in names
            if name.startswith(prefix)
        )
        text = (
            '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        )
        return 200, text.encode(), None

    def _delete(self, names: list[str]) -> tuple[int, bytes, str | None]:
        for name in names:
            self.store.objects.pop(name, None)
        deleted = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in names)
        return 200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), None

    # ---- how it is answered

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}/")

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def _answer(self, done: Callable[[], tuple[int, bytes, str | None]]) -> None:
        store = self.store
        conditional = self.headers["If-Match"] or self.headers["If-None-Match"]
        if (strike := store.strikes(self.command)) is not None:
            after, how = strike
            if after:
                with store.lock:
                    done()
            how()
            self.close_connection = True
            return
        if store.meets("late"):
            time.sleep(LATE_S)
        if store.meets("refused"):
            self._send(503, b"<Error><Code>SlowDown</Code></Error>", None)
            return
        if conditional and store.meets("conflict"):
            self._send(412, b"", None)
            return
        with store.lock:
            answer = done()
        if store.meets("lost"):
            self.close_connection = True
        elif store.meets("failed after"):
            self._send(500, b"<Error><Code>InternalError</Code></Error>", None)
        else:
            self._send(*answer)

    def _send(self, status: int, data: bytes, version: str | None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if version is not None:
            self.send_header("ETag", version)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
