"""`download` from the grammar and from text files: what lies in data/raw, and what is refused."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from downloads import (
    CONFIG,
    END,
    VALID,
    assert_ends,
    error_of,
    replace_grammar,
    size,
    stories_of,
    write,
)
from isoflop.corpus import stories as corpus
from isoflop.corpus.download import download
from isoflop.grammar import story_bits
from isoflop.stages import download as stage

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "tinystories"


@pytest.fixture(autouse=True)
def _grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_grammar(monkeypatch)


def test_grammar_bits_belong_to_the_stories_of_valid(tmp_path: Path) -> None:
    config = replace(CONFIG, source="grammar")
    source = download(config, tmp_path / "raw")
    train, valid = stories_of(tmp_path / "raw/train.txt"), stories_of(tmp_path / "raw/valid.txt")
    bits = np.load(tmp_path / "raw/valid_bits.npy")
    assert bits.dtype == np.float64
    assert bits.tolist() == [len(story) * 1.5 for story in valid]
    assert CONFIG.max_bytes - 100 < size(train) <= CONFIG.max_bytes
    assert CONFIG.val_bytes + CONFIG.test_bytes <= size(valid) < CONFIG.val_bytes + CONFIG.test_bytes + 200
    assert len({story.split()[0] for story in train + valid}) == 2  # two seeds
    assert (source["source"], source["fallback"], source["revision"]) == ("grammar", False, None)
    assert source["origin"] == "embedded, seed 7"


def test_grammar_is_repeatable_and_valid_does_not_depend_on_the_size_of_train(tmp_path: Path) -> None:
    def made(name: str, **changes: Any) -> tuple[bytes, bytes]:
        download(replace(CONFIG, source="grammar", **changes), tmp_path / name)
        return (tmp_path / name / "train.txt").read_bytes(), (tmp_path / name / "valid.txt").read_bytes()

    train, valid = made("a")
    assert made("b") == (train, valid)
    longer, same = made("c", max_bytes=2 * CONFIG.max_bytes)
    assert same == valid
    assert longer.startswith(train)
    other = made("d", grammar_seed=8)
    assert other[0] != train
    assert other[1] != valid


def test_the_real_grammar_states_the_bits_of_the_stories_in_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # of the stand-in
    download(replace(CONFIG, source="grammar"), tmp_path / "raw")
    valid = stories_of(tmp_path / "raw/valid.txt")
    bits = np.load(tmp_path / "raw/valid_bits.npy")
    assert bits.tolist() == pytest.approx([story_bits(story) for story in valid])
    assert not set(valid) & set(stories_of(tmp_path / "raw/train.txt"))


def test_a_file_gives_its_last_stories_to_valid(tmp_path: Path) -> None:
    config = replace(CONFIG, source=write(tmp_path / "a.txt", VALID), max_bytes=10**9)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/valid_bits.npy").write_bytes(b"of an earlier grammar")
    source = download(config, tmp_path / "raw")
    train, valid = stories_of(tmp_path / "raw/train.txt"), stories_of(tmp_path / "raw/valid.txt")
    assert train + valid == VALID
    assert_ends(valid, VALID, config)
    assert not (tmp_path / "raw/valid_bits.npy").exists()
    assert source["origin"] == source["source"] == source["requested"] == config.source
    assert (source["revision"], source["licence"]) == (None, None)

    download(replace(config, max_bytes=5_000), tmp_path / "less")
    less = stories_of(tmp_path / "less/train.txt")
    assert less == VALID[: len(less)]
    assert size(less) <= 5_000 < size(VALID[: len(less) + 1])
    assert stories_of(tmp_path / "less/valid.txt") == valid


def test_a_relative_path_counts_from_the_main_checkout_in_a_copy_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main").mkdir()
    (tmp_path / "copy").mkdir()
    write(tmp_path / "a.txt", VALID)
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "main"))
    (tmp_path / "main/b.txt").symlink_to(tmp_path / "a.txt")
    assert download(replace(CONFIG, source="b.txt"), tmp_path / "raw")["source"] == "b.txt"


def test_what_is_left_out_is_counted_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write(tmp_path / "a.txt", [b"\xff", VALID[0] + b"\r\n" + VALID[1], b"", *VALID[2:]])
    with (tmp_path / "a.txt").open("ab") as handle:
        handle.write(b"one<|endoftext|>two")
    source = download(replace(CONFIG, source=text, max_bytes=10**9), tmp_path / "raw")
    assert source["skipped"] == {"invalid_utf8": 1, "empty": 1, "inline_separators": 1}
    found = stories_of(tmp_path / "raw/train.txt") + stories_of(tmp_path / "raw/valid.txt")
    assert found == [VALID[0] + b"\r\n" + VALID[1], *VALID[2:], b"one", b"two"]
    assert capsys.readouterr().err.splitlines() == [
        f"warning: data.source = {text}: 1 story left out: not valid UTF-8",
        f"warning: data.source = {text}: 1 story left out: empty",
        f"warning: data.source = {text}: 1 <|endoftext|> not alone on a line; each ended a story like any other",
        f"warning: data.source = {text}: 1 story with lines that end in CRLF, which are kept as they are",
    ]


def test_a_file_with_crlf_is_framed_like_any_other(tmp_path: Path) -> None:
    plain = [story.replace(b"\n", b" ") for story in VALID]
    unix = write(tmp_path / "unix.txt", plain)
    windows = write(tmp_path / "windows.txt", plain, b"\r\n<|endoftext|>\r\n")
    for source, name in ((unix, "unix"), (windows, "windows")):
        download(replace(CONFIG, source=source), tmp_path / name)
    for name in ("train.txt", "valid.txt"):
        assert (tmp_path / "windows" / name).read_bytes() == (tmp_path / "unix" / name).read_bytes()


RULE = "it must be tinystories, grammar, or the path or URL of a text file"


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (None, {}, f"does not exist: {RULE}"),
        ("folder", {}, "is a folder, not a text file of stories"),
        (b"", {}, "is empty"),
        (b"\n\n", {}, "holds no story only, and training, validation and test need one each: "),
        (
            b"All of it in one piece.",
            {},
            "holds 1 story only, and training, validation and test need one each: "
            "a line <|endoftext|> must end each story",
        ),
        (
            b"\xff\n<|endoftext|>\n\xfe\n",
            {},
            "holds no story in UTF-8 (2 left out): convert the file to UTF-8",
        ),
        (
            b"one" + END + b"\xff" + END + b"two" + END,
            {},
            "holds 2 stories only (1 more is left out: not valid UTF-8), and training, validation and test need "
            "one each: a line <|endoftext|> must end each story",
        ),
        (
            b"a" * 50 + END + b"b" * 60 + END + b"c" * 40 + END,
            {"val_bytes": 100, "test_bytes": 51},
            "holds 150 bytes in 3 stories; data.val_bytes + data.test_bytes = 151 and some more to train on are "
            "needed: lower data.val_bytes and data.test_bytes, or give more stories",
        ),
        (
            b"a" * 50 + END + b"b" * 60 + END + b"c" * 40 + END,
            {"val_bytes": 61, "test_bytes": 40},
            "holds 150 bytes in 3 stories; data.val_bytes + data.test_bytes = 101 and some more to train on are "
            "needed: lower data.val_bytes and data.test_bytes, or give more stories",
        ),
    ],
)
def test_a_file_that_will_not_do_is_an_error_that_says_why(
    tmp_path: Path, content: bytes | str | None, changes: dict[str, int], message: str
) -> None:
    path = tmp_path / "a.txt"
    if content == "folder":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    config = replace(CONFIG, source=str(path), **changes)
    found = error_of(config, tmp_path / "raw")
    assert found.startswith(f"data.source = {path} {message}")
    assert not (tmp_path / "raw").exists() or list((tmp_path / "raw").iterdir()) == []


def test_a_long_file_without_separators_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MAX_STORY_BYTES", 1_000)
    (tmp_path / "a.txt").write_bytes(b"one" + END + b"x" * 2_000)
    assert error_of(replace(CONFIG, source=str(tmp_path / "a.txt")), tmp_path / "raw") == (
        f"data.source = {tmp_path}/a.txt: {tmp_path}/a.txt has no <|endoftext|> in the 2,001 bytes from byte 17 on: "
        "a line <|endoftext|> must end each story"
    )


def test_the_smallest_file_that_does(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", [b"a" * 50, b"b" * 60, b"c" * 40])
    download(replace(CONFIG, source=path, val_bytes=60, test_bytes=40), tmp_path / "raw")
    assert stories_of(tmp_path / "raw/train.txt") == [b"a" * 50]
    assert stories_of(tmp_path / "raw/valid.txt") == [b"b" * 60, b"c" * 40]


def test_max_bytes_below_the_first_story_is_an_error(tmp_path: Path) -> None:
    config = replace(CONFIG, source=write(tmp_path / "a.txt", VALID), max_bytes=5)
    assert error_of(config, tmp_path / "raw") == (
        "data.max_bytes = 5 is smaller than the first story: raise it, there must be something to train on"
    )


def test_an_error_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    download(replace(CONFIG, source="grammar"), tmp_path / "raw")
    before = {path.name: path.read_bytes() for path in (tmp_path / "raw").iterdir()}
    error_of(replace(CONFIG, source=write(tmp_path / "a.txt", VALID[:9]), val_bytes=10**6), tmp_path / "raw")
    assert {path.name: path.read_bytes() for path in (tmp_path / "raw").iterdir()} == before


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (15_000, hard))
    try:
        message = error_of(replace(CONFIG, source="grammar"), tmp_path / "raw")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert message == (
        f"writing to {tmp_path}/raw failed: File too large. Free some space there and run again; "
        "no half-written file was left under its final name"
    )
    assert list((tmp_path / "raw").iterdir()) == []


@pytest.mark.parametrize("scheme", ["file://", "file://localhost"])
def test_a_file_url_is_the_file(tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "a b.txt"
    write(path, VALID)
    download(replace(CONFIG, source=str(path)), tmp_path / "raw")
    download(replace(CONFIG, source=f"{scheme}{tmp_path}/a%20b.txt"), tmp_path / "raw2")
    assert (tmp_path / "raw/valid.txt").read_bytes() == (tmp_path / "raw2/valid.txt").read_bytes()


@pytest.mark.parametrize("url", ["ftp://a.example/b.txt", "s3://bucket/b.txt", "http:///b.txt", "file://host/b.txt"])
def test_other_urls_are_errors(tmp_path: Path, url: str) -> None:
    assert error_of(replace(CONFIG, source=url), tmp_path / "raw") == (
        f"data.source = {url} is no URL that can be read: it must begin with http://, https:// or file:///"
    )


@pytest.mark.skipif(not SHARED.exists(), reason="the excerpts of TinyStories are not beside the checkout")
def test_the_real_excerpt(tmp_path: Path) -> None:
    path = SHARED / "excerpt_v2_train.txt"
    config = replace(CONFIG, source=str(path), max_bytes=10**9, val_bytes=100_000, test_bytes=200_000)
    source = download(config, tmp_path / "raw")
    parts = [(tmp_path / "raw" / name).read_bytes() for name in ("train.txt", "valid.txt")]
    assert b"".join(parts) == path.read_bytes()
    files = source["files"]
    assert files["train"]["stories"] + files["valid"]["stories"] == 3_117
    assert 300_000 <= files["valid"]["story_bytes"] < 305_000
    assert source["skipped"] == {"invalid_utf8": 0, "empty": 0, "inline_separators": 0}


def test_the_stage_reads_params_and_writes_data_raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage, "load_params", lambda path: SimpleNamespace(data=config, read=path))
    config = replace(CONFIG, source=write(tmp_path / "a.txt", VALID))
    stage.main()
    assert sorted(p.name for p in Path("data/raw").iterdir()) == ["source.json", "train.txt", "valid.txt"]
