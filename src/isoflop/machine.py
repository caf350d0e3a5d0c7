"""What this machine is and how fast its matmuls are: for MFU, for `precision: auto`, and for the record."""

from __future__ import annotations

import os
import platform
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from filelock import FileLock

from isoflop.cores import available_cores
from isoflop.files import read_json, write_json

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
BF16_PAYS = 1.3  # bf16 is used where its matmuls are at least this much faster: casts cost something
# FLOPs of a run from which torch.compile pays. CPU: it saves a sixth of the time, and the first run of an arm waits 10
# to 15 seconds for it, each later one 4. GPU: not measured; a minute for a third of the time.
COMPILE_PAYS = {"cpu": 2e13, "cuda": 1e15}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a run runs. `peak_flops`: FLOP/s of a large matmul in the run's precision."""

    device: torch.device
    cpu: str
    cores: int
    threads: int
    precision: str
    peak_flops: float
    compiled: bool = False  # whether training goes through torch.compile

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.precision]

    def describe(self) -> dict[str, Any]:
        """For run.json."""
        return {
            "host_cpu": self.cpu,
            "cores": self.cores,
            "threads": self.threads,
            "device": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu",
            "torch": torch.__version__,
            "python": platform.python_version(),
            "precision": self.precision,
            "peak_flops": self.peak_flops,
            "compiled": self.compiled,
        }


def this_machine(
    precision: Literal["auto", "float32", "bf16"],
    cache: Path,
    *,
    compile: Literal["auto", "always", "never"] = "never",
    flops: float = 0.0,
) -> Machine:
    """Choose device, precision, and whether a run of so many FLOPs is compiled.

    Peaks are measured once and kept in `cache`, so that `auto` stays the same.
    """
    device = default_device()
    peaks = matmul_peaks(device, cache)
    if precision == "auto":
        precision = "bf16" if peaks["bf16"] > BF16_PAYS * peaks["float32"] else "float32"
    pays = flops >= COMPILE_PAYS[device.type] and has_compiler()
    return Machine(
        device=device,
        cpu=cpu_name(),
        cores=available_cores(),
        threads=torch.get_num_threads(),
        precision=precision,
        peak_flops=peaks[precision],
        compiled=compile == "always" or (compile == "auto" and pays),
    )


def has_compiler() -> bool:
    """Whether there is a C++ compiler, which torch.compile needs on a CPU."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++"))


def default_device() -> torch.device:
    """The first GPU, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def matmul_peaks(device: torch.device, cache: Path) -> dict[str, float]:
    """FLOP/s of a large square matmul by precision, measured in under a second, from `cache` where known."""
    key = f"{device.type} {cpu_name()} threads={torch.get_num_threads()} torch={torch.__version__}"
    cache.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(cache.with_suffix(".lock")):
        known: dict[str, dict[str, float]] = read_json(cache) if cache.exists() else {}
        if key not in known:
            known[key] = {name: _matmul_flops(device, dtype) for name, dtype in DTYPES.items()}
            write_json(cache, known)
    return known[key]


def _matmul_flops(device: torch.device, dtype: torch.dtype) -> float:
    size = 8192 if device.type == "cuda" else 1024
    a = torch.ones(size, size, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(8):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        a @ a
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def cpu_name() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
