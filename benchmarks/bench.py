"""Speed of this repository against what else one would use. `make bench`, or

    python benchmarks/bench.py [train evaluation sampling tokenise imports gpu] [--quick]

Without a section: all but gpu, written to reports/bench.json. benchmarks/README.md says how to read it.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from measure import ROOT

sys.path.insert(0, str(ROOT / "src"))

import gpu
import inference
import startup
import tables
import text
import train
from modes import Effort
from shapes import SHAPES

SECTIONS = ("train", "evaluation", "sampling", "tokenise", "imports", "gpu")
SCRATCH = ROOT / ".isoflop" / "bench"
CORPUS_BYTES = 4_000_000
TEST_BYTES = 65_536
VERSIONS = ("torch", "transformers", "tokenizers", "tiktoken", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bench:
    """One run: where its data lies and how long it measures."""

    raw: Path
    tokens: Path
    cores: int
    shapes: list[str]
    quick: bool
    eager: bool
    gigabytes: float

    def train(self) -> dict[str, Any]:
        found = {}
        for shape in self.shapes:
            seconds = (0.5, 2.0)[shape == "s1"] if self.quick else (1.0, 3.0)[shape == "s1"]
            seconds = 0.1 if shape == "tiny" else seconds
            rounds = (1, 3) if self.quick else (2, (9, 7)[shape == "s1"])
            effort = Effort(
                heat_rounds=rounds[0], rounds=rounds[1], seconds=seconds, quick=self.quick, eager=self.eager
            )
            found[shape] = train.measure(shape, self.tokens, effort, self.cores)
            tables.training(shape, found[shape])
        return found

    def evaluation(self) -> dict[str, Any]:
        repeats, seconds = (2, 5.0) if self.quick else (5, 20.0)
        found = inference.measure_evaluation(self.shapes[0], self.tokens, self.cores, repeats=repeats, train_s=seconds)
        tables.evaluation(found)
        return found

    def sampling(self) -> dict[str, Any]:
        found = {
            shape: inference.measure_sampling(shape, self.tokens, self.cores, repeats=1 if self.quick else 3)
            for shape in self.shapes
        }
        tables.sampling(found)
        return found

    def tokenise(self) -> dict[str, Any]:
        gigabytes = min(self.gigabytes, 0.03) if self.quick else self.gigabytes
        found = text.measure(self.raw, self.raw.parent / "text", int(gigabytes * 1e9), self.cores, repeats=3)
        tables.tokenising(found)
        return found

    def imports(self) -> dict[str, Any]:
        found = startup.measure(repeats=1 if self.quick else 3)
        tables.imports(found)
        return found

    def gpu(self) -> dict[str, Any]:
        found = gpu.measure(self.tokens, self.cores, rounds=3, seconds=5.0)
        tables.on_gpu(found)
        return found


def prepare(source: Path | None, scratch: Path) -> tuple[Path, Path]:
    """Raw stories and their byte tokens in a scratch folder: of the embedded grammar, or of a text file."""
    from isoflop.config import TokenizerSpec
    from isoflop.corpus.download import download
    from isoflop.params import load_params
    from isoflop.tokenizing import write_tokens

    data = dataclasses.replace(
        load_params(ROOT / "params.yaml").data,
        source="grammar" if source is None else str(source.resolve()),
        max_bytes=CORPUS_BYTES,
        val_bytes=TEST_BYTES,
        test_bytes=TEST_BYTES,
    )
    raw, tokens = scratch / "raw", scratch / "byte"
    download(data, raw)
    write_tokens(raw, tokens, TokenizerSpec(kind="byte"), data)
    return raw, tokens


def about_this_run(cores: int) -> dict[str, Any]:
    from isoflop import git
    from isoflop.machine import cpu_name

    os.chdir(ROOT)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_rev": git.revision(),
        "git_dirty": git.is_dirty("src", "params.yaml", "benchmarks"),
        "cpu": cpu_name(),
        "cores": cores,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in VERSIONS},
        "load_average": os.getloadavg()[0],  # of the minute before: what else was running
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}; default: all but gpu")
    parser.add_argument("--quick", action="store_true", help="two minutes: fewer modes, shorter, not for reports/")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["cpu", "s1"])
    parser.add_argument("--eager", action="store_true", help="leave out what torch.compile compiles")
    parser.add_argument("--gigabytes", type=float, default=0.2, help="text to tokenise (default: %(default)s)")
    parser.add_argument("--scratch", type=Path, default=SCRATCH, help=argparse.SUPPRESS)
    parser.add_argument("--text", type=Path, help="a file of stories to use instead of the embedded grammar")
    parser.add_argument(
        "--output", type=Path, help="default: reports/bench.json; with --quick .isoflop/bench/quick.json"
    )
    chosen = parser.parse_args()
    if unknown := set(chosen.sections) - set(SECTIONS):
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    return chosen


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that workers are ended as well
    chosen = arguments()
    sections = [s for s in SECTIONS if s in (chosen.sections or SECTIONS[:-1])]
    if "gpu" in sections and not has_gpu():
        print("gpu: no CUDA device here, nothing was measured")
        sections.remove("gpu")
    if not sections:
        return 0
    from isoflop.engine.shares import this_machine
    from isoflop.files import read_json, write_json

    cores = this_machine().cores
    raw, tokens = prepare(chosen.text, chosen.scratch)
    bench = Bench(
        raw=raw,
        tokens=tokens,
        cores=cores,
        shapes=chosen.shapes,
        quick=chosen.quick,
        eager=chosen.eager,
        gigabytes=chosen.gigabytes,
    )
    output = chosen.output or (SCRATCH / "quick.json" if chosen.quick else ROOT / "reports" / "bench.json")
    # Sections that are not measured now keep what they had; each says when and on which revision it was measured.
    result: dict[str, Any] = read_json(output) if output.exists() else {}
    for section in sections:
        about, start = about_this_run(cores), time.perf_counter()
        measure: Callable[[], dict[str, Any]] = getattr(bench, section)
        found = measure()
        about |= {"seconds": round(time.perf_counter() - start, 1), "quick": chosen.quick}
        result |= found if section == "train" else {section: found}
        result["measured"] = result.get("measured", {}) | {section: about}
        write_json(output, result)
    for folder in ("text", "raw"):
        shutil.rmtree(chosen.scratch / folder, ignore_errors=True)
    print(f"written to {output}")
    return 0


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    raise SystemExit(main())
