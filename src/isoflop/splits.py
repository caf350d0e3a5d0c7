"""Which story belongs to which split: the raw files read in batches, divided, duplicates found.

The splits follow from the data alone: `train.txt` is train, `valid.txt` gives whole stories to val until
`data.val_bytes` are reached, then to test until `data.test_bytes` are reached. Dropping duplicates does not
move the border between the two.

What grows with the corpus is 8 bytes a story.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from isoflop.config import DataConfig
from isoflop.corpus.stories import END_OF_STORY, SEPARATOR
from isoflop.errors import IsoflopError
from isoflop.tokens import SPLITS

BATCH = 2**18  # bytes: a batch and its ids stay in a core's cache

Mask = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]  # a 64-bit hash for each story


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some stories of one split, without those that were dropped."""

    split: str
    stories: list[bytes]
    n_bytes: int  # of the stories
    digests: bytes  # of the stories, 32 bytes each
    floor_bits: float  # -log2 P of the stories where the corpus knows it, else 0
    read: int  # bytes of the raw file behind this batch, dropped stories and separators included


def read_stories(path: Path) -> Iterator[list[bytes]]:
    """Batches of stories of a file that `download` wrote, about `BATCH` bytes each.

    Raises IsoflopError where the file has another layout: what `download` did not clean is not guessed at.
    """
    rest = b""
    with path.open("rb") as handle:
        while block := handle.read(max(BATCH, len(rest))):  # grows with a long story: no quadratic copying
            block = rest + block
            *stories, rest = block.split(END_OF_STORY)
            marks = block.count(SEPARATOR) - rest.count(SEPARATOR)
            if marks != len(stories) or not all(stories) or not all(map(_is_utf8, stories)):
                raise _foreign(path)
            if stories:
                yield stories
    if rest:
        raise _foreign(path)


def divide(batches: Iterable[list[bytes]], sizes: Mapping[str, int]) -> Iterator[tuple[str | None, list[bytes]]]:
    """Give stories to each name until its size in bytes is reached, in order; what is left goes to None.

    Stories stay whole, so the last one of a name may pass its size.
    """
    names: deque[str | None] = deque([*sizes, None])
    missing = dict(sizes)
    for stories in batches:
        start = 0
        for i, story in enumerate(stories):
            if (name := names[0]) is None:
                break
            missing[name] -= len(story)
            if missing[name] <= 0:
                yield name, stories[start : i + 1]
                start = i + 1
                names.popleft()
        if start < len(stories):
            yield names[0], stories[start:]


class Duplicates:
    """Counts exact copies of stories, and says which stories of val and test to keep.

    Stories are compared by 64 bits of their BLAKE2b hash: that two different ones among three million agree
    has a probability below 1e-6.
    """

    def __init__(self, *, drop: bool) -> None:
        self.drop = drop
        self.counts: Counter[str] = Counter()
        self.read: Counter[str] = Counter()  # stories of each split, dropped ones included
        self._keys: dict[str, list[Keys]] = {split: [] for split in SPLITS}
        self._unique: dict[str, Keys] = {}

    def keep(self, split: str, keys: Keys) -> Mask:
        """True for the stories that stay in `split`. Splits come whole and in the order of `SPLITS`."""
        self._keys[split].append(keys)
        self.read[split] += len(keys)
        copies = np.zeros(len(keys), dtype=np.bool_)
        for earlier in SPLITS[: SPLITS.index(split)]:
            found = self._occur_in(earlier, keys)
            self.counts[f"{split}_in_{earlier}"] += int(found.sum())
            copies |= found
        if not self.drop:
            return np.ones(len(keys), dtype=np.bool_)
        self.counts[f"dropped_{split}"] += int(copies.sum())
        return ~copies

    def summary(self) -> dict[str, int]:
        """`duplicates` of meta.json, once every story was seen."""
        names = ("val_in_train", "test_in_train", "test_in_val", "dropped_val", "dropped_test")
        within = self.read["train"] - len(self._distinct("train"))
        return {"within_train": within} | {name: self.counts[name] for name in names}

    def _distinct(self, split: str) -> Keys:
        if split not in self._unique:
            self._unique[split] = np.unique(np.concatenate([np.empty(0, np.uint64), *self._keys.pop(split)]))
        return self._unique[split]

    def _occur_in(self, split: str, keys: Keys) -> Mask:
        known = self._distinct(split)
        if not len(known):
            return np.zeros(len(keys), dtype=np.bool_)
        place = np.searchsorted(known, keys).clip(max=len(known) - 1)
        same: Mask = known[place] == keys
        return same


def batches(raw: Path, data: DataConfig, duplicates: Duplicates) -> Iterator[Batch]:
    """Every split in turn, streamed from the folder that `download` wrote."""
    bits = _floor_bits(raw)
    train = (("train", stories) for stories in read_stories(raw / "train.txt"))
    valid = divide(read_stories(raw / "valid.txt"), {"val": data.val_bytes, "test": data.test_bytes})
    first = 0  # place of the batch in valid.txt, in stories
    for split, stories in chain(train, valid):
        if split is None:
            return
        digests = _digests(stories)
        keep = duplicates.keep(split, digests[:, :8].copy().view("<u8").ravel())
        kept = stories if keep.all() else [story for story, stays in zip(stories, keep, strict=True) if stays]
        floor = 0.0
        if bits is not None and split != "train":
            floor = float(bits[first : first + len(stories)][keep].sum())
            first += len(stories)
        yield Batch(
            split=split,
            stories=kept,
            n_bytes=sum(map(len, kept)),
            digests=digests[keep].tobytes(),
            floor_bits=floor,
            read=sum(map(len, stories)) + len(stories) * len(END_OF_STORY),
        )


def _floor_bits(raw: Path) -> npt.NDArray[np.float64] | None:
    """-log2 P of each story of valid.txt, (stories,), where the corpus knows it."""
    path = raw / "valid_bits.npy"
    if not path.is_file():
        return None
    bits: npt.NDArray[np.float64] = np.load(path)
    stories = sum(map(len, read_stories(raw / "valid.txt")))
    if len(bits) != stories:
        raise IsoflopError(
            f"{path} holds {len(bits):,} numbers for the {stories:,} stories of valid.txt: run `dvc repro -f download`"
        )
    return bits


def _digests(stories: list[bytes]) -> npt.NDArray[np.uint8]:
    """BLAKE2b of each story, (n, 32): the same whatever the batches."""
    joined = b"".join([hashlib.blake2b(story, digest_size=32).digest() for story in stories])
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, 32)


def _is_utf8(story: bytes) -> bool:
    try:
        return story.isascii() or bool(story.decode())
    except UnicodeDecodeError:
        return False


def _foreign(path: Path) -> IsoflopError:
    return IsoflopError(
        f"{path} is not as `download` writes it (UTF-8 stories, each followed by the line <|endoftext|>): "
        "name a file of your own as data.source, or run `dvc repro -f download`"
    )
