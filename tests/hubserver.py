"""An HTTP server on the loopback that behaves like the hub: metadata on HEAD, a redirect to a CDN, ranges.

Two ports, as the hub and its CDN are two hosts. Faults are switched on by attributes. Both ports' requests are
recorded in `requests`.
"""

from __future__ import annotations

import hashlib
import re
import socket
import struct
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


@dataclass(frozen=True)
class Request:
    port: str  # hub | cdn
    method: str
    path: str
    headers: dict[str, str]  # names in lower case


class HubServer:
    """`with HubServer({"name.txt": b"..."}, repo, revision) as server:`; `server.url` is the HF_ENDPOINT.

    Files are served at the hub's address /datasets/REPO/resolve/REVISION/NAME, which redirects to the CDN, and
    directly at `server.plain(name)`, as any web server would.
    """

    def __init__(self, files: dict[str, bytes], repo: str, revision: str) -> None:
        self.files = files
        self.prefix = f"/datasets/{repo}/resolve/{revision}/"
        self.revision = revision
        self.requests: list[Request] = []
        self.break_after: list[int] = []  # bytes after which the next transfers from the CDN are cut
        self.stalls = False  # stand still there, instead of closing the connection
        self.resets = False  # reset it there, instead of closing it
        self.accepts_ranges = True
        self.tells_length = True
        self.etag: str | None = None  # of the CDN, where it is not the content's hash; "": none
        self.status: int | None = None  # of every answer of the hub
        self.cdn_status: list[int] = []  # of the next answers of the CDN
        self.error_code: str | None = None  # X-Error-Code beside `status`
        self.hangs = False  # accept, never answer
        self.trickles = False  # a header line now and then, never the end of them
        self.is_portal = False  # some page, as a login page in front of the network gives it
        self.wrong_linked_size: int | None = None
        self.linked_etag: str | None = None
        self.content: dict[str, bytes] = {}  # what the CDN sends, where it is not what the hub says
        self._over = threading.Event()
        self._hub = self._listen("hub")
        self._cdn = self._listen("cdn")
        self.url = f"http://127.0.0.1:{self._hub.server_address[1]}"
        self.cdn_url = f"http://127.0.0.1:{self._cdn.server_address[1]}"

    def plain(self, name: str) -> str:
        return f"{self.cdn_url}/{name}"

    def asked(self, port: str, method: str) -> list[Request]:
        return [r for r in self.requests if (r.port, r.method) == (port, method)]

    def __enter__(self) -> HubServer:
        for server in (self._hub, self._cdn):
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for server in (self._hub, self._cdn):
            server.shutdown()
            server.server_close()

    def _listen(self, port: str) -> ThreadingHTTPServer:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def handle(self) -> None:
                try:
                    super().handle()
                except ConnectionError:  # the client had enough
                    self.close_connection = True

            def do_HEAD(self) -> None:
                self.answer()

            def do_GET(self) -> None:
                self.answer()

            def answer(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                hub.requests.append(Request(port, self.command, self.path, headers))
                if port == "hub":
                    hub._answer_hub(self)
                else:
                    hub._answer_cdn(self)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        return server

    def _answer_hub(self, to: BaseHTTPRequestHandler) -> None:
        if self.hangs:
            self._over.wait(20)
            to.close_connection = True
            return
        if self.trickles:
            to.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not self._over.wait(0.05):
                to.wfile.write(b"X-Wait: a little\r\n")
            to.close_connection = True
            return
        name = to.path.removeprefix(self.prefix)
        if self.is_portal:
            _send(to, 200, {"ETag": '"page"'}, b"<html>log in first</html>")
        elif self.status is not None:
            said = {"X-Error-Code": self.error_code, "X-Error-Message": "said the server"}
            _send(to, self.status, {k: v for k, v in said.items() if v and self.error_code}, b"no")
        elif not to.path.startswith(self.prefix):
            _send(to, 404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"}, b"no")
        elif name not in self.files:
            _send(to, 404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"}, b"no")
        else:
            data = self.files[name]
            digest = self.linked_etag or hashlib.sha256(data).hexdigest()
            headers = {
                "X-Repo-Commit": self.revision,
                "X-Linked-ETag": f'"{digest}"',
                "X-Linked-Size": str(self.wrong_linked_size or len(data)),
                "X-Xet-Hash": "0" * 64,  # the hub offers another way to transfer, which is not taken
                "Link": f'<{self.url}/xet>; rel="xet-auth"',
                "Location": self.plain(name),
            }
            _send(to, 302, headers, b"Found. Redirecting")

    def _answer_cdn(self, to: BaseHTTPRequestHandler) -> None:
        name = to.path.lstrip("/")
        if self.cdn_status:
            _send(to, self.cdn_status.pop(0), {}, b"no")
            return
        if name not in self.files:
            _send(to, 404, {}, b"no")
            return
        data = self.content.get(name, self.files[name])
        tag = f'"{hashlib.md5(data).hexdigest()}"'
        headers = {"ETag": tag if self.etag is None else self.etag}
        if self.etag == "":
            del headers["ETag"]
        status, body = 200, data
        asked = re.fullmatch(r"bytes=(\d+)-", to.headers.get("Range", ""))
        if asked and self.accepts_ranges and to.headers.get("If-Range", tag) == tag:
            start = int(asked[1])
            if start >= len(data):
                _send(to, 416, {"Content-Range": f"bytes */{len(data)}"}, b"")
                return
            status, body = 206, data[start:]
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        cut = self.break_after.pop(0) if self.break_after else len(body)
        _send(to, status, headers, body, cut=cut, tells_length=self.tells_length)
        if cut < len(body) and self.stalls:
            self._over.wait(20)
        if cut < len(body) and self.resets:
            time.sleep(0.05)  # or what was sent may be lost with the connection
            to.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            to.connection.close()


def _send(
    to: BaseHTTPRequestHandler,
    status: int,
    headers: dict[str, str],
    body: bytes,
    *,
    cut: int | None = None,
    tells_length: bool = True,
) -> None:
    """Answer with `body`, of which `cut` bytes arrive before the connection breaks."""
    to.send_response(status)
    for name, value in headers.items():
        to.send_header(name, value)
    if tells_length:
        to.send_header("Content-Length", str(len(body)))
    else:
        to.send_header("Connection", "close")
        to.close_connection = True
    to.end_headers()
    if to.command == "HEAD":
        return
    if cut is not None and cut < len(body):
        to.wfile.write(body[:cut])
        to.wfile.flush()
        to.close_connection = True
    else:
        to.wfile.write(body)
