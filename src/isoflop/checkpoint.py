"""Checkpoints from which an interrupted run resumes to the same weights as an uninterrupted one."""

from __future__ import annotations

import io
import shutil
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from isoflop.files import atomic_path, read_json, sha256_of, write_json

KEPT = 2


class Checkpoints:
    """The unfinished run of one identity: its uid and its last checkpoints. Removed when the run is done.

    `key` must hold all that decides the weights (configuration, data, seed, code, machine), so that whatever lies
    here continues exactly this run. One process at a time: a second one with the same key works in a folder of its own.
    """

    def __init__(self, root: Path, key: str) -> None:
        self.folder = root / key
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder.with_suffix(".lock"))
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            self.folder = root / f"{key}-{uuid.uuid4().hex[:8]}"
            self.folder.mkdir()
            print(f"another process is training this very run; this one keeps its own checkpoints in {self.folder}")
        self.run_uid, self.started = self._identity()  # of the run's first beginning, also when it is resumed

    def _identity(self) -> tuple[str, datetime]:
        path = self.folder / "identity.json"
        if not path.exists():
            write_json(path, {"run_uid": uuid.uuid4().hex, "started": datetime.now(UTC).isoformat()})
        identity: dict[str, str] = read_json(path)
        return identity["run_uid"], datetime.fromisoformat(identity["started"])

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write the state after `step` steps; the hash in the name shows later whether the file is whole."""
        with atomic_path(self.folder / f"writing-{step}.pt") as temporary:
            content = io.BytesIO()  # torch would turn a full disk into an error without its number
            torch.save(state, content)
            temporary.write_bytes(content.getbuffer())
            digest = sha256_of(temporary)[:16]
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
        shutil.rmtree(self.folder, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Let another process have the folder."""
        self._lock.release()
