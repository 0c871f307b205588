"""The metrics of a run over HTTP, for Prometheus to fetch: `/metrics`, on 127.0.0.1 only.

What is served is read from the run folder, so it says what `blazes top` says.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from flux_runtime.observe.exposition import Exposition

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
log = logging.getLogger(__name__)


@contextlib.contextmanager
def serving(folder: Path, port: int | None) -> Iterator[int | None]:
    """Serve a run folder's metrics; gives the port. `None` serves nothing, 0 takes a free port.

    Raises:
        OSError: the port is taken.
    """
    if port is None:
        yield None
        return
    exposition, lock = Exposition(folder), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "the metrics are at /metrics")
                return
            with lock:
                body = exposition.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            log.debug(format, *args)

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
