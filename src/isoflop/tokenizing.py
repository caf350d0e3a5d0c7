"""From stories to token files, the writing side.

Stories stream through in batches: read and hashed in one thread, encoded by as many as there are cores
(tiktoken lets go of the GIL), written in order. Memory does not grow with the corpus.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from tqdm import tqdm

from isoflop import files, tokens
from isoflop.config import DataConfig, TokenizerSpec
from isoflop.cores import available_cores
from isoflop.errors import IsoflopError
from isoflop.splits import Batch, Duplicates, batches, read_stories
from isoflop.tokenizer import ByteTokenizer, Ids, Tokenizer, from_trained, gpt2, train_bpe
from isoflop.tokens import SPLITS, SplitMeta, TokenMeta

RAW_FILES = ("train.txt", "valid.txt", "source.json")
BPE_BYTES = 200_000_000  # a BPE is trained on no more than this: later text changes few merges

Item = TypeVar("Item")
Result = TypeVar("Result")


def write_tokens(
    raw: Path, folder: Path, spec: TokenizerSpec, data: DataConfig, threads: int | None = None
) -> TokenMeta:
    """Tokenize `raw` (what `download` wrote) into `folder`, which then holds all its files or is not changed.

    The folder's name is the tokenizer's name in params.yaml; `threads` defaults to the cores at hand. Raises
    IsoflopError on missing or foreign raw files, a split without stories, a vocabulary that the corpus is too
    small for, and a full disk.
    """
    for name in RAW_FILES:
        if not (raw / name).is_file():
            raise IsoflopError(f"{raw / name} is missing: run `dvc repro download`")
    tokenizer = build_tokenizer(spec, folder.name, raw / "train.txt")
    duplicates = Duplicates(drop=data.drop_duplicates)
    with whole_folder(folder) as temporary:
        with ExitStack() as stack:
            writers = {s: stack.enter_context(SplitWriter(temporary, s, tokenizer)) for s in SPLITS}
            encode_into(writers, batches(raw, data, duplicates), tokenizer, raw, threads or available_cores())
        for split in SPLITS:
            if not writers[split].stories:
                raise _empty(split, raw, duplicates)
        tokenizer.save(temporary / "tokenizer.json")
        meta = _meta(folder.name, tokenizer, writers, duplicates, raw)
        tokens.write_meta(temporary / "meta.json", meta)
    return meta


def build_tokenizer(spec: TokenizerSpec, name: str, train: Path) -> Tokenizer:
    """The tokenizer that params.yaml calls `tokenizers.<name>`; a bpe is trained on the file `train`."""
    if spec.kind == "byte":
        return ByteTokenizer()
    if spec.kind == "gpt2":
        return gpt2()
    assert spec.vocab_size is not None
    trained = train_bpe(_head(train, f"training {name}"), spec.vocab_size - 1)
    reached = trained.get_vocab_size() + 1
    if reached < spec.vocab_size:
        raise IsoflopError(
            f"params.yaml: tokenizers.{name}.vocab_size = {spec.vocab_size} cannot be reached: {train} "
            f"({train.stat().st_size:,} bytes) gives {reached}. Set it to {reached} or less, or use more "
            "text (data.max_bytes, data.source)"
        )
    return from_trained(trained.get_vocab())


class SplitWriter:
    """One split's file and its account: ids go to the file, hashes and sums are kept along the way."""

    def __init__(self, folder: Path, split: str, tokenizer: Tokenizer) -> None:
        self.path = tokens.bin_path(folder, split)
        self.dtype = np.dtype(tokens.dtype_of(tokenizer.vocab_size))
        self.eos = tokenizer.eos
        self.stories = self.tokens = self.bytes = self.token_bytes = 0
        self.floor_bits = 0.0
        self.text_hash, self.file_hash = hashlib.sha256(), hashlib.sha256()

    def __enter__(self) -> SplitWriter:
        self.handle: BinaryIO = self.path.open("wb")
        self._put(np.array([self.eos], dtype=self.dtype))  # the context of the first story
        return self

    def __exit__(self, *_: object) -> None:
        with self.handle:
            self.handle.flush()
            os.fsync(self.handle.fileno())

    def add(self, batch: Batch, ids: Ids, token_bytes: int) -> None:
        """Append a batch: `ids` hold eos after each story, `token_bytes` is the sum of their lengths."""
        assert ids.dtype == self.dtype
        self.stories += len(batch.stories)
        self.tokens += len(ids)
        self.bytes += batch.n_bytes
        self.token_bytes += token_bytes
        self.floor_bits += batch.floor_bits
        self.text_hash.update(batch.digests)
        self._put(ids)

    def meta(self, *, floor: bool) -> SplitMeta:
        """The split's entry in meta.json; `floor` says whether the corpus knows its stories' bits."""
        assert self.token_bytes == self.bytes, (
            f"{self.path.name}: the ids stand for {self.token_bytes:,} bytes, the stories have {self.bytes:,}"
        )
        return SplitMeta(
            stories=self.stories,
            tokens=self.tokens,
            bytes=self.bytes,
            sha256=self.file_hash.hexdigest(),
            floor_bits=self.floor_bits if floor else None,
        )

    def _put(self, ids: Ids) -> None:
        self.file_hash.update(ids.data)
        self.handle.write(ids.data)


def encode_into(
    writers: dict[str, SplitWriter], stream: Iterable[Batch], tokenizer: Tokenizer, raw: Path, threads: int
) -> None:
    """Encode every batch on `threads` threads and add it to its split's writer, in order.

    Reading and hashing the stories, encoding them and writing the ids overlap.
    """

    def encode(batch: Batch) -> tuple[Ids, int]:
        ids = tokenizer.encode_stream(batch.stories)
        return ids, tokenizer.byte_length(ids)

    def add(encoded: tuple[Batch, tuple[Ids, int]]) -> int:
        batch, (ids, token_bytes) = encoded
        writers[batch.split].add(batch, ids, token_bytes)
        return batch.read

    total = sum((raw / name).stat().st_size for name in ("train.txt", "valid.txt"))
    with (
        _progress("encoding", total) as bar,
        closing(in_order(encode, stream, threads)) as encoded,
        closing(in_order(add, encoded, threads=1)) as added,
    ):
        for _, read in added:
            bar.update(read)


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Generator[tuple[Item, Result], None, None]:
    """`(item, function(item))` for each item, in order, on `threads` threads and few items ahead.

    Close it where it may not be read to its end. Left to the garbage collector, which runs in whatever thread
    allocates, its threads would be joined there: in one that is just starting, Python 3.11 locks up.
    """
    waiting: deque[tuple[Item, Future[Result]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            waiting.append((item, pool.submit(function, item)))
            if len(waiting) > 2 * threads:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder beside `folder` that takes its place on success and vanishes on any error.

    Raises IsoflopError where the disk is full. What a killed run left behind is removed by the next one.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    try:
        yield files.fresh_folder(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise IsoflopError(
            f"{folder}: the disk is full ({error.strerror}), nothing was changed: free some space and run "
            f"`dvc repro tokenize@{folder.name}`"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _meta(
    name: str, tokenizer: Tokenizer, writers: dict[str, SplitWriter], duplicates: Duplicates, raw: Path
) -> TokenMeta:
    floor = (raw / "valid_bits.npy").is_file()
    splits = {split: writers[split].meta(floor=floor and split != "train") for split in SPLITS}
    source = files.read_json(raw / "source.json")
    sha256 = {split: splits[split].sha256 for split in SPLITS}
    return TokenMeta(
        name=name,
        kind=tokenizer.kind,
        vocab_size=tokenizer.vocab_size,
        eos=tokenizer.eos,
        dtype=tokens.dtype_of(tokenizer.vocab_size),
        token_bytes=tokenizer.token_bytes,
        tokens_digest=tokens.digest_of_tokens(tokenizer.kind, tokenizer.vocab_size, sha256),
        data_digest=files.digest_of([writers[split].text_hash.hexdigest() for split in SPLITS], length=64),
        splits=splits,
        duplicates=duplicates.summary(),
        skipped=source["skipped"],
        source=source,
    )


def _empty(split: str, raw: Path, duplicates: Duplicates) -> IsoflopError:
    if split == "train":
        return IsoflopError(f"the train split is empty: {raw / 'train.txt'} holds no story; see data.source")
    if dropped := duplicates.counts[f"dropped_{split}"]:
        return IsoflopError(
            f"the {split} split is empty: all of its {dropped:,} stories also occur in an earlier split and "
            f"data.drop_duplicates = true drops them. Set that to false, or raise data.{split}_bytes"
        )
    return IsoflopError(
        f"the {split} split is empty: {raw / 'valid.txt'} ({(raw / 'valid.txt').stat().st_size:,} bytes) has "
        "no story left for it. Lower data.val_bytes, or use a larger data.source"
    )


def _head(train: Path, label: str) -> Iterator[list[bytes]]:
    """The first `BPE_BYTES` of the training stories."""
    fed = 0
    with _progress(label, min(BPE_BYTES, train.stat().st_size)) as bar:
        for stories in read_stories(train):
            yield stories
            size = sum(map(len, stories))
            bar.update(size)
            if (fed := fed + size) >= BPE_BYTES:
                return


def _progress(label: str, total: int) -> tqdm[Any]:
    on_terminal_only = None
    return tqdm(total=total, desc=label, unit="B", unit_scale=True, disable=on_terminal_only)
