"""Checkpoints: one process per run, whole files only, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import ROOT
from isoflop.checkpoint import ORPHANED_S, Checkpoints


def begun(root: Path, key: str = "key", *, every_s: float = 60.0, study: str = "s") -> Checkpoints:
    return Checkpoints(root, key, every_s=every_s, study=study)


def age(root: Path, seconds: float) -> None:
    """Make everything below `root` look as if it was last written so long ago."""
    then = time.time() - seconds
    for path in (*root.rglob("*"), root):
        os.utime(path, (then, then))


def names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_a_second_process_with_the_same_run_keeps_its_own_checkpoints(tmp_path: Path) -> None:
    first = begun(tmp_path)
    second = begun(tmp_path)
    assert first.folder != second.folder
    assert first.run_uid != second.run_uid
    first.release()
    assert begun(tmp_path).run_uid == first.run_uid, "the run goes on under its uid"


def test_a_checkpoint_that_does_not_fit_on_the_disk_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = begun(tmp_path)
    checkpoints.save(1, {"x": torch.ones(3)})

    def full(path: Path, content: Any) -> int:
        with path.open("wb") as handle:
            handle.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left"):
            checkpoints.save(2, {"x": torch.zeros(3)})
    state = checkpoints.load(torch.device("cpu"))
    assert state is not None
    assert torch.equal(state["x"], torch.ones(3))
    assert {p.suffix for p in checkpoints.folder.iterdir()} == {".pt", ".json"}


def test_a_finished_run_leaves_nothing(tmp_path: Path) -> None:
    first, second = begun(tmp_path), begun(tmp_path)
    first.save(1, {"x": torch.ones(3)})
    first.remove()
    assert names(tmp_path) == {second.folder.name, f"{second.folder.name}.lock"}
    second.remove()
    assert names(tmp_path) == set()


def test_a_run_that_was_begun_for_one_study_stays_its_own(tmp_path: Path) -> None:
    first = begun(tmp_path, study="one")
    first.release()
    again = begun(tmp_path, study="another")
    assert (again.run_uid, again.started, again.study) == (first.run_uid, first.started, "one")


def test_a_checkpoint_is_due_when_its_time_has_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    checkpoints = begun(tmp_path, every_s=20.0)
    now[0] = 120.0
    assert not checkpoints.due()
    now[0] = 121.0
    assert checkpoints.due()
    checkpoints.save(1, {})
    assert not checkpoints.due()


def test_the_next_training_removes_what_nobody_took_up_for_a_week(tmp_path: Path) -> None:
    for key in ("old", "recent"):
        left = begun(tmp_path, key)
        left.save(1, {"x": torch.ones(3)})
        left.release()
    (tmp_path / "finished.lock").touch()  # a lock without its run
    age(tmp_path, ORPHANED_S + 60)
    os.utime(next((tmp_path / "recent").glob("*.pt")))
    new = begun(tmp_path, "new")
    assert names(tmp_path) == {"recent", "recent.lock", "new", "new.lock"}
    new.remove()


def test_an_old_run_that_is_taken_up_again_is_there(tmp_path: Path) -> None:
    left = begun(tmp_path)
    left.save(1, {"x": torch.ones(3)})
    left.release()
    age(tmp_path, ORPHANED_S + 60)
    again = begun(tmp_path)
    assert again.run_uid == left.run_uid
    assert again.load(torch.device("cpu")) is not None


HOLD = """
import sys, time
from pathlib import Path
from isoflop.checkpoint import Checkpoints
held = [Checkpoints(Path(sys.argv[1]), "living", every_s=1e9, study="s") for _ in range(2)]
print("ready", flush=True)
time.sleep(600)
"""


def test_what_a_living_process_holds_is_never_removed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
        held = names(tmp_path)
        assert len(held) == 4, "two runs with their locks"
        age(tmp_path, ORPHANED_S + 60)
        begun(tmp_path, "new").remove()
        assert names(tmp_path) == held
    finally:
        process.kill()
        process.communicate()
    begun(tmp_path, "new").remove()
    assert names(tmp_path) == set(), "the process is gone, and the week has passed"
