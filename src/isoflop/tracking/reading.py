"""A run as a store has it, and a sqlite store read without mlflow: to import that takes longer than all of `collect`.

Only what every store of MLflow 3 has is read. Where its tables are others, the answer is None: ask mlflow.
"""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

BUSY_S = 20.0  # how long another process may keep the database locked; mlflow waits as long

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run as the store has it. `metrics` holds the latest values only."""

    run_id: str
    experiment_id: str
    status: str  # RUNNING | FINISHED | FAILED | KILLED
    deleted: bool
    start_ms: int
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    artifact_uri: str
    has_dataset: bool


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which runs: of these experiments, with these tags, with this status if one is named; deleted ones on request."""

    experiment_ids: Sequence[str]
    tags: Mapping[str, str]
    status: str | None = None
    deleted: bool = False


class Database:
    """The file of a sqlite store. Its methods raise sqlite3.Error where it cannot be read."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def experiment(self, name: str) -> str | None:
        """Id of the experiment; None where there is none, or where mlflow must say which."""
        found = self._ask(
            lambda db: db.execute("select experiment_id from experiments where name = ?", [name]).fetchall()
        )
        return str(found[0][0]) if found is not None and len(found) == 1 else None

    def experiments(self) -> list[str] | None:
        """Ids of all experiments that were not deleted."""
        query = "select experiment_id from experiments where lifecycle_stage = 'active'"
        return self._ask(lambda db: [str(each) for (each,) in db.execute(query)])

    def runs(self, wanted: Wanted) -> list[StoredRun] | None:
        return self._ask(lambda db: _runs(db, wanted))

    def points(self, run_id: str) -> set[tuple[str, int]] | None:
        """(metric, step) of every point that the run has."""
        query = "select distinct key, step from metrics where run_uuid = ?"
        return self._ask(lambda db: {(key, int(step)) for key, step in db.execute(query, [run_id])})

    def _ask(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer | None:
        # rw and not ro: what a killed writer left in its journal must be rolled back first. It never makes a file.
        place = f"{self._file.as_uri()}?mode=rw"
        with closing(sqlite3.connect(place, uri=True, timeout=BUSY_S, isolation_level=None)) as db:
            try:
                db.execute("begin")  # one snapshot for all that is asked
                return question(db)
            except sqlite3.OperationalError as error:
                if "no such" not in str(error):  # table, column
                    raise
                return None


def _runs(db: sqlite3.Connection, wanted: Wanted) -> list[StoredRun]:
    where = [f"experiment_id in ({', '.join('?' * len(wanted.experiment_ids))})"]
    values: list[Any] = [int(each) for each in wanted.experiment_ids]
    for key, value in wanted.tags.items():
        where.append("run_uuid in (select run_uuid from tags where key = ? and value = ?)")
        values += [key, value]
    if wanted.status is not None:
        where.append("status = ?")
        values.append(wanted.status)
    if not wanted.deleted:
        where.append("lifecycle_stage = 'active'")
    chosen = " and ".join(where)

    def of_each(table: str, columns: str) -> dict[str, list[tuple[Any, ...]]]:
        found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        query = f"select run_uuid, {columns} from {table} where run_uuid in (select run_uuid from runs where {chosen})"
        for run_id, *row in db.execute(query, values):
            found[run_id].append(tuple(row))
        return found

    columns = "run_uuid, experiment_id, status, lifecycle_stage, start_time, artifact_uri"
    rows = db.execute(f"select {columns} from runs where {chosen}", values).fetchall()
    if not rows:
        return []
    tags, params = of_each("tags", "key, value"), of_each("params", "key, value")
    metrics = of_each("latest_metrics", "key, value, is_nan")
    inputs = "select destination_id from inputs where source_type = 'DATASET' and destination_type = 'RUN'"
    with_dataset = {run_id for (run_id,) in db.execute(inputs)}
    return [
        StoredRun(
            run_id=run_id,
            experiment_id=str(experiment_id),
            status=status,
            deleted=stage == "deleted",
            start_ms=int(start or 0),
            tags=dict(tags[run_id]),
            params=dict(params[run_id]),
            metrics={key: math.nan if is_nan else float(value) for key, value, is_nan in metrics[run_id]},
            artifact_uri=uri,
            has_dataset=run_id in with_dataset,
        )
        for run_id, experiment_id, status, stage, start, uri in rows
    ]
