"""The benchmark's own arithmetic, on a model that takes a moment. Rates are not checked, only what is made of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "benchmarks/bench.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )


def median(modes: dict[str, Any], name: str) -> float:
    value: float = modes[name]["tokens_per_s"]["median"]
    return value


@pytest.mark.slow
def test_ratios_are_this_repository_over_the_best_mode_of_the_peer(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    done = bench(
        "train",
        "--shapes",
        "tiny",
        "--quick",
        "--eager",
        "--output",
        str(output),
        "--scratch",
        str(tmp_path / "scratch"),
    )
    result = json.loads(output.read_text())
    found, single, study = result["tiny"], result["tiny"]["single"], result["tiny"]["study"]
    peers = {name for name in single if name.startswith("peer")}
    ours = {name for name in single if name.startswith("ours")} - {"ours: default"}
    assert len(peers) == 2
    assert ours == {"ours: float32 eager", "ours: bf16 eager"}
    assert not [record for record in single.values() if "error" in record]
    best_peer = max(median(single, name) for name in peers)
    best_ours = max(median(single, name) for name in ours)
    assert found["single_ratio"] == best_ours / best_peer
    one = max(best_peer, median(study, "peer, one process"))
    assert found["study_ratio"] == median(study, found["best_ours"]) / one
    # Both sides train the same thing: the same model, with the same threads.
    assert len({record["parameters"] for record in single.values()}) == 1
    assert len({record["threads"] for record in single.values()}) == 1
    assert {record["threads"] for name, record in study.items() if "one process" not in name} == {1}
    about = result["measured"]["train"]
    assert about.keys() >= {"date", "git_rev", "cpu", "cores", "versions", "seconds"}
    assert f"{found['single_ratio']:.2f}" in done.stdout


@pytest.mark.slow
def test_without_a_gpu_its_section_says_so_and_measures_nothing(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    done = bench("gpu", "--output", str(output), CUDA_VISIBLE_DEVICES="")
    assert "no CUDA device" in done.stdout
    assert not output.exists()
