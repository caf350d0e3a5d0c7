"""How many runs at a time, and what each gets of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from isoflop.cores import available_cores

RUN_BYTES = 1_500_000_000  # memory to reckon with per run on a CPU; one of the default study takes 0.6e9
RUNS_PER_GPU = 2  # small models leave gaps between kernels, which a second run fills


def environment() -> dict[str, str]:
    """What every DVC command here is started with."""
    return {
        **os.environ,
        # The stages' command is `python`: the one that runs this.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONUNBUFFERED": "1",
        # `git status` in one run must not lock the index while DVC stages dvc.lock for another.
        "GIT_OPTIONAL_LOCKS": "0",
    }


@dataclass(frozen=True, kw_only=True)
class Share:
    """Threads and GPU of one run."""

    threads: int
    gpu: str | None = None

    def environment(self) -> dict[str, str]:
        own = {"OMP_NUM_THREADS": str(self.threads)}
        return environment() | own | ({} if self.gpu is None else {"CUDA_VISIBLE_DEVICES": self.gpu})


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What this machine has."""

    cores: int
    free_bytes: float
    gpus: tuple[str, ...]

    def jobs_that_pay(self, chains: int) -> int:
        """Runs at a time: one per core, or two per GPU, as far as memory reaches."""
        fit = len(self.gpus) * RUNS_PER_GPU if self.gpus else int(self.free_bytes // RUN_BYTES)
        return max(1, min(chains, self.cores, fit))

    def divide(self, jobs: int) -> list[Share]:
        """The machine in `jobs` equal shares; GPUs in turn."""
        threads, gpus = max(1, self.cores // jobs), self.gpus
        return [Share(threads=threads, gpu=gpus[i % len(gpus)] if gpus else None) for i in range(jobs)]


def this_machine() -> Resources:
    """Cores that this process may use, free memory, visible GPUs."""
    return Resources(cores=available_cores(), free_bytes=psutil.virtual_memory().available, gpus=tuple(visible_gpus()))


def visible_gpus() -> Sequence[str]:
    """Names by which CUDA_VISIBLE_DEVICES chooses each GPU, without waiting for torch to be imported."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []
