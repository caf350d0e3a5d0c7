"""Checkpoints from which an interrupted run resumes to the same weights as an uninterrupted one."""

from __future__ import annotations

import io
import shutil
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from isoflop.files import atomic_path, read_json, sha256_of, write_json

KEPT = 2
ORPHANED_S = 7 * 24 * 3600.0  # untouched for so long, a run is not expected to be taken up again


class Checkpoints:
    """The unfinished run of one identity: its uid and its last checkpoints. Removed when the run is done.

    `key` must hold all that decides the weights (configuration, data, seed, code, machine), so that whatever lies
    here continues exactly this run. One process at a time: a second one with the same key works in a folder of its own.
    `study` is the one that a new run is begun for; `every_s` is the time between two checkpoints.
    """

    def __init__(self, root: Path, key: str, *, every_s: float, study: str) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.folder = root / key
        lock = _lock(self.folder)
        if lock is None:
            self.folder = root / f"{key}-{uuid.uuid4().hex[:8]}"
            lock = _lock(self.folder)
            assert lock is not None, "nobody else knows the name"
            print(f"another process is training this very run; this one keeps its own checkpoints in {self.folder}")
        self._lock = lock
        self.folder.mkdir(exist_ok=True)
        _remove_orphans(root)
        # Of the run's first beginning, also when it is resumed.
        self.run_uid, self.started, self.study = self._identity(study)
        self._every_s, self._saved_at = every_s, time.monotonic()

    def _identity(self, study: str) -> tuple[str, datetime, str]:
        path = self.folder / "identity.json"
        if not path.exists():
            new = {"run_uid": uuid.uuid4().hex, "started": datetime.now(UTC).isoformat(), "study": study}
            write_json(path, new)
        identity: dict[str, str] = read_json(path)
        return identity["run_uid"], datetime.fromisoformat(identity["started"]), identity["study"]

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return time.monotonic() - self._saved_at > self._every_s

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write the state after `step` steps; the hash in the name shows later whether the file is whole."""
        try:
            with atomic_path(self.folder / f"writing-{step}.pt") as temporary:
                content = io.BytesIO()  # torch would turn a full disk into an error without its number
                torch.save(state, content)
                temporary.write_bytes(content.getbuffer())
                digest = sha256_of(temporary)[:16]
        finally:
            self._saved_at = time.monotonic()  # also of one that failed: the next step would fail as well
        (self.folder / f"writing-{step}.pt").replace(self.folder / f"{step:09d}-{digest}.pt")
        for old in self._saved()[KEPT:]:
            old.unlink()

    def load(self, device: torch.device) -> dict[str, Any] | None:
        """The newest state that is whole, or None. A damaged file is named, and the one before it used."""
        for path in self._saved():
            if sha256_of(path)[:16] == path.stem.split("-")[1]:
                state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
                return state
            print(f"{path}: cut short or changed since it was written; using an older one", file=sys.stderr)
            path.unlink()
        return None

    def _saved(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*-*.pt"), reverse=True)

    def remove(self) -> None:
        """The run is complete under its final name: nothing to resume."""
        _remove(self.folder, self._lock)

    def release(self) -> None:
        """Let another process have the folder."""
        self._lock.release()


def _lock(folder: Path) -> FileLock | None:
    """The lock of a run's folder, held from now on; None where another process holds it."""
    lock = FileLock(_lock_file(folder))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock


def _lock_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _remove(folder: Path, lock: FileLock) -> None:
    """Remove a run's folder and its lock, which is held: who waits for it finds the file gone and makes another."""
    shutil.rmtree(folder, ignore_errors=True)
    _lock_file(folder).unlink(missing_ok=True)
    lock.release()


def _remove_orphans(root: Path) -> None:
    """Remove what runs left that nobody took up again: their code or configuration has changed since."""
    for folder in {entry.with_name(entry.name.removesuffix(".lock")) for entry in root.iterdir()}:
        if time.time() - _touched(folder) > ORPHANED_S and (lock := _lock(folder)) is not None:
            _remove(folder, lock)


def _touched(folder: Path) -> float:
    """When anything of a run was last written (Unix time); now, where another process is removing it."""
    try:
        return max(path.stat().st_mtime for path in (folder, _lock_file(folder), *folder.glob("*")) if path.exists())
    except (FileNotFoundError, ValueError):
        return time.time()
