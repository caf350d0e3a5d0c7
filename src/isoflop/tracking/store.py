"""The MLflow store: where it lies, how it is made, and what is written to a run.

mlflow is imported where something is written, or read from a server: the import takes more than a second, and a
sqlite store tells without it what it holds.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from isoflop.files import write_text
from isoflop.tracking.database import artifacts, ensure_store, quiet, sqlite_file
from isoflop.tracking.identity import RUN_UID, RunIdentity, flat_params
from isoflop.tracking.reading import Database, StoredRun, Wanted

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

MAX_METRICS = 900  # MLflow takes 1000 metrics and tags in one batch, and up to 100 tags
CONFIG = "config.yaml"
ELAPSED = "time/elapsed_s"  # the metric that tells when a row was measured, from the start of the run


class TimedRow(NamedTuple):
    """Metrics of one step, and when they were measured (Unix time in ms)."""

    step: int
    metrics: Mapping[str, float]
    time_ms: int


class Store:
    """An open store. Every method may raise whatever mlflow raises where the store fails."""

    def __init__(self, root: Path) -> None:
        """Open the store of the main checkout `root`, making it if need be."""
        quiet()
        self._root = root.resolve()
        self.uri = ensure_store(self._root)
        file = sqlite_file(self.uri)
        self._database = None if file is None else Database(file)

    @cached_property
    def _client(self) -> MlflowClient:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self.uri)

    def experiment(self, study: str) -> str:
        """Id of the experiment named like the study; made if there is none."""
        if self._database is not None and (known := self._database.experiment(study)) is not None:
            return known
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(study)
        if found is None:
            # A server knows its own place for artifacts; a database would take the working directory.
            remote = self.uri.startswith(("http:", "https:", "databricks"))
            place = None if remote else (artifacts(self._root) / study).as_uri()
            try:
                return self._client.create_experiment(study, artifact_location=place)
            except MlflowException:  # another process was faster
                found = self._client.get_experiment_by_name(study)
                if found is None:
                    raise
        return str(found.experiment_id)

    def experiments(self) -> list[str]:
        """Ids of all experiments."""
        if self._database is not None and (known := self._database.experiments()) is not None:
            return known
        return [str(each.experiment_id) for each in self._client.search_experiments()]

    def search(self, wanted: Wanted) -> list[StoredRun]:
        """The runs, in no order."""
        if self._database is not None and (known := self._database.runs(wanted)) is not None:
            return known
        from mlflow.entities import ViewType

        terms = [f"tags.{key} = '{value}'" for key, value in wanted.tags.items()]
        if wanted.status is not None:
            terms.append(f"attributes.status = '{wanted.status}'")
        view = ViewType.ALL if wanted.deleted else ViewType.ACTIVE_ONLY
        runs: list[StoredRun] = []
        token: str | None = None
        while True:
            page = self._client.search_runs(
                list(wanted.experiment_ids), " and ".join(terms), run_view_type=view, max_results=1000, page_token=token
            )
            runs += [_stored(run) for run in page]
            token = page.token
            if not token:
                return runs

    def find(self, experiment_id: str, run_uid: str) -> StoredRun | None:
        """The run with this uid. One that the user deleted counts: it must not come back by itself."""
        runs = self.search(Wanted(experiment_ids=[experiment_id], tags={RUN_UID: run_uid}, deleted=True))
        return min(runs, key=lambda run: (run.deleted, run.start_ms, run.run_id), default=None)

    def create(self, experiment_id: str, identity: RunIdentity, start_ms: int, tags: Mapping[str, str]) -> StoredRun:
        """A new run, RUNNING, with its identity from the first moment on."""
        run = self._client.create_run(
            experiment_id, start_time=start_ms, run_name=identity.name, tags={**identity.tags(), **tags}
        )
        return _stored(run)

    def describe(self, run: StoredRun, identity: RunIdentity, config_text: str) -> None:
        """Write what of params, dataset and configuration the run still lacks. Params are write-once."""
        folder = _local_folder(run.artifact_uri)
        if run.has_dataset and folder is not None and _read(folder / CONFIG) == config_text:
            return  # it is written last: the rest is there
        from mlflow.entities import Param

        params = [Param(k, v) for k, v in flat_params(config_text).items() if k not in run.params]
        self._client.log_batch(run.run_id, params=params)  # the client sends batches that the store takes
        if not run.has_dataset:
            self._client.log_inputs(run.run_id, datasets=[_dataset(identity)])
        self.write(run, CONFIG, config_text)

    def points(self, run: StoredRun) -> set[tuple[str, int]]:
        """(metric, step) of every point that the run has."""
        if self._database is not None and (known := self._database.points(run.run_id)) is not None:
            return known
        return {(key, point.step) for key in run.metrics for point in self._client.get_metric_history(run.run_id, key)}

    def last_point_ms(self, run: StoredRun) -> int:
        """When the run's last point was measured; its start where it has none."""
        history = [p for key in run.metrics for p in self._client.get_metric_history(run.run_id, key)]
        return max((int(point.timestamp) for point in history), default=run.start_ms)

    def log(
        self,
        run: StoredRun,
        rows: Iterable[TimedRow],
        known: set[tuple[str, int]],
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Append the points that are not in `known`, whole steps at a time; `known` grows by what is in.

        A batch is one transaction, so that a step is in the store as a whole or not at all. Numbers that are
        not finite are left out: MLflow would keep a NaN as the latest value and bend infinity to 1.8e308.
        `tags` are set after the last point, those that differ from what the run had when it was read.
        """
        from mlflow.entities import Metric

        batch: list[Metric] = []
        for row in rows:
            step = int(row.step)  # numpy's integers would be stored as bytes
            fresh = {
                key: float(value)
                for key, value in row.metrics.items()
                if (key, step) not in known and math.isfinite(value)
            }
            if len(batch) + len(fresh) > MAX_METRICS:
                self._send(run.run_id, batch, known)
                batch = []
            batch += [Metric(key, value, row.time_ms, step) for key, value in fresh.items()]
        self._send(run.run_id, batch, known, {k: v for k, v in (tags or {}).items() if run.tags.get(k) != v})

    def _send(
        self, run_id: str, metrics: list[Metric], known: set[tuple[str, int]], tags: Mapping[str, str] | None = None
    ) -> None:
        from mlflow.entities import RunTag

        if metrics or tags:
            self._client.log_batch(run_id, metrics=metrics, tags=[RunTag(k, v) for k, v in (tags or {}).items()])
            known.update((metric.key, metric.step) for metric in metrics)

    def set_tags(self, run: StoredRun, tags: Mapping[str, str]) -> None:
        """Set the tags that differ from what the run had when it was read."""
        self.log(run, [], set(), tags)

    def reopen(self, run_id: str) -> None:
        """Mark a run as RUNNING again."""
        self._client.update_run(run_id, status="RUNNING")

    def terminate(self, run_id: str, status: str, end_ms: int) -> None:
        """Mark a run as FINISHED, FAILED or KILLED."""
        self._client.set_terminated(run_id, status=status, end_time=end_ms)

    def write(self, run: StoredRun, name: str, text: str) -> None:
        """Write a text artifact, whole or not at all; leave one alone that is already the same."""
        folder = _local_folder(run.artifact_uri)
        if folder is None:
            self._client.log_text(run.run_id, text, name)
        elif _read(folder / name) != text:
            write_text(folder / name, text)

    def read(self, run: StoredRun, name: str) -> str | None:
        """A text artifact, or None where there is none."""
        from mlflow.exceptions import MlflowException

        folder = _local_folder(run.artifact_uri)
        if folder is not None:
            return _read(folder / name)
        with tempfile.TemporaryDirectory() as place:
            try:
                return _read(Path(self._client.download_artifacts(run.run_id, name, place)))
            except (MlflowException, OSError):
                return None


def _dataset(identity: RunIdentity) -> Any:
    """The corpus as MLflow's dataset entity. Built by hand: mlflow.data would read the data to hash it."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(
        name=identity.source[:500],
        digest=identity.data_digest[:36],  # MLflow's limit; the whole digest is a tag
        source_type="local",
        source=f'{{"uri": "data/raw", "fallback": {str(identity.fallback).lower()}}}',
    )
    return DatasetInput(dataset, tags=[InputTag("mlflow.data.context", "training")])


def _stored(run: Run) -> StoredRun:
    return StoredRun(
        run_id=run.info.run_id,
        experiment_id=str(run.info.experiment_id),
        status=run.info.status,
        deleted=run.info.lifecycle_stage == "deleted",
        start_ms=int(run.info.start_time or 0),
        tags=dict(run.data.tags),
        params=dict(run.data.params),
        metrics=dict(run.data.metrics),
        artifact_uri=run.info.artifact_uri,
        has_dataset=bool(run.inputs and run.inputs.dataset_inputs),
    )


def _local_folder(uri: str) -> Path | None:
    """The folder that an artifact URI names on this machine; None for artifacts kept by a server."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(uri)


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
