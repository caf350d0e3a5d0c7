"""The files of one run, read as what the store should say about it. No mlflow."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from isoflop.files import digest_of
from isoflop.tracking.identity import DIVERGED_AT, EVALUATED, STATUS, RunIdentity
from isoflop.tracking.store import ELAPSED, TimedRow

FORMAT = 1  # raise it when what is written changes: every run is then looked at once more
RUN_FILES = ("run.json", "config.yaml", "history.csv", "timing.csv")


@dataclass(frozen=True, kw_only=True)
class RunFiles:
    """Where the files of one run lie. The evaluation and the samples may not be there (yet)."""

    folder: Path
    evaluation: Path
    samples: Path


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The files of one run, read. Texts are what goes into the store as artifacts, by name."""

    identity: RunIdentity
    record: Mapping[str, Any]
    evaluation: Mapping[str, Any] | None
    texts: Mapping[str, str]

    @classmethod
    def read(cls, files: RunFiles) -> Contents:
        """Read the files; OSError, ValueError, KeyError or TypeError where they are not what they should be."""
        texts = {name: (files.folder / name).read_bytes().decode("utf-8") for name in RUN_FILES}
        record = json.loads(texts["run.json"])
        evaluation = None
        if (text := _text(files.evaluation)) is not None:
            evaluation = json.loads(text)
            if evaluation["run_uid"] == record["run_uid"]:
                texts[evaluation_name(evaluation["protocol_hash"])] = text
            else:  # of an earlier run of the same arm and seed
                evaluation = None
        if (text := _text(files.samples)) is not None:
            texts["samples.md"] = text
        return cls(identity=RunIdentity.of(record), record=record, evaluation=evaluation, texts=texts)

    @property
    def signature(self) -> str:
        return digest_of([FORMAT, dict(self.texts)])

    @property
    def started_ms(self) -> int:
        return _milliseconds(self.record["timing"]["started"])

    @property
    def ended_ms(self) -> int:
        return _milliseconds(self.record["timing"]["ended"])

    def tags(self) -> dict[str, str]:
        tags = {**self.identity.tags(), STATUS: str(self.record["status"])}
        if self.record["diverged_at"] is not None:
            tags[DIVERGED_AT] = str(self.record["diverged_at"])
        if self.evaluation is not None:
            bpb = self.evaluation["bpb"]
            tags[EVALUATED + self.evaluation["protocol_hash"]] = "none" if bpb is None else repr(bpb)
        return tags

    def rows(self) -> list[TimedRow]:
        """The run's history, each step at the time that timing.csv gives it."""
        steps: dict[int, dict[str, float]] = {}
        for name in ("history.csv", "timing.csv"):
            for step, metrics in read_rows(self.texts.get(name, "")):
                steps.setdefault(step, {}).update(metrics)
        return [
            TimedRow(step, row, self.started_ms + int(row.get(ELAPSED, 0.0) * 1000))
            for step, row in sorted(steps.items())
        ]

    def test_metrics(self) -> dict[str, float]:
        """Test bits per byte, and their excess over the corpus floor where that is known."""
        if self.evaluation is None or self.evaluation["bpb"] is None:
            return {}
        metrics = {"test/bpb": float(self.evaluation["bpb"])}
        if self.evaluation["floor_bpb"] is not None:
            metrics["test/excess_bpb"] = metrics["test/bpb"] - float(self.evaluation["floor_bpb"])
        return metrics


def evaluation_name(protocol_hash: str) -> str:
    """Artifact name of an evaluation: one per protocol, so that no comparison loses its counterpart."""
    return f"evaluation/{protocol_hash}.json"


def read_rows(text: str) -> list[tuple[int, dict[str, float]]]:
    """(step, metrics) of a history or timing csv; empty cells are left out."""
    return [
        (int(row["step"]), {key: float(value) for key, value in row.items() if key != "step" and value})
        for row in csv.DictReader(io.StringIO(text))
    ]


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None


def _milliseconds(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)
