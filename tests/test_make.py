"""What `make` does besides calling Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from isoflop.study import listing

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """A downloaded zip whose .venv stands already: this interpreter's."""
    for name in ("Makefile", "params.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("src", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "requirements.txt").touch()
    (tmp_path / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        if entry.name != "installed":
            (tmp_path / ".venv" / entry.name).symlink_to(entry)
    (tmp_path / ".venv" / "installed").touch()
    return tmp_path


def make(folder: Path, *arguments: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "GIT_", "DVC_"))}
    environment["GIT_CEILING_DIRECTORIES"] = str(folder.parent)
    done = subprocess.run(
        ["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def local_config(folder: Path) -> str:
    path = folder / ".dvc" / "config.local"
    return path.read_text() if path.exists() else ""


def test_dvc_works_without_git_and_uses_it_when_it_comes(unpacked: Path) -> None:
    assert "no git repository" in make(unpacked, "setup")
    assert "no_scm = true" in local_config(unpacked)
    assert make(unpacked, "setup") == "", "said once"
    with (unpacked / ".dvc" / "config.local").open("a") as handle:
        handle.write("[cache]\n    type = copy\n")
    subprocess.run(["git", "init", "-q"], cwd=unpacked, check=True)
    make(unpacked, "setup")
    assert "no_scm" not in local_config(unpacked)
    assert "type = copy" in local_config(unpacked), "the user's own settings stay"


def test_without_a_name_make_study_lists_what_there_is(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (unpacked / "params.yaml").read_text()
    monkeypatch.chdir(ROOT)
    assert listing() in make(unpacked, "study")
    assert (unpacked / "params.yaml").read_text() == before
