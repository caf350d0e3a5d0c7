"""A small data/raw/ as `download` writes it, and the `data` section that goes with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from isoflop.config import DataConfig

END = b"\n<|endoftext|>\n"
TRAIN = [b"ab", b"c", "é\r\nx".encode(), b"c"]
VALID = [b"de", b"c", b"fgh", b"de", b"ij", b"kl"]
SOURCE = {"source": "grammar", "fallback": True, "skipped": {"invalid_utf8": 2, "empty": 0, "inline_separators": 1}}


def make_raw(folder: Path, train: list[bytes], valid: list[bytes], bits: list[float] | None = None) -> Path:
    """Write the stories into `folder` in the official layout."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.txt").write_bytes(b"".join(story + END for story in train))
    (folder / "valid.txt").write_bytes(b"".join(story + END for story in valid))
    (folder / "source.json").write_text(json.dumps(SOURCE), encoding="utf-8")
    if bits is not None:
        np.save(folder / "valid_bits.npy", np.array(bits))
    return folder


def data_config(val_bytes: int = 6, test_bytes: int = 4, drop: bool = False) -> DataConfig:
    """The `data` section with these sizes; `VALID` then gives val de c fgh and test de ij."""
    return DataConfig(
        source="grammar",
        offline="fail",
        timeout_s=1.0,
        max_bytes=1000,
        val_bytes=val_bytes,
        test_bytes=test_bytes,
        drop_duplicates=drop,
        grammar_seed=0,
    )
