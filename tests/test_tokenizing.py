"""From raw files to token files, against streams written out by hand."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from isoflop import splits, tokenizing
from isoflop.config import TokenizerSpec
from isoflop.errors import IsoflopError
from isoflop.stages import tokenize as stage
from isoflop.tokenizer import ByteTokenizer, load
from isoflop.tokenizing import in_order, whole_folder, write_tokens
from isoflop.tokens import SPLITS, open_tokens, read_meta
from rawfiles import SOURCE, TRAIN, VALID, data_config, make_raw

BYTE = TokenizerSpec(kind="byte")
GPT2 = TokenizerSpec(kind="gpt2")


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return make_raw(tmp_path / "raw", TRAIN, VALID)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_byte_streams_by_hand(tmp_path: Path, raw: Path) -> None:
    meta = write_tokens(raw, tmp_path / "byte", BYTE, data_config())
    assert sorted(p.name for p in (tmp_path / "byte").iterdir()) == [
        "meta.json",
        "test.bin",
        "tokenizer.json",
        "train.bin",
        "val.bin",
    ]
    assert (tmp_path / "byte/train.bin").read_bytes() == b"\xffab\xffc\xff\xc3\xa9\r\nx\xffc\xff"
    assert (tmp_path / "byte/val.bin").read_bytes() == b"\xffde\xffc\xfffgh\xff"
    assert (tmp_path / "byte/test.bin").read_bytes() == b"\xffde\xffij\xff"
    assert [(s.stories, s.tokens, s.bytes) for s in meta.splits.values()] == [(4, 13, 9), (3, 9, 6), (2, 6, 4)]
    assert meta.splits["val"].sha256 == hashlib.sha256(b"\xffde\xffc\xfffgh\xff").hexdigest()
    assert [s.floor_bits for s in meta.splits.values()] == [None, None, None]
    assert (meta.name, meta.kind, meta.vocab_size, meta.eos, meta.dtype) == ("byte", "byte", 256, 255, "uint8")
    assert (meta.skipped, meta.source) == (SOURCE["skipped"], SOURCE)


def test_bpe_streams_hold_each_story_between_eos(tmp_path: Path, raw: Path) -> None:
    meta = write_tokens(raw, tmp_path / "gpt2", GPT2, data_config())
    made, eos = load(tmp_path / "gpt2"), 50256
    opened = open_tokens(tmp_path / "gpt2", meta.tokens_digest)
    expected = [eos] + [i for story in VALID[:3] for i in (*made.encode(story), eos)]
    assert opened.split("val").tolist() == expected
    assert opened.split("val").dtype == np.uint16
    assert meta.splits["val"].tokens == len(expected) - 1
    assert int(meta.token_bytes[expected].sum()) == meta.splits["val"].bytes == 6


def test_data_digest_is_of_the_stories_alone(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_tokens(raw, tmp_path / "byte", BYTE, data_config())
    other = write_tokens(raw, tmp_path / "gpt2", GPT2, data_config())
    assert first.data_digest == other.data_digest
    assert first.tokens_digest != other.tokens_digest
    monkeypatch.setattr(splits, "BATCH", 5)
    small = write_tokens(raw, tmp_path / "small", BYTE, data_config(), threads=3)
    assert (small.data_digest, small.tokens_digest) == (first.data_digest, first.tokens_digest)


@pytest.mark.parametrize(
    ("train", "valid", "sizes"),
    [
        ([b"a", b"bc", *TRAIN[2:]], VALID, (6, 4)),  # the same bytes, cut elsewhere
        ([TRAIN[1], TRAIN[0], *TRAIN[2:]], VALID, (6, 4)),  # another order
        (TRAIN, VALID, (3, 7)),  # a story moved from val to test
        ([*TRAIN, VALID[0]], VALID[1:], (4, 4)),  # a story moved from val to train
        (TRAIN, [b"de", b"ij", b"de", b"c", b"fgh"], (4, 6)),  # val and test swapped
    ],
)
def test_data_digest_sees_borders_order_and_splits(
    tmp_path: Path, raw: Path, train: list[bytes], valid: list[bytes], sizes: tuple[int, int]
) -> None:
    first = write_tokens(raw, tmp_path / "a", BYTE, data_config())
    other = make_raw(tmp_path / "other", train, valid)
    assert write_tokens(other, tmp_path / "b", BYTE, data_config(*sizes)).data_digest != first.data_digest


def test_dropped_copies_leave_digest_sums_and_floor(tmp_path: Path) -> None:
    raw = make_raw(tmp_path / "raw", TRAIN, VALID, bits=[1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    meta = write_tokens(raw, tmp_path / "byte", BYTE, data_config(drop=True))
    assert (tmp_path / "byte/val.bin").read_bytes() == b"\xffde\xfffgh\xff"
    assert (tmp_path / "byte/test.bin").read_bytes() == b"\xffij\xff"
    assert [s.floor_bits for s in meta.splits.values()] == [None, 5.0, 16.0]
    assert meta.duplicates["dropped_val"] == meta.duplicates["dropped_test"] == 1


def test_a_trained_bpe_is_trained_on_the_training_split(tmp_path: Path) -> None:
    raw = make_raw(tmp_path / "raw", [b"ab ab ab"] * 3, [b"xy xy xy"] * 4)
    config = data_config(val_bytes=8, test_bytes=8)
    meta = write_tokens(raw, tmp_path / "bpe", TokenizerSpec(kind="bpe", vocab_size=258), config)
    made = load(tmp_path / "bpe")
    assert (meta.vocab_size, meta.eos, meta.dtype) == (258, 257, "uint16")
    assert len(made.encode(b"ab ab")) == 3  # one merge: ab
    assert len(made.encode(b"xy xy")) == 5


def test_bpe_training_reads_a_bounded_part(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizing, "BPE_BYTES", 3)
    monkeypatch.setattr(splits, "BATCH", 1)
    assert list(tokenizing._head(raw / "train.txt", "label")) == [[b"ab"], [b"c"]]


def test_a_corpus_too_small_for_the_vocabulary(tmp_path: Path) -> None:
    raw = make_raw(tmp_path / "raw", [b"ab ab ab"] * 3, VALID)
    spec = TokenizerSpec(kind="bpe", vocab_size=4096)
    with pytest.raises(IsoflopError) as caught:
        write_tokens(raw, tmp_path / "bpe4k", spec, data_config())
    assert str(caught.value) == (
        f"params.yaml: tokenizers.bpe4k.vocab_size = 4096 cannot be reached: {raw / 'train.txt'} (69 bytes) gives "
        "259. Set it to 259 or less, or use more text (data.max_bytes, data.source)"
    )


@pytest.mark.parametrize("name", ["train.txt", "valid.txt", "source.json"])
def test_missing_raw_files(tmp_path: Path, raw: Path, name: str) -> None:
    (raw / name).unlink()
    with pytest.raises(IsoflopError, match=rf"raw/{name} is missing: run `dvc repro download`"):
        write_tokens(raw, tmp_path / "byte", BYTE, data_config())


def test_empty_splits(tmp_path: Path) -> None:
    nothing = make_raw(tmp_path / "a", [], VALID)
    with pytest.raises(IsoflopError, match=r"the train split is empty: .*train\.txt holds no story"):
        write_tokens(nothing, tmp_path / "t", BYTE, data_config())
    short = make_raw(tmp_path / "b", TRAIN, [b"only this"])
    with pytest.raises(
        IsoflopError, match=r"the test split is empty: .*valid\.txt \(24 bytes\).*Lower data\.val_bytes"
    ):
        write_tokens(short, tmp_path / "t", BYTE, data_config())
    copies = make_raw(tmp_path / "c", TRAIN, [b"c", b"c", b"new"])
    with pytest.raises(
        IsoflopError, match=r"the val split is empty: all of its 2 stories .*data\.drop_duplicates = true"
    ):
        write_tokens(copies, tmp_path / "t", BYTE, data_config(val_bytes=2, drop=True))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "c"]


def test_lengths_that_do_not_add_up_are_a_bug(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(self: ByteTokenizer, stories: list[bytes]) -> np.ndarray[Any, Any]:
        return np.frombuffer(b"".join(story[:1] + b"\xff" for story in stories), np.uint8)

    monkeypatch.setattr(ByteTokenizer, "encode_stream", cut)
    with pytest.raises(AssertionError, match=r"train\.bin: the ids stand for 4 bytes, the stories have 9"):
        write_tokens(raw, tmp_path / "byte", BYTE, data_config())
    assert [p.name for p in tmp_path.iterdir()] == ["raw"]


# A full disk


class FullDisk(io.FileIO):
    """A file on a disk with room for `ROOM` more bytes."""

    ROOM = 8

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def fill_disk_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Path.open

    def full(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if name in self.name and "w" in mode:
            return FullDisk(self, mode)
        return opened(self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)


@pytest.mark.parametrize("name", ["train.bin", "val.bin", "tokenizer.json", "meta.json"])
def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fill_disk_at(name, monkeypatch)
    with pytest.raises(IsoflopError, match=r"tokens/byte: the disk is full \(No space left on device\), nothing was"):
        write_tokens(raw, tmp_path / "tokens/byte", BYTE, data_config())
    assert list((tmp_path / "tokens").iterdir()) == []


def test_a_full_disk_leaves_the_old_files(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tokens(raw, tmp_path / "tokens/byte", BYTE, data_config())
    before = files_of(tmp_path / "tokens/byte")
    fill_disk_at("test.bin", monkeypatch)
    monkeypatch.setattr(FullDisk, "ROOM", 3)
    with pytest.raises(IsoflopError, match=r"free some space and run `dvc repro tokenize@byte`"):
        write_tokens(raw, tmp_path / "tokens/byte", BYTE, data_config(drop=True))
    assert files_of(tmp_path / "tokens/byte") == before
    assert [p.name for p in (tmp_path / "tokens").iterdir()] == ["byte"]


def test_a_folder_is_replaced_as_a_whole_and_leftovers_go(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    (folder / "old").touch()
    (tmp_path / ".x.tmp").mkdir()
    (tmp_path / ".x.tmp" / "of a killed run").touch()
    with whole_folder(folder) as temporary:
        (temporary / "new").touch()
        assert [p.name for p in folder.iterdir()] == ["old"]
    assert [p.name for p in tmp_path.rglob("*")] == ["x", "new"]


def test_other_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), whole_folder(tmp_path / "x"):
        raise PermissionError(errno.EACCES, "no")
    assert list(tmp_path.iterdir()) == []


# Threads


def test_results_come_in_order_and_few_items_are_read_ahead() -> None:
    read: list[int] = []
    lock = threading.Lock()
    at_once = most_at_once = 0

    def items() -> Iterator[int]:
        for i in range(50):
            read.append(i)
            yield i

    def square(i: int) -> int:
        nonlocal at_once, most_at_once
        with lock:
            at_once += 1
            most_at_once = max(most_at_once, at_once)
        time.sleep(0.002 * (i % 3))
        with lock:
            at_once -= 1
        return i * i

    for n, (item, result) in enumerate(in_order(square, items(), threads=3)):
        assert (item, result) == (n, n * n)
        assert len(read) <= n + 1 + 2 * 3
    assert n == 49
    assert most_at_once == 3


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda i: 1 // i, [1, 2, 0, 3], threads=2))


@pytest.mark.parametrize("name", ["train.bin", "val.bin"])
def test_no_thread_outlives_a_failure(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Threads left to the garbage collector lock up the process when it runs in a thread that is just starting."""
    fill_disk_at(name, monkeypatch)
    before = set(threading.enumerate())
    with pytest.raises(IsoflopError) as raised:
        write_tokens(raw, tmp_path / "tokens/byte", BYTE, data_config())
    assert raised.traceback  # which still holds every frame, generators included
    assert set(threading.enumerate()) == before


# The stage


def run_stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    params = SimpleNamespace(tokenizers={"gpt2": GPT2, "byte": BYTE}, data=data_config(drop=True))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage, "load_params", lambda _: params)
    monkeypatch.setattr("sys.argv", ["tokenize", name])
    stage.main()


def test_the_stage_writes_the_folder_of_its_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_raw(tmp_path / "data/raw", TRAIN, VALID)
    run_stage(monkeypatch, tmp_path, "byte")
    assert read_meta(tmp_path / "data/tokens/byte").splits["test"].stories == 1
    said = capsys.readouterr().out
    assert "byte: byte, vocabulary 256, uint8" in said
    assert "1 within train; of val 1 in train; of test 0 in train, 1 in val; dropped 1 from val, 1 from test" in said


def test_an_unknown_tokenizer_names_those_that_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IsoflopError, match=r"params\.yaml: tokenizers\.bpe does not exist; known: byte, gpt2"):
        run_stage(monkeypatch, tmp_path, "bpe")


# Real text


@pytest.mark.parametrize("spec", [BYTE, GPT2, TokenizerSpec(kind="bpe", vocab_size=1024)], ids=lambda s: s.kind)
def test_real_stories_come_back_from_the_files(tmp_path: Path, shared_data: Path, spec: TokenizerSpec) -> None:
    texts = {
        name: (shared_data / "tinystories" / f"excerpt_{name}.txt").read_bytes().split(b"\n<|endoftext|>\n")[:-1]
        for name in ("v1_mojibake", "v2_valid")
    }
    raw = make_raw(tmp_path / "raw", texts["v1_mojibake"], texts["v2_valid"])
    folder = tmp_path / spec.kind
    meta = write_tokens(raw, folder, spec, data_config(200_000, 500_000, drop=True))
    opened, made = open_tokens(folder, meta.tokens_digest), load(folder)
    for split in SPLITS:
        ids = opened.split(split)
        parts = np.split(ids, np.flatnonzero(ids == meta.eos))[1:]
        stories = [made.decode(part.tolist()) for part in parts[:-1]]
        expected = texts["v1_mojibake"] if split == "train" else texts["v2_valid"]
        start = meta.splits["val"].stories if split == "test" else 0
        assert stories == expected[start : start + meta.splits[split].stories]
        assert json.loads((folder / "meta.json").read_text())["splits"][split]["bytes"] == sum(map(len, stories))
    assert 200_000 <= meta.splits["val"].bytes < 205_000
