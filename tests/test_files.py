"""Atomic files: whole or absent."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from isoflop.files import atomic_path, digest_of, fresh_folder, write_json, write_text


def test_a_full_disk_leaves_no_half_file_and_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def write_half() -> None:
        with atomic_path(tmp_path / "deep" / "b") as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert list((tmp_path / "deep").iterdir()) == []


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_json_refuses_what_json_has_no_word_for(value: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"bpb": value})
    assert list(tmp_path.iterdir()) == []


def test_digests_ignore_the_order_of_keys_and_nothing_else() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 1.5}) != digest_of({"a": "1"})
    assert len(digest_of([])) == 16


def test_a_fresh_folder_is_empty(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "stale").touch()
    assert list(fresh_folder(tmp_path / "run").iterdir()) == []
