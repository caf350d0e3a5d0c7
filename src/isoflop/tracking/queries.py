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
from isoflop.tracking.identity import EVALUATED
from isoflop.tracking.store import Store, StoredRun


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """A finished run and one evaluation of it. Artifacts are read when asked for, once."""

    run_id: str
    experiment_id: str
    tags: dict[str, str]
    protocol_hash: str
    bpb: float
    _store: Store = field(repr=False, compare=False)
    _run: StoredRun = field(repr=False, compare=False)

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
    return _search(root, wanted, protocol_hash=None)


def all_runs(root: Path, *, data_digest: str, protocol_hash: str) -> list[FoundRun]:
    """Finished runs of any configuration on one corpus, evaluated by one protocol; else like `find_runs`."""
    return _search(root, {"data_digest": data_digest}, protocol_hash=protocol_hash)


def _search(root: Path, wanted: dict[str, str], protocol_hash: str | None) -> list[FoundRun]:
    query = " and ".join(f"tags.{key} = '{value}'" for key, value in wanted.items())
    try:
        store = Store(root)
        runs = store.search(store.experiments(), f"{query} and attributes.status = 'FINISHED'")
    except Exception as error:  # a store that fails costs the comparison, never the report
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        sys.stderr.write(f"warning: earlier runs cannot be looked up in MLflow ({reason})\n")
        return []
    return _latest(found for run in runs for found in _evaluations(store, run, protocol_hash))


def _evaluations(store: Store, run: StoredRun, protocol_hash: str | None) -> Iterable[FoundRun]:
    """One entry per protocol by which the run was evaluated."""
    for key, value in run.tags.items():
        found = key.removeprefix(EVALUATED)
        if found == key or value == "none" or protocol_hash not in (None, found):
            continue
        yield FoundRun(
            run_id=run.run_id,
            experiment_id=run.experiment_id,
            tags=dict(run.tags),
            protocol_hash=found,
            bpb=float(value),
            _store=store,
            _run=run,
        )


def _latest(candidates: Iterable[FoundRun]) -> list[FoundRun]:
    """The latest of each (protocol, configuration, seed) whose evaluation can be read."""
    latest: dict[tuple[str, str, int], FoundRun] = {}
    for found in sorted(candidates, key=lambda each: (each._run.start_ms, each.tags["run_uid"]), reverse=True):
        key = (found.protocol_hash, found.tags["config_hash"], int(found.tags["seed"]))
        if key not in latest and found.evaluation is not None:
            latest[key] = found
    return [latest[key] for key in sorted(latest)]
