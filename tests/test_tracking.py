"""The MLflow store, checked against the database itself: real sqlite files, real processes, real signals."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isoflop import paths
from isoflop.tracking.contents import RunFiles
from isoflop.tracking.database import ensure_store, store_uri
from isoflop.tracking.identity import RunIdentity, flat_params, is_gone, process_tag
from isoflop.tracking.live import MlflowRecorder
from isoflop.tracking.queries import all_runs, find_runs
from isoflop.tracking.reading import Database, Wanted
from isoflop.tracking.store import Store
from isoflop.tracking.sync import sync

SOURCE = Path(__file__).parents[1] / "src"
STARTED = "2024-03-01T12:00:00+00:00"
STARTED_MS = 1_709_294_400_000
CONFIG = "arm: mqa\nseed: 0\nmodel:\n  n_head: 4\n  n_kv_head: 1\ntrain:\n  lr: 3e-05\n  budget: {flops: 4e12}\n"

# mlflow's models of its tables use a loader option that sqlalchemy 2.1 deprecates; nothing here can change that.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")


# ---- what a run leaves behind


def record_of(arm: str = "mqa", seed: int = 0, uid: str = "u0", **changed: Any) -> dict[str, Any]:
    record = {
        "arm": arm,
        "label": arm,
        "seed": seed,
        "study": "kv_heads",
        "run_uid": uid,
        "run_key": "k" * 16,
        "config_hash": "c" * 16,
        "data_digest": "d" * 64,
        "tokens_digest": "t" * 64,
        "status": "finished",
        "diverged_at": None,
        "steps": 30,
        "changes": {"train.lr": 0.001, "model.n_kv_head": 1},
        "corpus": {"source": "grammar", "fallback": True},
        "provenance": {"git_rev": "abc123", "git_dirty": False, "dvc_exp_name": None, "code_digest": "e" * 16},
        "timing": {"started": STARTED, "ended": "2024-03-01T12:01:40+00:00"},
    }
    return {**record, **changed}


ROWS: list[tuple[int, dict[str, float]]] = [
    (10, {"train/loss": 5.5, "tokens": 1280.0, "flops": 7.3e9, "time/elapsed_s": 1.5}),
    (20, {"train/loss": 4.25, "tokens": 2560.0, "flops": 1.46e10, "time/elapsed_s": 3.0, "val/bpb": 6.1}),
    (30, {"train/loss": 3.1, "tokens": 3840.0, "flops": 2.19e10, "time/elapsed_s": 4.5, "val/bpb": 4.7}),
]


def write_run(place: Path, *, protocol: str = "p" * 16, bpb: float | None = 2.5, **changed: Any) -> RunFiles:
    """The files of a run: its folder, evaluation and samples."""
    record = record_of(**changed)
    key = f"{record['arm']}-{record['seed']}-{record['run_uid']}"
    files = RunFiles(
        folder=place / "runs" / key, evaluation=place / "eval" / f"{key}.json", samples=place / f"{key}.md"
    )
    files.folder.mkdir(parents=True, exist_ok=True)
    files.evaluation.parent.mkdir(parents=True, exist_ok=True)
    (files.folder / "run.json").write_text(json.dumps(record))
    (files.folder / "config.yaml").write_text(CONFIG)
    history = [
        f"{step},{m['tokens']!r},{m['flops']!r},{m['train/loss']!r},{m.get('val/bpb', '')}\n" for step, m in ROWS
    ]
    (files.folder / "history.csv").write_text("step,tokens,flops,train/loss,val/bpb\n" + "".join(history))
    timing = [f"{step},{m['time/elapsed_s']}\n" for step, m in ROWS]
    (files.folder / "timing.csv").write_text("step,time/elapsed_s\n" + "".join(timing))
    evaluation = {"run_uid": record["run_uid"], "protocol_hash": protocol, "bpb": bpb, "floor_bpb": 1.25}
    files.evaluation.write_text(json.dumps(evaluation))
    files.samples.write_text("Once upon a time …\r\n")
    return files


# ---- reading the database without mlflow


def query(root: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(root / "mlflow.db", timeout=10)) as connection:
        return connection.execute(sql).fetchall()


def points(root: Path) -> list[tuple[str, int, float]]:
    return sorted(query(root, "select key, step, value from metrics"))


def tags(root: Path) -> dict[str, str]:
    return dict(query(root, "select key, value from tags"))


def everything(root: Path) -> dict[str, list[Any]]:
    """All rows of the tables that this package writes to."""
    tables = ("runs", "tags", "params", "metrics", "latest_metrics", "datasets", "inputs")
    return {table: sorted(query(root, f"select * from {table}"), key=repr) for table in tables}


def artifacts(root: Path) -> dict[str, bytes]:
    place = root / "mlartifacts" / "kv_heads"
    return {
        str(path.relative_to(place)).partition("/artifacts/")[2]: path.read_bytes()
        for path in place.rglob("*")
        if path.is_file()
    }


EXPECTED_POINTS = sorted((key, step, value) for step, row in ROWS for key, value in row.items())


# ---- processes


PREAMBLE = """
import json, os, sys, time
from pathlib import Path
from isoflop.tracking.identity import RunIdentity
from isoflop.tracking.live import MlflowRecorder
root = Path(sys.argv[1])
def recorder(record, wait_s=60.0):
    return MlflowRecorder(root, RunIdentity.of(record), "a: 1", started=time.time(), wait_s=wait_s)
"""


def start(cwd: Path, code: str, *args: str, **environment: str) -> subprocess.Popen[str]:
    """Another Python process that runs `code` in `cwd` with this checkout's isoflop."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "MLFLOW", "DVC"))}
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(code), *args],
        cwd=cwd,
        env={**ours, "PYTHONPATH": str(SOURCE), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out, err


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One freshly made database, to be copied: making one takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        root = tmp_path_factory.mktemp("store")
        ensure_store(root)
    return root / "mlflow.db"


@pytest.fixture
def root(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A main checkout with an empty store."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "main checkout"  # a space: artifact locations are URIs
    folder.mkdir()
    shutil.copy(empty_store, folder / "mlflow.db")
    return folder


def record_live(root: Path, record: dict[str, Any], status: str = "FINISHED") -> None:
    recorder = MlflowRecorder(root, RunIdentity.of(record), CONFIG, started=STARTED_MS / 1000, wait_s=60.0)
    for step, row in ROWS:
        recorder.log(step, row)
    recorder.commit()
    recorder.close(status)


# ---- where the store lies, and how it is made


def test_store_lies_in_the_main_checkout_also_from_a_temporary_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    copy = tmp_path / ".dvc" / "tmp" / "exps" / "x"
    copy.mkdir(parents=True)
    monkeypatch.chdir(copy)
    assert store_uri(paths.main_checkout()) == f"sqlite:///{copy}/mlflow.db"
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    assert store_uri(paths.main_checkout()) == f"sqlite:///{tmp_path}/mlflow.db"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("http://localhost:5000", "http://localhost:5000"),
        ("sqlite:////abs/x.db?timeout=3", "sqlite:////abs/x.db?timeout=3"),
        ("sqlite:///sub/x.db", "sqlite:////main/sub/x.db"),
    ],
)
def test_environment_names_another_store(given: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", given)
    assert store_uri(Path("/main")) == found


@pytest.mark.slow
def test_processes_that_start_at_once_make_one_store_and_stay_silent(tmp_path: Path) -> None:
    code = """
        run = recorder(json.loads(sys.argv[2]))
        run.log(1, {"train/loss": 2.0})
        run.close("FINISHED")
        assert "torch" not in sys.modules
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    """
    copies = [tmp_path / "copies" / str(seed) for seed in range(2)]
    for copy in copies:
        copy.mkdir(parents=True)
    root = tmp_path / "main"
    root.mkdir()
    processes = [
        start(copy, code, str(root), json.dumps(record_of(seed=seed, uid=f"u{seed}")))
        for seed, copy in enumerate(copies)
    ]
    assert [finish(process) for process in processes] == [("", "")] * 2
    assert query(root, "select name, status from runs order by name") == [
        (f"mqa-s{seed}", "FINISHED") for seed in range(2)
    ]
    assert query(root, "select name from experiments where name != 'Default'") == [("kv_heads",)]
    assert {path.name for path in root.iterdir()} == {"mlflow.db", "mlflow.db.lock", "mlartifacts"}
    assert all(not any(copy.iterdir()) for copy in copies), "mlflow left something in the working directory"


@pytest.mark.slow
def test_store_survives_a_creator_killed_halfway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    code = "from isoflop.tracking.database import ensure_store; ensure_store(root)"
    creator = start(tmp_path, code, str(tmp_path))
    unfinished = tmp_path / "mlflow.db.new"
    wait_for(lambda: unfinished.exists() and unfinished.stat().st_size > 50_000, "no database was begun")
    creator.kill()
    creator.communicate()
    assert not (tmp_path / "mlflow.db").exists()
    unfinished.write_bytes(b"no database at all " * 9)  # the worst that a kill may leave
    result = sync(tmp_path, [write_run(tmp_path)])
    assert (result.created, result.warning) == (1, None)
    assert not unfinished.exists()


def test_nothing_but_an_open_store_imports_mlflow(tmp_path: Path) -> None:
    code = """
        import isoflop.tracking.queries, isoflop.tracking.sync
        assert "mlflow" not in sys.modules
    """
    finish(start(tmp_path, code, "."))


# ---- live


def test_live_run_says_who_it_is_and_what_it_measured(root: Path) -> None:
    before = random.getstate(), np.random.get_state()[1].tolist()
    record_live(root, record_of())
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before, "global random state was used"

    assert query(root, "select name, status, start_time from runs") == [("mqa-s0", "FINISHED", STARTED_MS)]
    expected = {
        "arm": "mqa",
        "seed": "0",
        "study": "kv_heads",
        "run_uid": "u0",
        "run_key": "k" * 16,
        "config_hash": "c" * 16,
        "data_digest": "d" * 64,
        "git_rev": "abc123",
        "corpus": "grammar",
        "fallback": "true",
        "status": "finished",
        "changes": "model.n_kv_head=1, train.lr=0.001",
    }
    assert expected.items() <= tags(root).items()
    assert "dvc_exp_name" not in tags(root)  # there was none
    assert dict(query(root, "select key, value from params")) == {
        "arm": "mqa",
        "seed": "0",
        "model.n_head": "4",
        "model.n_kv_head": "1",
        "train.lr": "3e-05",
        "train.budget.flops": "4000000000000.0",
    }
    assert points(root) == EXPECTED_POINTS
    [(first, last)] = query(root, "select min(timestamp), max(timestamp) from metrics")
    assert abs(first / 1000 - time.time()) < 60  # when it was measured, not when the run was started
    assert last >= first
    assert query(root, "select name, digest from datasets") == [("grammar", "d" * 36)]
    assert query(root, "select name, value from input_tags") == [("mlflow.data.context", "training")]
    assert artifacts(root) == {"config.yaml": CONFIG.encode()}


@pytest.mark.parametrize(("status", "steps"), [("KILLED", {10}), ("FAILED", {10}), ("FINISHED", {10, 20})])
def test_rows_after_the_last_checkpoint_wait_for_a_good_end(root: Path, status: str, steps: set[int]) -> None:
    recorder = MlflowRecorder(root, RunIdentity.of(record_of()), CONFIG, started=0.0, wait_s=60.0)
    recorder.log(10, {"train/loss": 3.0})
    recorder.commit()
    recorder.log(20, {"train/loss": 2.0})
    recorder.close(status)
    assert {step for _, step, _ in points(root)} == steps
    assert query(root, "select status from runs") == [(status,)]
    assert tags(root)["status"] == status.lower()


def test_numbers_that_are_not_finite_leave_the_latest_values_truthful(root: Path) -> None:
    recorder = MlflowRecorder(root, RunIdentity.of(record_of()), CONFIG, started=0.0, wait_s=60.0)
    recorder.log(10, {"train/loss": 3.0, "tokens": 100.0})
    recorder.log(20, {"train/loss": float("nan"), "train/grad_norm": float("inf"), "tokens": 200.0})
    recorder.commit()
    recorder.close("FINISHED")
    assert points(root) == [("tokens", 10, 100.0), ("tokens", 20, 200.0), ("train/loss", 10, 3.0)]
    assert query(root, "select value, is_nan from latest_metrics where key = 'train/loss'") == [(3.0, 0)]
    assert query(root, "select status from runs") == [("FAILED",)]
    assert (tags(root)["status"], tags(root)["diverged_at"]) == ("diverged", "20")


def test_a_thousand_metrics_is_a_limit_of_a_batch_and_not_of_a_run(root: Path) -> None:
    recorder = MlflowRecorder(root, RunIdentity.of(record_of()), CONFIG, started=0.0, wait_s=60.0)
    for step in range(700):
        recorder.log(np.int64(step), {"train/loss": step / 2, "tokens": float(step), "flops": step * 7.0})
    recorder.close("FINISHED")
    found = points(root)
    assert len(found) == 2100
    assert [row for row in found if row[0] == "train/loss"] == [("train/loss", s, s / 2) for s in range(700)]


# ---- killed, resumed, orphaned

KILLABLE = """
    run = recorder(json.loads(sys.argv[2]))
    for step in (10, 20):
        run.log(step, {"train/loss": 1.0 * step, "tokens": 8.0 * step})
        run.commit()
    run.log(30, {"train/loss": 3.0, "tokens": 240.0})  # after the last checkpoint
    time.sleep(60)
"""


def killed_run(root: Path, tmp_path: Path) -> None:
    """A run of another process that is killed after steps 10 and 20 arrived."""
    process = start(tmp_path, KILLABLE, str(root), json.dumps(record_of()))
    wait_for(lambda: len(points(root)) == 4, "the rows did not arrive")
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert query(root, "select status from runs") == [("RUNNING",)]


@pytest.mark.slow
def test_killed_and_resumed_run_logs_no_step_twice(root: Path, tmp_path: Path) -> None:
    killed_run(root, tmp_path)
    recorder = MlflowRecorder(root, RunIdentity.of(record_of()), "a: 1", started=0.0, wait_s=60.0)
    recorder.log(25, {"train/loss": -1.0})  # not in the checkpoint: forgotten
    # The checkpoint also holds step 25, which had been committed but had not reached the store.
    recorder.resume([(s, {"train/loss": 1.0 * s, "tokens": 8.0 * s, "time/elapsed_s": s / 10}) for s in (10, 20, 25)])
    recorder.log(30, {"train/loss": 3.0, "tokens": 240.0})
    recorder.close("FINISHED")
    found = [(key, step, value) for key, step, value in points(root) if key != "time/elapsed_s"]
    assert found == sorted(
        [("train/loss", s, v) for s, v in ((10, 10.0), (20, 20.0), (25, 25.0), (30, 3.0))]
        + [("tokens", s, 8.0 * s) for s in (10, 20, 25, 30)]
    )
    assert query(root, "select timestamp from metrics where step = 25 and key = 'tokens'") == [(2500,)]
    assert query(root, "select status from runs") == [("FINISHED",)]
    assert tags(root)["status"] == "finished"


def test_a_run_stopped_twice_says_so_twice(root: Path) -> None:
    for status in ("KILLED", "KILLED", "FAILED", "FINISHED"):
        recorder = MlflowRecorder(root, RunIdentity.of(record_of()), CONFIG, started=0.0, wait_s=60.0)
        wait_for(lambda: ("RUNNING",) in query(root, "select status from runs"), "the run was not reopened")
        recorder.close(status)
        assert query(root, "select status from runs") == [(status,)]
        assert tags(root)["status"] == status.lower()


@pytest.mark.slow
def test_run_of_a_dead_process_is_closed_and_that_of_a_living_one_is_not(root: Path, tmp_path: Path) -> None:
    living = start(tmp_path, KILLABLE, str(root), json.dumps(record_of(arm="base", uid="alive")))
    try:
        wait_for(lambda: len(points(root)) == 4, "the rows did not arrive")
        dead = start(tmp_path, KILLABLE, str(root), json.dumps(record_of(uid="dead")))
        wait_for(lambda: len(points(root)) == 8, "the rows did not arrive")
        dead.kill()
        dead.communicate()
        result = sync(root, [write_run(tmp_path, uid="successor")])
        assert (result.created, result.closed, result.warning) == (1, 1, None)
        assert dict(query(root, "select value, status from runs join tags using (run_uuid) where key = 'run_uid'")) == {
            "alive": "RUNNING",
            "dead": "KILLED",
            "successor": "FINISHED",
        }
        last = "select max(timestamp) from metrics join tags using (run_uuid) where tags.value = 'dead'"
        assert query(root, "select end_time from runs where status = 'KILLED'") == query(root, last)
    finally:
        living.kill()
        living.communicate()


def test_a_process_is_gone_only_where_that_is_known() -> None:
    mine = json.loads(process_tag())
    assert not is_gone(json.dumps(mine))
    assert is_gone(json.dumps({**mine, "started": mine["started"] - 3600})), "the pid was given to another process"
    assert not is_gone(json.dumps({**mine, "host": "elsewhere", "started": 0.0}))
    assert not is_gone(None)
    assert not is_gone("not json")
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert is_gone(json.dumps({**mine, "pid": child.pid}))


# ---- backfill


def comparable(root: Path) -> dict[str, object]:
    """What must not depend on whether a run was logged live or from its files."""
    return {
        "runs": query(root, "select name, status, start_time from runs"),
        "tags": {key: value for key, value in tags(root).items() if key != "isoflop.process"},
        "params": sorted(query(root, "select key, value from params")),
        "points": points(root),
        "latest": sorted(query(root, "select key, value, step, is_nan from latest_metrics")),
        "datasets": query(root, "select name, digest, dataset_source from datasets"),
        "artifacts": artifacts(root),
    }


def test_backfill_into_an_emptied_store_equals_the_live_run(root: Path, tmp_path: Path, empty_store: Path) -> None:
    files = write_run(tmp_path)
    record_live(root, record_of())
    live = sync(root, [files])
    assert (live.completed, live.created, live.warning) == (1, 0, None)

    emptied = tmp_path / "emptied"
    emptied.mkdir()
    shutil.copy(empty_store, emptied)
    filled = sync(emptied, [files])
    assert (filled.completed, filled.created, filled.warning) == (0, 1, None)
    assert comparable(emptied) == comparable(root)

    assert points(emptied) == sorted([*EXPECTED_POINTS, ("test/bpb", 30, 2.5), ("test/excess_bpb", 30, 1.25)])
    assert query(emptied, "select timestamp from metrics where key = 'val/bpb' and step = 20") == [(STARTED_MS + 3000,)]
    assert query(emptied, "select end_time from runs") == [(STARTED_MS + 100_000,)]
    kept = {"run.json", "config.yaml", "history.csv", "timing.csv", "samples.md", f"evaluation/{'p' * 16}.json"}
    assert set(artifacts(emptied)) == kept
    assert artifacts(emptied)["samples.md"] == "Once upon a time …\r\n".encode()
    link = filled.links["u0"]
    assert query(emptied, "select experiment_id, run_uuid from runs") == [(int(link.experiment_id), link.run_id)]


def test_syncing_again_writes_nothing(root: Path, tmp_path: Path) -> None:
    runs = [write_run(tmp_path, seed=seed, uid=f"u{seed}") for seed in range(3)]
    assert sync(root, runs).created == 3
    before = everything(root)
    again = sync(root, runs)
    assert (again.created, again.completed, again.unchanged) == (0, 0, 3)
    assert everything(root) == before
    # Without the tag that cuts it short, the whole of it is done again: still nothing new.
    with closing(sqlite3.connect(root / "mlflow.db")) as connection, connection:
        connection.execute("delete from tags where key = 'isoflop.synced'")
    assert sync(root, runs).completed == 3
    assert everything(root) == before


def test_a_killed_run_is_completed_from_files(root: Path, tmp_path: Path) -> None:
    recorder = MlflowRecorder(root, RunIdentity.of(record_of()), CONFIG, started=STARTED_MS / 1000, wait_s=60.0)
    recorder.log(*ROWS[0])
    recorder.commit()
    recorder.close("KILLED")
    assert sync(root, [write_run(tmp_path)]).completed == 1
    assert [p for p in points(root) if not p[0].startswith("test/")] == EXPECTED_POINTS
    assert query(root, "select status from runs") == [("FINISHED",)]
    assert tags(root)["status"] == "finished"


def test_a_diverged_run_is_failed_with_what_is_known(root: Path, tmp_path: Path) -> None:
    files = write_run(tmp_path, bpb=None, status="diverged", diverged_at=30)
    history = (files.folder / "history.csv").read_text().replace("3.1,4.7", "nan,")
    (files.folder / "history.csv").write_text(history)
    assert sync(root, [files]).created == 1
    assert query(root, "select status from runs") == [("FAILED",)]
    assert (tags(root)["status"], tags(root)["diverged_at"]) == ("diverged", "30")
    assert query(root, "select step, value from latest_metrics where key = 'train/loss'") == [(20, 4.25)]
    assert not query(root, "select 1 from metrics where key like 'test/%' or is_nan")
    assert find_runs(root, data_digest="d" * 64, config_hash="c" * 16) == []


def test_another_protocol_adds_an_evaluation_and_keeps_the_first(root: Path, tmp_path: Path) -> None:
    sync(root, [write_run(tmp_path)])
    sync(root, [write_run(tmp_path, protocol="q" * 16, bpb=2.25)])
    assert sorted(query(root, "select value from metrics where key = 'test/bpb'")) == [(2.25,), (2.5,)]
    assert query(root, "select value from latest_metrics where key = 'test/bpb'") == [(2.25,)]
    found = find_runs(root, data_digest="d" * 64, config_hash="c" * 16)
    assert [(run.protocol_hash[0], run.bpb) for run in found] == [("p", 2.5), ("q", 2.25)]
    assert [run.evaluation["bpb"] for run in found if run.evaluation] == [2.5, 2.25]


def test_a_run_that_the_user_deleted_does_not_come_back(root: Path, tmp_path: Path) -> None:
    files = write_run(tmp_path)
    sync(root, [files])
    with closing(sqlite3.connect(root / "mlflow.db")) as connection, connection:
        connection.execute("update runs set lifecycle_stage = 'deleted'")
    result = sync(root, [files])
    assert (result.deleted, result.created, result.warning) == (1, 0, None)
    assert len(query(root, "select 1 from runs")) == 1


def test_files_that_cannot_be_read_are_named_and_the_others_are_synced(root: Path, tmp_path: Path) -> None:
    broken, whole = write_run(tmp_path, uid="broken"), write_run(tmp_path, uid="whole", seed=1)
    (broken.folder / "run.json").write_text('{"arm": "mqa"')
    result = sync(root, [broken, whole])
    assert result.created == 1
    assert result.warning is not None
    assert str(broken.folder) in result.warning


@pytest.mark.slow
def test_two_syncs_at_once_write_each_run_once(root: Path, tmp_path: Path) -> None:
    runs = [write_run(tmp_path, seed=seed, uid=f"u{seed}") for seed in range(3)]
    code = """
        from isoflop.tracking.contents import RunFiles
        from isoflop.tracking.sync import sync
        runs = [RunFiles(**{k: Path(v) for k, v in run.items()}) for run in json.loads(sys.argv[2])]
        result = sync(root, runs)
        print(result.created + result.completed, result.warning)
    """
    files = json.dumps([{k: str(v) for k, v in vars(run).items()} for run in runs])
    both = [start(tmp_path, code, str(root), files) for _ in range(2)]
    assert sorted(finish(process) for process in both) == [("0 None\n", ""), ("3 None\n", "")]
    assert len(query(root, "select 1 from runs")) == 3
    assert len(points(root)) == 3 * (len(EXPECTED_POINTS) + 2)


# ---- reading without mlflow


def stores(root: Path) -> tuple[Store, Store]:
    """One store twice: read from its file, and through mlflow as a server would be."""
    direct, through = Store(root), Store(root)
    through._database = None
    return direct, through


def various_runs(root: Path, tmp_path: Path) -> None:
    """Finished, diverged, running, deleted; of two studies; with numbers that are not finite."""
    runs = [write_run(tmp_path, seed=seed, uid=f"u{seed}") for seed in range(3)]
    runs += [write_run(tmp_path, arm="base", uid="dead", bpb=None, status="diverged", diverged_at=20)]
    runs += [write_run(tmp_path, arm="base", uid="other", study="other")]
    assert sync(root, runs).warning is None
    store = Store(root)
    store.create(store.experiment("kv_heads"), RunIdentity.of(record_of(uid="running")), 5, {"status": "running"})
    with closing(sqlite3.connect(root / "mlflow.db")) as connection, connection:
        connection.execute("update runs set lifecycle_stage = 'deleted' where name = 'mqa-s2'")
        connection.execute("update latest_metrics set is_nan = 1, value = 0 where key = 'tokens'")


def test_what_is_read_from_the_file_is_what_mlflow_reads(root: Path, tmp_path: Path) -> None:
    various_runs(root, tmp_path)
    direct, through = stores(root)
    everywhere = direct.experiments()
    assert sorted(everywhere) == sorted(through.experiments())
    assert direct.experiment("other") == through.experiment("other")
    found = []
    for experiments in (everywhere, [direct.experiment("other")]):
        for tags in ({}, {"run_uid": "u1"}, {"seed": "0", "arm": "mqa"}, {"arm": "nobody"}):
            for status in (None, "RUNNING", "FAILED"):
                for deleted in (False, True):
                    wanted = Wanted(experiment_ids=experiments, tags=tags, status=status, deleted=deleted)
                    ours, theirs = (sorted(s.search(wanted), key=lambda run: run.run_id) for s in (direct, through))
                    assert repr(ours) == repr(theirs), wanted  # repr: NaN is not equal to itself
                    found.append(len(ours))
    assert (min(found), max(found)) == (0, 6), "some questions find nothing, one finds all"
    for run in direct.search(Wanted(experiment_ids=everywhere, tags={}, deleted=True)):
        assert direct.points(run) == through.points(run)


def test_tables_of_another_version_are_left_to_mlflow(root: Path, tmp_path: Path) -> None:
    various_runs(root, tmp_path)
    database = Database(root / "mlflow.db")
    wanted = Wanted(experiment_ids=["1"], tags={})
    assert database.runs(wanted)
    with closing(sqlite3.connect(root / "mlflow.db")) as connection, connection:
        connection.execute("alter table latest_metrics rename to newest_metrics")
    assert database.runs(wanted) is None
    with pytest.raises(sqlite3.Error):
        Database(root / "nothing.db").runs(wanted)
    assert not (root / "nothing.db").exists(), "reading makes no database"


# ---- a store that fails


@pytest.mark.slow
def test_locked_store_neither_stops_nor_delays_training(root: Path, tmp_path: Path) -> None:
    code = """
        began = time.monotonic()
        run = recorder(json.loads(sys.argv[2]), wait_s=1.0)
        for step in (10, 20, 30):
            run.log(step, {"train/loss": 2.0})
            run.commit()
        trained = time.monotonic()
        run.close("FINISHED")
        print(json.dumps([trained - began, time.monotonic() - trained]))
    """
    with closing(sqlite3.connect(root / "mlflow.db")) as other:
        other.execute("begin exclusive")
        out, err = finish(start(tmp_path, code, str(root), json.dumps(record_of())))
    training_s, closing_s = json.loads(out)
    assert training_s < 3
    assert closing_s < 4
    assert err.strip().splitlines() == [
        "warning: MLflow does not take the run mqa-s0 (no answer within 1 s). Training goes on, the run's own files "
        "are complete, and `dvc repro` (collect) fills the store in from them."
    ]
    assert query(root, "select 1 from runs") == []
    assert sync(root, [write_run(tmp_path)]).created == 1
    assert [p for p in points(root) if not p[0].startswith("test/")] == EXPECTED_POINTS


@pytest.mark.parametrize("when", ["before it is opened", "after the run was created"])
def test_rows_wait_for_a_store_that_comes_back(when: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = root / "mlflow.db"
    start = lambda: MlflowRecorder(root, RunIdentity.of(record_of()), CONFIG, started=0.0, wait_s=60.0)  # noqa: E731
    recorder = None if when.startswith("before") else start()
    if recorder is not None:
        wait_for(lambda: "config.yaml" in artifacts(root), "the run was not created")
    whole = database.read_bytes()
    database.write_bytes(b"no database at all " * 100)
    recorder = recorder or start()
    recorder.log(10, {"train/loss": 2.0})
    recorder.commit()
    shown: list[str] = []
    wait_for(lambda: shown.append(capsys.readouterr().err) or "warning" in "".join(shown), "no warning")
    database.write_bytes(whole)
    recorder.log(20, {"train/loss": 1.0})
    recorder.close("FINISHED")
    assert points(root) == [("train/loss", 10, 2.0), ("train/loss", 20, 1.0)]
    assert query(root, "select status from runs") == [("FINISHED",)]
    assert "".join(shown).count("warning") == 1
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_server_holds_runs_and_artifacts(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = ["--backend-store-uri", f"sqlite:///{root}/mlflow.db", "--artifacts-destination", str(tmp_path / "kept")]
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1", *place],
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # it has workers; they end with its process group
    )
    try:
        wait_for(lambda: server.poll() is None and answers(port), "the server does not answer")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        client = tmp_path / "client"
        client.mkdir()
        record_live(client, record_of())
        first, again = (sync(client, [write_run(tmp_path)]) for _ in range(2))
        assert (first.completed, again.unchanged, again.warning) == (1, 1, None)
        [found] = find_runs(client, data_digest="d" * 64, config_hash="c" * 16)
        assert found.evaluation is not None
        assert found.evaluation["bpb"] == 2.5
        assert [row["step"] for row in found.history()] == [10, 20, 30]
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    assert points(root) == sorted([*EXPECTED_POINTS, ("test/bpb", 30, 2.5), ("test/excess_bpb", 30, 1.25)])
    assert query(root, "select status from runs") == [("FINISHED",)]
    assert not list(client.rglob("*.json")), "artifacts belong on the server"
    assert capfd.readouterr() == ("", "")


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_unreachable_server_is_said_once_and_costs_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:  # bound but not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{taken.getsockname()[1]}")
        began = time.monotonic()
        record_live(tmp_path, record_of())
        err = capfd.readouterr().err
        assert err.count("warning: MLflow does not take the run mqa-s0") == 1
        assert len(err.strip().splitlines()) == 1
        result = sync(tmp_path, [write_run(tmp_path)])
        assert result.created == 0
        assert result.warning is not None
        assert "could not be brought up to date" in result.warning
        assert find_runs(tmp_path, data_digest="d", config_hash="c") == []
        assert "earlier runs cannot be looked up" in capfd.readouterr().err
        assert time.monotonic() - began < 20
    assert not (tmp_path / "mlflow.db").exists()


# ---- earlier runs


def test_the_latest_finished_run_of_each_seed_is_found(root: Path, tmp_path: Path) -> None:
    earlier = {"started": "2024-02-01T12:00:00+00:00", "ended": "2024-04-01T12:00:00+00:00"}
    wanted = [
        write_run(tmp_path, arm="base", seed=0, uid="old", bpb=9.0, timing=earlier),
        write_run(tmp_path, arm="base", seed=0, uid="new-a", bpb=2.0),
        write_run(tmp_path, arm="base", seed=0, uid="new-b", bpb=2.125),  # same start: the greater uid
        write_run(tmp_path, arm="base", seed=1, uid="other-seed", bpb=2.5),
    ]
    other = [
        write_run(tmp_path, arm="mqa", seed=0, uid="other-arm", bpb=3.0, config_hash="m" * 16),
        write_run(tmp_path, arm="base", seed=2, uid="other-corpus", data_digest="x" * 64),
        write_run(tmp_path, arm="base", seed=3, uid="no-eval", bpb=None, status="diverged"),
        write_run(tmp_path, arm="base", seed=0, uid="other-study", bpb=2.75, study="depth", timing=earlier),
    ]
    sync(root, wanted + other)
    found = find_runs(root, data_digest="d" * 64, config_hash="c" * 16)
    assert [(run.tags["run_uid"], run.bpb) for run in found] == [("new-b", 2.125), ("other-seed", 2.5)]
    assert found[0].evaluation == json.loads(wanted[2].evaluation.read_text())
    assert found[0].record is not None
    assert found[0].record["arm"] == "base"
    assert found[0].history() == [
        {"step": step, **{key: value for key, value in row.items() if key != "time/elapsed_s"}} for step, row in ROWS
    ]
    in_study = find_runs(root, data_digest="d" * 64, config_hash="c" * 16, study="depth")
    assert [run.tags["run_uid"] for run in in_study] == ["other-study"]
    everyone = all_runs(root, data_digest="d" * 64, protocol_hash="p" * 16)
    # Of every configuration, study and seed, the latest first; a diverged run is one of them, without a result.
    uids = ["other-seed", "other-arm", "no-eval", "new-b", "new-a", "other-study", "old"]
    assert [run.tags["run_uid"] for run in everyone] == uids
    assert [run.bpb for run in everyone if run.tags["run_uid"] in ("no-eval", "old")] == [None, 9.0]
    assert (everyone[0].config_hash, everyone[0].seed, everyone[0].label) == ("c" * 16, 1, "base")
    assert everyone[0].planned_flops is None, "its configuration has no predictions"
    assert all_runs(root, data_digest="d" * 64, protocol_hash="q" * 16) == []


def test_an_evaluation_that_is_gone_gives_way_to_the_next_run(root: Path, tmp_path: Path) -> None:
    earlier = {"started": "2024-02-01T12:00:00+00:00", "ended": "2024-02-01T12:00:00+00:00"}
    sync(root, [write_run(tmp_path, uid="old", timing=earlier), write_run(tmp_path, uid="new")])
    [(run_id,)] = query(root, "select run_uuid from tags where value = 'new'")
    (root / "mlartifacts/kv_heads" / run_id / f"artifacts/evaluation/{'p' * 16}.json").write_text('{"bpb"')
    found = find_runs(root, data_digest="d" * 64, config_hash="c" * 16)
    assert [run.tags["run_uid"] for run in found] == ["old"]


# ---- params


def test_params_are_dotted_and_read_as_yaml_1_2() -> None:
    text = "a: {b: {c: 1e-5, d: [1, x]}, e: off, f: null, g: true, h: {}}\nlong: " + "y" * 13_000
    flat = flat_params(text)
    assert flat.pop("long") == "y" * 6000
    assert flat.pop("long.part1") + flat.pop("long.part2") == "y" * 7000
    assert flat == {"a.b.c": "1e-05", "a.b.d": '[1, "x"]', "a.e": "off", "a.f": "null", "a.g": "true", "a.h": "{}"}


def test_more_params_than_a_batch_holds(root: Path, tmp_path: Path) -> None:
    files = write_run(tmp_path)
    (files.folder / "config.yaml").write_text("".join(f"k{i}: {i}\n" for i in range(250)))
    assert sync(root, [files]).warning is None
    assert len(query(root, "select 1 from params")) == 250
