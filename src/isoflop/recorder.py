"""What a run writes down while it goes: names, numbers and steps. The training loop knows nothing more."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from isoflop.files import write_text

Row = tuple[int, dict[str, float]]  # step (counted when done), metrics by name

HISTORY = ("tokens", "flops", "train/loss", "train/lr", "train/grad_norm", "val/bpb")
TIMING = ("time/elapsed_s", "time/tokens_per_s", "time/mfu")


class Recorder(Protocol):
    """Receives the rows of a run."""

    def resume(self, rows: Sequence[Row]) -> None:
        """Rows that the checkpoint knows: log what is not durable yet, nothing twice."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row; kept until `commit`."""

    def commit(self) -> None:
        """All rows so far belong to a saved checkpoint and may be made durable."""

    def close(self, status: str) -> None:
        """The run ended as FINISHED, FAILED or KILLED."""


class FileRecorder:
    """Writes `history.csv` (the same for every repetition of a run) and `timing.csv` (never the same)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[Row] = []

    def resume(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.rows.append((step, dict(metrics)))

    def commit(self) -> None:
        pass

    def close(self, status: str) -> None:
        write_table(self.folder / "history.csv", HISTORY, self.rows)
        write_table(self.folder / "timing.csv", TIMING, self.rows)


class Recorders:
    """Several recorders as one."""

    def __init__(self, *recorders: Recorder) -> None:
        self.recorders = recorders

    def resume(self, rows: Sequence[Row]) -> None:
        for recorder in self.recorders:
            recorder.resume(rows)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for recorder in self.recorders:
            recorder.log(step, metrics)

    def commit(self) -> None:
        for recorder in self.recorders:
            recorder.commit()

    def close(self, status: str) -> None:
        for recorder in self.recorders:
            recorder.close(status)


def write_table(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Rows as CSV with a `step` column; a metric that a row lacks stays blank. Floats read back exactly."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", *columns])
    for step, metrics in rows:
        writer.writerow([step, *(metrics.get(name, "") for name in columns)])
    write_text(path, text.getvalue())
