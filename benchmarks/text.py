"""Tokenising a file of a chosen size: rate against the libraries' own batch calls, peak memory.

    python benchmarks/text.py '{"kind": "gpt2", "raw": "...", "scratch": "...", "threads": 2, "library": true}'

Each measurement is a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from measure import HERE, ROOT

BPE_SIZE = 2048  # the grammar's words do not fill 4,096
PEER_BYTES = 40_000_000  # the libraries want all their text in memory at once
KINDS = ("byte", "gpt2", "bpe")


def measure(raw: Path, scratch: Path, size: int, threads: int, repeats: int) -> dict[str, Any]:
    """All tokenizers on `size` bytes, and the byte tokenizer's peak memory on a tenth of it."""
    grown = grow(raw, scratch / "grown", size)
    small = grow(raw, scratch / "small", size // 10)
    found: dict[str, Any] = {"bytes": size, "threads": threads}
    for kind in KINDS:
        runs = [_process(kind, grown, scratch, threads, library=True) for _ in range(repeats if kind == "byte" else 1)]
        best = max(runs, key=lambda run: float(run["mb_per_s"]))
        less = _process(kind, small, scratch, threads, library=False)
        found[kind] = best | {
            "peak_mb_of_a_tenth": less["peak_mb"],
            # What 1 GB more of text costs in memory.
            "growth_mb_per_gb": (best["peak_mb"] - less["peak_mb"]) / (0.9 * size / 1e9),
        }
    for name in ("grown", "small"):
        for path in (scratch / name).iterdir():
            path.unlink()
    return found


def grow(raw: Path, folder: Path, size: int) -> Path:
    """A raw folder whose train.txt repeats the stories of `raw` until it has `size` bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    text = (raw / "train.txt").read_bytes()
    with (folder / "train.txt").open("wb") as handle:
        for _ in range(max(1, round(size / len(text)))):
            handle.write(text)
    for name in ("valid.txt", "source.json"):
        (folder / name).write_bytes((raw / name).read_bytes())
    return folder


def _process(kind: str, raw: Path, scratch: Path, threads: int, *, library: bool) -> dict[str, Any]:
    spec = {"kind": kind, "raw": str(raw), "scratch": str(scratch), "threads": threads, "library": library}
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "RAYON_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, str(HERE / "text.py"), json.dumps(spec)], stdout=subprocess.PIPE, env=environment, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# --- in the process


def encode(kind: str, raw: Path, scratch: Path, threads: int, *, library: bool) -> dict[str, Any]:
    """Encode all of `raw` as the stage `tokenize` does, reading, hashing and writing included; then the library."""
    import dataclasses

    from isoflop.config import TokenizerSpec
    from isoflop.params import load_params
    from isoflop.splits import Duplicates, batches
    from isoflop.tokenizing import SplitWriter, build_tokenizer, encode_into
    from isoflop.tokens import SPLITS

    data = dataclasses.replace(load_params(ROOT / "params.yaml").data, val_bytes=2**16, test_bytes=2**16)
    spec = TokenizerSpec(kind=kind, vocab_size=BPE_SIZE if kind == "bpe" else None)  # type: ignore[arg-type]
    start = time.perf_counter()
    tokenizer = build_tokenizer(spec, kind, raw / "train.txt")
    build_s = time.perf_counter() - start
    size = sum((raw / name).stat().st_size for name in ("train.txt", "valid.txt"))
    start = time.perf_counter()
    with ExitStack() as stack:
        writers = {s: stack.enter_context(SplitWriter(scratch, s, tokenizer)) for s in SPLITS}
        encode_into(writers, batches(raw, data, Duplicates(drop=True)), tokenizer, raw, threads)
    seconds = time.perf_counter() - start
    found = {
        "mb_per_s": size / seconds / 1e6,
        "build_s": build_s,
        "peak_mb": peak_mb(),
    }
    return found | (peer(kind, tokenizer, raw, threads) if library else {})


def peak_mb() -> float:
    """Of this program. `ru_maxrss` would begin with the peak of the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(float(line.split()[1]) / 1024 for line in status.read_text().splitlines() if "VmHWM" in line)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 1024)


def peer(kind: str, tokenizer: Any, raw: Path, threads: int) -> dict[str, float]:
    """MB/s of the library's own call on stories in memory: no reading, no hashing, nothing written."""
    if kind == "byte":
        return {}
    from isoflop.splits import read_stories

    stories = [s.decode() for part in islice(read_stories(raw / "train.txt"), PEER_BYTES // 2**18) for s in part]
    size = sum(len(story.encode()) for story in stories)
    call: Callable[[list[str]], Any]
    if kind == "gpt2":
        encoding = tokenizer.encoding
        call = lambda texts: encoding.encode_ordinary_batch(texts, num_threads=threads)  # noqa: E731
    else:
        call = library_bpe(raw).encode_batch_fast
    best = float("inf")
    for _ in range(2):
        start = time.perf_counter()
        call(stories)
        best = min(best, time.perf_counter() - start)
    return {"peer_mb_per_s": size / best / 1e6}


def library_bpe(raw: Path) -> Any:
    """The same BPE as the `tokenizers` library runs it."""
    from isoflop.splits import read_stories
    from isoflop.tokenizer import train_bpe

    return train_bpe(read_stories(raw / "train.txt"), BPE_SIZE - 1)


def main() -> None:
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spec = json.loads(sys.argv[1])
    raw, scratch = Path(spec.pop("raw")), Path(spec.pop("scratch"))
    print(json.dumps(encode(raw=raw, scratch=scratch, **spec)), file=channel, flush=True)


if __name__ == "__main__":
    main()
