"""Reading raw files, dividing them, and finding copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isoflop import splits
from isoflop.errors import IsoflopError
from isoflop.splits import Batch, Duplicates, batches, divide, read_stories
from rawfiles import END, TRAIN, VALID, data_config, make_raw


def by_split(made: list[Batch]) -> dict[str, list[bytes]]:
    return {split: [s for batch in made if batch.split == split for s in batch.stories] for split in splits.SPLITS}


@pytest.mark.parametrize("batch", [1, 2, 7, 16, 17, 18, 19, 40, 2**18])
def test_stories_do_not_depend_on_the_batch_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    stories = [b"a", b"bb\n\nbb", b"\n lead", "ünï\r\n".encode() * 5, b"x" * 100, b"<|endoftext", b"|>"]
    raw = make_raw(tmp_path, stories, [b"v"])
    monkeypatch.setattr(splits, "BATCH", batch)
    assert [story for part in read_stories(raw / "train.txt") for story in part] == stories


def test_stories_come_in_bounded_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = make_raw(tmp_path, [b"0123456789"] * 1000, [b"v"])
    monkeypatch.setattr(splits, "BATCH", 250)
    parts = list(read_stories(raw / "train.txt"))
    assert max(map(len, parts)) <= 11
    assert sum(map(len, parts)) == 1000


@pytest.mark.parametrize(
    "content",
    [
        b"no separator",
        b"one" + END + b"no end",
        b"one\r\n<|endoftext|>\r\ntwo\r\n<|endoftext|>\r\n",
        b"one" + END + END,
        b"one" + END + b"\n<|endoftext|>\n",
        b"an inline <|endoftext|> mark" + END,
        b"not \xff UTF-8" + END,
    ],
)
def test_a_file_that_download_did_not_write_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "train.txt").write_bytes(content)
    with pytest.raises(IsoflopError, match=r"train\.txt is not as `download` writes it .*data\.source, or run `dvc"):
        list(read_stories(tmp_path / "train.txt"))


def test_whole_stories_until_the_size_is_reached_the_last_may_pass_it() -> None:
    stories = [[b"aa", b"b"], [b"ccc", b"d", b"e"], [b"ff"]]
    got = list(divide(stories, {"val": 4, "test": 2}))
    assert got == [
        ("val", [b"aa", b"b"]),
        ("val", [b"ccc"]),  # 3 of 4 before it, 6 with it
        ("test", [b"d", b"e"]),  # exactly 2
        (None, [b"ff"]),
    ]


def test_splits_follow_from_sizes_and_order(tmp_path: Path) -> None:
    raw = make_raw(tmp_path, TRAIN, VALID)
    got = by_split(list(batches(raw, data_config(), Duplicates(drop=False))))
    assert got == {"train": TRAIN, "val": [b"de", b"c", b"fgh"], "test": [b"de", b"ij"]}


def test_copies_are_counted_and_kept_unless_they_are_to_be_dropped(tmp_path: Path) -> None:
    train, valid = [b"a", b"b", b"a", b"a"], [b"a", b"x", b"y", b"b", b"x", b"z", b"a"]
    raw = make_raw(tmp_path, train, valid)
    config = data_config(val_bytes=3, test_bytes=4)
    counted = {"within_train": 2, "val_in_train": 1, "test_in_train": 2, "test_in_val": 2}

    keep = Duplicates(drop=False)
    got = by_split(list(batches(raw, config, keep)))
    assert got == {"train": train, "val": valid[:3], "test": valid[3:]}
    assert keep.summary() == counted | {"dropped_val": 0, "dropped_test": 0}

    drop = Duplicates(drop=True)
    got = by_split(list(batches(raw, config, drop)))
    assert got == {"train": train, "val": [b"x", b"y"], "test": [b"z"]}  # the border has not moved
    assert drop.summary() == counted | {"dropped_val": 1, "dropped_test": 3}


def test_copies_are_found_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits, "BATCH", 20)
    train = [b"story %d" % i for i in range(100)]
    valid = [b"other %d" % i for i in range(20)] + train[::10] + [b"other 3"]
    raw = make_raw(tmp_path, [*train, train[50]], valid)
    found = Duplicates(drop=False)
    list(batches(raw, data_config(val_bytes=sum(map(len, valid[:20])), test_bytes=10**6), found))
    assert found.summary() == {
        "within_train": 1,
        "val_in_train": 0,
        "test_in_train": 10,
        "test_in_val": 1,
        "dropped_val": 0,
        "dropped_test": 0,
    }


def test_floor_bits_are_those_of_the_stories_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = make_raw(tmp_path, TRAIN, VALID, bits=[1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    for batch in (1, 2**18):
        monkeypatch.setattr(splits, "BATCH", batch)
        for drop, expected in ((False, [0, 7, 24]), (True, [0, 5, 16])):  # `c` and the second `de` go
            made = list(batches(raw, data_config(), Duplicates(drop=drop)))
            assert [sum(b.floor_bits for b in made if b.split == split) for split in splits.SPLITS] == expected


def test_floor_bits_for_another_number_of_stories_are_refused(tmp_path: Path) -> None:
    raw = make_raw(tmp_path, TRAIN, VALID, bits=[1.0, 2.0])
    with pytest.raises(IsoflopError, match=r"valid_bits\.npy holds 2 numbers for the 6 stories of valid\.txt"):
        list(batches(raw, data_config(), Duplicates(drop=False)))


def test_batch_accounts_for_its_stories(tmp_path: Path) -> None:
    raw = make_raw(tmp_path, TRAIN, VALID)
    made = list(batches(raw, data_config(val_bytes=6, test_bytes=100, drop=True), Duplicates(drop=True)))
    for batch in made:
        assert batch.n_bytes == sum(map(len, batch.stories))
        assert len(batch.digests) == 32 * len(batch.stories)
    size = sum((raw / name).stat().st_size for name in ("train.txt", "valid.txt"))
    assert sum(batch.read for batch in made) == size


def test_story_hashes_differ_for_different_stories() -> None:
    digests = splits._digests([b"a", b"b", b"a", b"ab"])
    assert digests.shape == (4, 32)
    assert np.array_equal(digests[0], digests[2])
    assert len(np.unique(digests[:, :8], axis=0)) == 3
