"""Token files on disk, the reading side: what they are (`meta.json`) and their ids (memory maps).

A split is one flat file of token ids: eos, story, eos, story, ..., story, eos. Every id but the first is
predicted, so `tokens`, the number of predicted ids, is the length minus one, and each story is begun from an
end-of-story token and ends with one.

This module is imported by stages that only need numbers: it loads numpy and nothing heavier.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isoflop import files
from isoflop.errors import IsoflopError

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, kw_only=True)
class SplitMeta:
    """One split: `tokens` counts predicted ids, `bytes` those of the stories without separators.

    `floor_bits` is the exact -log2 P of the split's stories where the corpus knows it (bits, not per byte).
    """

    stories: int
    tokens: int
    bytes: int
    sha256: str
    floor_bits: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenMeta:
    """`meta.json`: everything that a plan, a training run or an evaluation needs to know of the tokens."""

    name: str
    kind: str
    vocab_size: int
    eos: int
    dtype: str
    token_bytes: npt.NDArray[np.int32]  # (V,), bytes that each id stands for; 0 for eos
    tokens_digest: str
    data_digest: str
    splits: Mapping[str, SplitMeta]
    duplicates: Mapping[str, int]
    skipped: Mapping[str, int]
    source: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenSet:
    """Verified token files, opened for reading."""

    folder: Path
    meta: TokenMeta

    def split(self, name: str) -> np.memmap[Any, np.dtype[Any]]:
        """The ids of `train`, `val` or `test`: 1-D, read-only, `meta.splits[name].tokens + 1` long."""
        return np.memmap(bin_path(self.folder, name), dtype=self.meta.dtype, mode="r")


def bin_path(folder: Path, split: str) -> Path:
    """File of one split's ids."""
    assert split in SPLITS, split
    return folder / f"{split}.bin"


def dtype_of(vocab_size: int) -> str:
    """The smallest unsigned type that holds every id: numpy wraps what does not fit without a word."""
    if vocab_size <= 2**8:
        return "uint8"
    return "uint16" if vocab_size <= 2**16 else "uint32"


def digest_of_tokens(kind: str, vocab_size: int, sha256: Mapping[str, str]) -> str:
    """Identity of a set of token files: tokenizer kind, vocabulary size and the hash of each split's file."""
    return files.digest_of([kind, vocab_size, [sha256[split] for split in SPLITS]], length=64)


def rebuild_command(name: str) -> str:
    """What the user types to write the tokens of tokenizer `name` again; without -s, DVC would fetch the corpus too."""
    return f"dvc repro -s -f tokenize@{name}"


def write_meta(path: Path, meta: TokenMeta) -> None:
    """Write `meta.json` atomically, the long list of byte lengths on one line."""
    value = vars(meta) | {
        "token_bytes": "HERE",
        "splits": {name: vars(split) for name, split in meta.splits.items()},
    }
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    lengths = json.dumps(meta.token_bytes.tolist(), separators=(",", ":"))
    files.write_text(path, text.replace('"token_bytes": "HERE"', f'"token_bytes": {lengths}', 1) + "\n")


def read_meta(folder: Path) -> TokenMeta:
    """Read `meta.json` of a token folder without opening the token files.

    Raises IsoflopError where it is missing or not what this version writes.
    """
    path = folder / "meta.json"
    if not path.is_file():
        raise IsoflopError(f"{path} is missing: run `dvc repro tokenize@{folder.name}`")
    try:
        value = files.read_json(path)
        value["splits"] = {name: SplitMeta(**value["splits"][name]) for name in SPLITS}
        value["token_bytes"] = np.array(value["token_bytes"], dtype=np.int32)
        meta = TokenMeta(**value)
    except (ValueError, TypeError, KeyError) as error:
        raise IsoflopError(
            f"{path} is damaged or of another version ({error}): run `{rebuild_command(folder.name)}`"
        ) from error
    assert len(meta.token_bytes) == meta.vocab_size
    return meta


def open_tokens(folder: Path, tokens_digest: str | None = None) -> TokenSet:
    """Open a token folder after checking the size and SHA-256 of each file.

    `tokens_digest` is the digest that the caller's plan was made for; None skips that comparison.
    Raises IsoflopError naming file, expected and found value and the way out.
    """
    meta = read_meta(folder)
    if tokens_digest is not None and meta.tokens_digest != tokens_digest:
        raise IsoflopError(
            f"{folder / 'meta.json'}: the plan expects tokens_digest {tokens_digest}, found "
            f"{meta.tokens_digest}: the tokens changed after the plan was made; run `dvc repro` to plan again"
        )
    own = digest_of_tokens(meta.kind, meta.vocab_size, {s: meta.splits[s].sha256 for s in SPLITS})
    if meta.tokens_digest != own:
        raise _changed(folder / "meta.json", f"tokens_digest {own}", meta.tokens_digest, folder.name)
    itemsize = np.dtype(meta.dtype).itemsize
    for split in SPLITS:
        path, size = bin_path(folder, split), (meta.splits[split].tokens + 1) * itemsize
        if not path.is_file():
            raise _changed(path, f"{size:,} bytes", "no file", folder.name)
        if path.stat().st_size != size:
            raise _changed(path, f"{size:,} bytes", f"{path.stat().st_size:,}", folder.name)
    with ThreadPoolExecutor(len(SPLITS)) as pool:  # hashlib lets go of the GIL
        found = list(pool.map(lambda split: files.sha256_of(bin_path(folder, split)), SPLITS))
    for split, sha256 in zip(SPLITS, found, strict=True):
        if sha256 != meta.splits[split].sha256:
            raise _changed(bin_path(folder, split), f"sha256 {meta.splits[split].sha256}", sha256, folder.name)
    return TokenSet(folder=folder, meta=meta)


def _changed(path: Path, expected: str, found: str, name: str) -> IsoflopError:
    return IsoflopError(
        f"{path} is not the file that `tokenize` wrote: expected {expected}, found {found}; "
        f"run `{rebuild_command(name)}`"
    )
