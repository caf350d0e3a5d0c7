"""One file over HTTP into a partial file that a broken transfer leaves behind and the next one continues."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from filelock import FileLock, Timeout
from tqdm import tqdm

from isoflop.errors import IsoflopError
from isoflop.files import disk_errors

TEMPORARY_STATUS = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a transfer bears with a server."""

    stall_s: float  # seconds without a byte after which a try is given up
    pauses_s: tuple[float, ...]  # waits before the next try, as long as tries bring nothing new


PATIENCE = Patience(stall_s=30.0, pauses_s=(1.0, 2.0, 4.0, 8.0))


class Broken(Exception):
    """A try that ended early, for a reason that may pass."""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """What is fetched and where to.

    `size` is the number of bytes where it is known beforehand. `pinned`: the content is known by its hash, so
    that continuing an older part is safe without asking the server whether the file is still the same.
    """

    url: str
    part: Path
    headers: Mapping[str, str]
    size: int | None
    pinned: bool
    label: str  # of the progress bar
    what: str  # subject of error messages
    way_out: str  # what a user may do instead, appended to "run the same command again"

    @property
    def done(self) -> int:
        """Bytes that have arrived."""
        return self.part.stat().st_size if self.part.exists() else 0

    @property
    def validator(self) -> Path:
        """File that holds the ETag or date of the content whose beginning is in `part`."""
        return self.part.with_name(self.part.name + ".validator")

    def forget(self) -> None:
        """Remove what has arrived."""
        self.part.unlink(missing_ok=True)
        self.validator.unlink(missing_ok=True)


def fetch(client: httpx2.Client, transfer: Transfer, patience: Patience = PATIENCE) -> None:
    """Bring `transfer.part` to its full length, continuing what is already there where the server allows it.

    Tries go on as long as they bring new bytes, and end after `patience.pauses_s` tries that do not. Raises
    IsoflopError when they have ended, or at once when the server refuses; what has arrived stays in `part`.
    """
    best = transfer.done
    pauses = iter(patience.pauses_s)
    print(f"fetching {transfer.label}" + (f" from byte {best:,} on" if best else ""), file=sys.stderr)
    with tqdm(total=transfer.size, desc=transfer.label, unit="B", unit_scale=True, disable=None) as bar:
        while True:
            try:
                with disk_errors(transfer.part.parent):
                    _try(client, transfer, patience.stall_s, bar)
                return
            except (Broken, httpx2.RequestError) as error:
                reason = str(error) or type(error).__name__
            if transfer.done > best:
                best = transfer.done
                pauses = iter(patience.pauses_s)
            pause = next(pauses, None)
            if pause is None:
                raise IsoflopError(_broken_message(transfer, reason))
            tqdm.write(f"{transfer.what}: {reason}; trying again in {pause:g} s", file=sys.stderr)
            time.sleep(pause)


def _try(client: httpx2.Client, transfer: Transfer, stall_s: float, bar: tqdm[Any]) -> None:
    """One request and what it brings. Raises Broken or RequestError when it ended early."""
    done, asked = _range_headers(transfer)
    if done and done == transfer.size:
        return
    # A compressed answer has no known length and cannot be continued.
    headers = {**transfer.headers, "Accept-Encoding": "identity", **asked}
    timeout = httpx2.Timeout(stall_s)
    with client.stream("GET", transfer.url, headers=headers, timeout=timeout, follow_redirects=True) as answer:
        if answer.status_code == 416:  # nothing from here on: the part is complete, or not a part of this file
            if answer.headers.get("Content-Range") == f"bytes */{done}":
                return
            transfer.forget()
            raise Broken("the server has no such range; starting over")
        if answer.status_code in TEMPORARY_STATUS:
            raise Broken(f"the server answers {answer.status_code} {answer.reason_phrase}")
        if not answer.is_success:
            raise IsoflopError(f"{transfer.what}: the server answers {answer.status_code} {answer.reason_phrase}")
        if answer.status_code != 206:
            done = 0
            _remember(transfer, answer)
        elif not answer.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
            transfer.forget()
            raise Broken("the server sends another range than was asked for; starting over")
        total = _total(answer, done)
        if None not in (total, transfer.size) and total != transfer.size:
            raise IsoflopError(wrong_size(transfer.what, total, transfer.size))
        bar.total = total = transfer.size if total is None else total
        bar.n = done
        bar.refresh()
        with transfer.part.open("ab" if done else "wb") as handle:
            for chunk in answer.iter_bytes():
                handle.write(chunk)
                bar.update(len(chunk))
    if total is not None and transfer.done < total:
        raise Broken(f"the server ended the transfer after {transfer.done:,} bytes")


def _range_headers(transfer: Transfer) -> tuple[int, dict[str, str]]:
    """Bytes to build on, and the headers that ask for the rest."""
    done = transfer.done
    if transfer.pinned:
        if transfer.size is not None and done > transfer.size:
            transfer.forget()
            done = 0
        return done, {"Range": f"bytes={done}-"} if done else {}
    if not done or not transfer.validator.exists():
        transfer.forget()
        return 0, {}
    # The server sends the whole file where it is no longer the one that the part was taken from.
    return done, {"Range": f"bytes={done}-", "If-Range": transfer.validator.read_text(encoding="utf-8")}


def _remember(transfer: Transfer, answer: httpx2.Response) -> None:
    """Note which content this answer begins, or that it cannot be continued."""
    tag = answer.headers.get("ETag", "")
    strong = "" if tag.startswith("W/") else tag
    tag = strong or answer.headers.get("Last-Modified", "")
    transfer.forget()
    if tag and "Content-Encoding" not in answer.headers:
        transfer.validator.write_text(tag, encoding="utf-8")


def _total(answer: httpx2.Response, done: int) -> int | None:
    """Length of the whole file, where the answer tells."""
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        return None
    length = answer.headers.get("Content-Length")
    return None if length is None else done + int(length)


def wrong_size(what: str, found: int | None, expected: int | None) -> str:
    """The message for a file of another length than the one that is pinned."""
    return f"{what}: found {found:,} bytes, expected {expected:,}: this is not the file that is pinned"


def _broken_message(transfer: Transfer, reason: str) -> str:
    of = f" of {transfer.size:,}" if transfer.size is not None else ""
    message = f"{transfer.what}: the transfer broke after {transfer.done:,}{of} bytes ({reason})."
    again = f"run the same command again{transfer.way_out}"
    if transfer.done and (transfer.pinned or transfer.validator.exists()):
        return f"{message} They are kept in {transfer.part} and the transfer resumes there: {again}"
    return f"{message} Check the connection and {again}"


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock beside `path`: two processes that write one partial file would spoil it."""
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"waiting for another process that fetches {path.name}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
