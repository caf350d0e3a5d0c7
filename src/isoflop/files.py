"""Files that are either whole under their final name or not there at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isoflop.errors import IsoflopError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; rename it to `path` on success, remove it on any error.

    A full disk, a signal or an exception therefore never leaves half a file under the final name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, newlines as they are."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, atomically. NaN and infinity are refused: they are not JSON."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def digest_of(value: Any, length: int = 16) -> str:
    """A short hash of plain data that does not depend on the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def fresh_folder(path: Path) -> Path:
    """An empty folder at `path`, whatever was there before."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn a full disk, quota or size limit met while writing below `folder` into an IsoflopError."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise IsoflopError(
            f"writing to {folder.absolute()} failed: {error.strerror}. Free some space there and run again; "
            "no half-written file was left under its final name"
        ) from error
