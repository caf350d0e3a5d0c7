"""Earlier runs in the store, with their evaluations and curves: where a comparison finds its control."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from isoflop.tracking.contents import evaluation_name, read_rows
from isoflop.tracking.identity import EVALUATED, RUN_UID, STATUS
from isoflop.tracking.reading import StoredRun, Wanted
from isoflop.tracking.store import Store


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """A run that ended and one evaluation of it. Artifacts are read when asked for, once."""

    run_id: str
    experiment_id: str
    tags: dict[str, str]
    protocol_hash: str
    bpb: float | None  # None where it diverged
    _store: Store = field(repr=False, compare=False)
    _run: StoredRun = field(repr=False, compare=False)

    @property
    def config_hash(self) -> str:
        return self.tags["config_hash"]

    @property
    def seed(self) -> int:
        return int(self.tags["seed"])

    @property
    def label(self) -> str:
        """What the run was called when it was trained."""
        return self.tags.get("label") or self.tags["arm"]

    @property
    def planned_flops(self) -> float | None:
        """The budget as its plan had it, in FLOPs; None where the store does not know it."""
        try:
            return float(self._run.params["predicted.flops"])
        except (KeyError, ValueError):
            return None

    @cached_property
    def evaluation(self) -> dict[str, Any] | None:
        """Content of the evaluation file; None where the artifact is gone or is not whole."""
        return self._json(evaluation_name(self.protocol_hash))

    @cached_property
    def record(self) -> dict[str, Any] | None:
        """Content of run.json; None where the artifact is gone or is not whole."""
        return self._json("run.json")

    def history(self) -> list[dict[str, float]]:
        """Rows of history.csv, `step` among the columns, blank cells left out; empty where it is gone."""
        rows = read_rows(self._store.read(self._run, "history.csv") or "")
        return [{"step": step, **metrics} for step, metrics in rows]

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(json.loads(self._store.read(self._run, name) or ""))
        except ValueError:
            return None


def find_runs(root: Path, *, data_digest: str, config_hash: str, study: str | None = None) -> list[FoundRun]:
    """Finished and evaluated runs of one configuration on one corpus, each with its evaluation at hand.

    Of several runs with the same seed and evaluation protocol the latest counts, by start and then by uid.
    Sorted by protocol and seed. Without `study`, all studies. Where the store fails: a warning on stderr,
    and none.
    """
    wanted = {"data_digest": data_digest, "config_hash": config_hash}
    if study is not None:
        wanted["study"] = study
    return _latest(each for each in _search(root, wanted, protocol_hash=None) if each.bpb is not None)


def all_runs(root: Path, *, data_digest: str, protocol_hash: str) -> list[FoundRun]:
    """Every run on one corpus that ended, diverged ones included, evaluated by one protocol; the latest first.

    By start and then by uid, whatever configuration and study. No evaluation is read yet: a store may hold
    thousands of runs, and their tags say which of them are worth it. Where the store fails: a warning on
    stderr, and none.
    """
    return _search(root, {"data_digest": data_digest}, protocol_hash=protocol_hash)


def _search(root: Path, wanted: dict[str, str], protocol_hash: str | None) -> list[FoundRun]:
    """Runs that ended, the latest first, with an entry per protocol by which each was evaluated."""
    try:
        store = Store(root)
        runs = store.search(Wanted(experiment_ids=store.experiments(), tags=wanted))
    except Exception as error:  # a store that fails costs the comparison, never the report
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        sys.stderr.write(f"warning: earlier runs cannot be looked up in MLflow ({reason})\n")
        return []
    found = [each for run in runs if _ended(run) for each in _evaluations(store, run, protocol_hash)]
    return sorted(found, key=lambda each: (each._run.start_ms, each.tags[RUN_UID]), reverse=True)


def _ended(run: StoredRun) -> bool:
    """Finished, or diverged: MLflow calls the latter FAILED, like a run that crashed."""
    return run.status == "FINISHED" or (run.status == "FAILED" and run.tags.get(STATUS) == "diverged")


def _evaluations(store: Store, run: StoredRun, protocol_hash: str | None) -> Iterable[FoundRun]:
    """One entry per protocol by which the run was evaluated."""
    for key, value in run.tags.items():
        found = key.removeprefix(EVALUATED)
        if found == key or protocol_hash not in (None, found):
            continue
        yield FoundRun(
            run_id=run.run_id,
            experiment_id=run.experiment_id,
            tags=dict(run.tags),
            protocol_hash=found,
            bpb=None if value == "none" else float(value),
            _store=store,
            _run=run,
        )


def _latest(candidates: Iterable[FoundRun]) -> list[FoundRun]:
    """Of candidates with the latest first, the latest of each (protocol, configuration, seed) that can be read."""
    latest: dict[tuple[str, str, int], FoundRun] = {}
    for found in candidates:
        key = (found.protocol_hash, found.config_hash, found.seed)
        if key not in latest and found.evaluation is not None:
            latest[key] = found
    return [latest[key] for key in sorted(latest)]
