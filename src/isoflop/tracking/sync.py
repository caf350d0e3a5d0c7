"""Fill the store in from the files of runs: what it lacks is added, nothing is written twice.

Keyed by `run_uid`. A tag holds the hash of the files that a run was completed from, so that a run with
nothing new costs one query, however much the store holds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock

from isoflop.tracking.contents import Contents, RunFiles
from isoflop.tracking.identity import PROCESS, STATUS, SYNCED, is_gone, is_other_and_alive
from isoflop.tracking.reading import StoredRun, Wanted
from isoflop.tracking.store import Store, TimedRow

LOCK_S = 120.0
MLFLOW_STATUS = {"finished": "FINISHED", "diverged": "FAILED"}


@dataclass(frozen=True)
class RunLink:
    """Where a run is in the store; `#/experiments/{experiment_id}/runs/{run_id}` in its UI."""

    experiment_id: str
    run_id: str


@dataclass(kw_only=True)
class SyncResult:
    """What a sync did. `links` is keyed by run_uid; `warning` says what is not in the store, and why."""

    uri: str | None = None
    created: int = 0
    completed: int = 0
    unchanged: int = 0
    deleted: int = 0  # by the user, in the store: left as they are
    closed: int = 0  # runs whose process is gone, marked KILLED
    links: dict[str, RunLink] = field(default_factory=dict)
    warning: str | None = None


def sync(root: Path, runs: Sequence[RunFiles]) -> SyncResult:
    """Bring the store of the main checkout `root` up to what the files of `runs` say. Never raises.

    Creates runs that are missing, completes those that were killed or could not be logged, adds evaluations
    and samples, and marks runs as KILLED whose process is gone. Two syncs at once take turns.
    """
    result = SyncResult()
    contents = _readable(runs, result)
    if not contents:
        return result
    try:
        with FileLock(str(root / "mlflow.db.sync.lock"), timeout=LOCK_S):
            store = Store(root)
            result.uri = store.uri
            studies = sorted({each.identity.study for each in contents})
            experiments = {study: store.experiment(study) for study in studies}
            for each in contents:
                _sync_run(store, experiments[each.identity.study], each, result)
            _close_orphans(store, experiments.values(), result)
    except Exception as error:  # mlflow, its database, the network, the disk: none may stop the report
        result.warning = (
            f"MLflow could not be brought up to date ({_reason(error)}); "
            "nothing is lost, the next `dvc repro` that collects runs fills it in from their files"
        )
    return result


def _readable(runs: Sequence[RunFiles], result: SyncResult) -> list[Contents]:
    """The runs whose files can be read; a warning names those that cannot."""
    contents: list[Contents] = []
    unreadable: list[str] = []
    for files in runs:
        try:
            contents.append(Contents.read(files))
        except (OSError, ValueError, KeyError, TypeError) as error:
            unreadable.append(f"{files.folder} ({_reason(error)})")
    if unreadable:
        result.warning = "not in MLflow, because their files cannot be read: " + ", ".join(unreadable)
    return contents


def _sync_run(store: Store, experiment_id: str, contents: Contents, result: SyncResult) -> None:
    uid = contents.identity.run_uid
    run = store.find(experiment_id, uid)
    if run is not None and run.deleted:
        result.deleted += 1
        return
    created = run is None
    if run is None:
        run = store.create(experiment_id, contents.identity, contents.started_ms, {STATUS: "running"})
    result.links[uid] = RunLink(run.experiment_id, run.run_id)
    signature = contents.signature
    if run.tags.get(SYNCED) == signature:
        result.unchanged += 1
        return
    if run.status == "RUNNING" and is_other_and_alive(run.tags.get(PROCESS)):
        result.warning = f"{contents.identity.name} is still being written to MLflow by another process"
        return
    store.describe(run, contents.identity, contents.texts["config.yaml"])
    for name, text in contents.texts.items():
        store.write(run, name, text)
    status = MLFLOW_STATUS[contents.record["status"]]
    if run.status != status:
        store.terminate(run.run_id, status, contents.ended_ms)
    known = store.points(run)
    rows = [*contents.rows(), _test_row(run, contents, known)]
    # One batch, its tags last: whatever interrupts this function, it is done again.
    store.log(run, rows, known, contents.tags() | {SYNCED: signature})
    result.created += created
    result.completed += not created


def _test_row(run: StoredRun, contents: Contents, known: set[tuple[str, int]]) -> TimedRow:
    """Test metrics at the run's last step, those that changed. They leave `known`: evaluated anew, the later point
    is the one that the UI shows."""
    step = int(contents.record["steps"])
    fresh = {key: value for key, value in contents.test_metrics().items() if run.metrics.get(key) != value}
    again = known & {(key, step) for key in fresh}
    known -= again
    return TimedRow(step, fresh, int(time.time() * 1000) if again else contents.ended_ms)


def _close_orphans(store: Store, experiment_ids: Iterable[str], result: SyncResult) -> None:
    """Mark RUNNING runs as KILLED whose process is known to be gone; resuming one marks it RUNNING again."""
    for run in store.search(Wanted(experiment_ids=list(experiment_ids), tags={}, status="RUNNING")):
        if is_gone(run.tags.get(PROCESS)):
            store.set_tags(run, {STATUS: "killed"})
            store.terminate(run.run_id, "KILLED", store.last_point_ms(run))
            result.closed += 1


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
