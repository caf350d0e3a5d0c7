"""Token folders as their readers see them: whole, or an error that says what to do."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isoflop import tokens
from isoflop.config import TokenizerSpec
from isoflop.errors import IsoflopError
from isoflop.tokenizing import write_tokens
from isoflop.tokens import bin_path, dtype_of, open_tokens, read_meta
from rawfiles import TRAIN, VALID, data_config, make_raw


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    raw = make_raw(tmp_path / "raw", TRAIN, VALID)
    write_tokens(raw, tmp_path / "mine", TokenizerSpec(kind="byte"), data_config())
    return tmp_path / "mine"


def edit_meta(folder: Path, **changes: object) -> None:
    value = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(value | changes))


def test_splits_are_read_only_maps_of_the_stated_type(folder: Path) -> None:
    opened = open_tokens(folder)
    val = opened.split("val")
    assert isinstance(val, np.memmap)
    assert (val.ndim, val.dtype, len(val)) == (1, np.dtype(opened.meta.dtype), opened.meta.splits["val"].tokens + 1)
    assert bytes(val) == b"\xffde\xffc\xfffgh\xff"
    with pytest.raises(ValueError, match="read-only"):
        val[0] = 1


def test_meta_comes_back_as_written(folder: Path, tmp_path: Path) -> None:
    meta = read_meta(folder)
    tokens.write_meta(tmp_path / "again/meta.json", meta)
    assert (tmp_path / "again/meta.json").read_bytes() == (folder / "meta.json").read_bytes()
    assert meta.token_bytes.tolist() == [1] * 255 + [0]
    assert meta.splits["train"].bytes == 9


def test_tokens_digest_by_hand(folder: Path) -> None:
    hashes = [hashlib.sha256((folder / f"{split}.bin").read_bytes()).hexdigest() for split in ("train", "val", "test")]
    text = json.dumps(["byte", 256, hashes], separators=(",", ":"))
    assert read_meta(folder).tokens_digest == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("size", "dtype"), [(2, "uint8"), (256, "uint8"), (257, "uint16"), (65536, "uint16"), (65537, "uint32")]
)
def test_type_holds_the_last_id(size: int, dtype: str) -> None:
    assert dtype_of(size) == dtype
    assert np.array([size - 1]).astype(dtype).tolist() == [size - 1]


def test_reading_meta_loads_nothing_heavy(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from isoflop.tokens import read_meta; "
        f"read_meta(Path({str(folder)!r})); "
        "print(sorted({'torch', 'tiktoken', 'tokenizers', 'pandas', 'tqdm'} & set(sys.modules)))"
    )
    source = Path(tokens.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(IsoflopError, match=r"gpt2/meta\.json is missing: run `dvc repro tokenize@gpt2`"):
        open_tokens(tmp_path / "gpt2")


def test_a_missing_token_file(folder: Path) -> None:
    bin_path(folder, "val").unlink()
    with pytest.raises(
        IsoflopError, match=r"val\.bin .*expected 10 bytes, found no file; run `dvc repro -s -f tokenize@m"
    ):
        open_tokens(folder)


def test_a_truncated_token_file(folder: Path) -> None:
    path = bin_path(folder, "train")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IsoflopError) as caught:
        open_tokens(folder)
    assert str(caught.value) == (
        f"{path} is not the file that `tokenize` wrote: expected 14 bytes, found 13; "
        "run `dvc repro -s -f tokenize@mine`"
    )


def test_a_changed_token_file_of_the_same_size(folder: Path) -> None:
    path = bin_path(folder, "test")
    before = path.read_bytes()
    path.write_bytes(before.replace(b"i", b"j"))
    expected, found = (hashlib.sha256(content).hexdigest() for content in (before, path.read_bytes()))
    with pytest.raises(
        IsoflopError, match=rf"test\.bin .*expected sha256 {expected}, found {found}; run `dvc repro -s -f"
    ):
        open_tokens(folder)


def test_tokens_other_than_those_of_the_plan(folder: Path) -> None:
    found = read_meta(folder).tokens_digest
    open_tokens(folder, found)
    with pytest.raises(
        IsoflopError, match=rf"meta\.json: the plan expects tokens_digest {'0' * 64}, found {found}: .*run `dvc repro`"
    ):
        open_tokens(folder, "0" * 64)


def test_a_meta_that_contradicts_itself(folder: Path) -> None:
    edit_meta(folder, kind="gpt2")
    with pytest.raises(IsoflopError, match=r"meta\.json is not the file .*expected tokens_digest"):
        open_tokens(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"splits": {}}', b"\xff"])
def test_a_damaged_meta(folder: Path, content: bytes) -> None:
    (folder / "meta.json").write_bytes(content)
    with pytest.raises(
        IsoflopError, match=r"meta\.json is damaged or of another version .*`dvc repro -s -f tokenize@mine`"
    ):
        read_meta(folder)


def test_a_meta_with_a_key_of_another_version(folder: Path) -> None:
    edit_meta(folder, unheard_of=1)
    with pytest.raises(IsoflopError, match=r"another version .*unheard_of"):
        read_meta(folder)
