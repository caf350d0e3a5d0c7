"""Framing of stories: by hand-made files, by random ones against a second way to read them, and by real ones."""

from __future__ import annotations

import hashlib
import random
import re
from collections import deque
from pathlib import Path

import pytest

from isoflop.corpus import stories as corpus
from isoflop.corpus.stories import StoryCounts, at_least, at_most, hold_back, iter_stories, write_stories
from isoflop.errors import IsoflopError

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "tinystories"


def read(path: Path, data: bytes) -> tuple[list[bytes], StoryCounts]:
    path.write_bytes(data)
    return stream(path)


def stream(path: Path, chunk_bytes: int = 1 << 20) -> tuple[list[bytes], StoryCounts]:
    counts = StoryCounts()
    return list(iter_stories(path, counts, chunk_bytes)), counts


@pytest.mark.parametrize(
    ("data", "stories"),
    [
        (b"", []),
        (b"\n\n", []),
        (b"one", [b"one"]),
        (b"one\n<|endoftext|>\n", [b"one"]),
        (b"one\n<|endoftext|>\ntwo", [b"one", b"two"]),
        (b"<|endoftext|>\none\n<|endoftext|>\ntwo\n", [b"one", b"two"]),
        (b"one\r\nmore\r\n<|endoftext|>\r\ntwo\r\n", [b"one\r\nmore", b"two"]),
        (b"one\rmore\r<|endoftext|>\rtwo\r", [b"one\rmore", b"two"]),
        (b"\n\none\n\nmore\n\n\n<|endoftext|>\n\n\ntwo\n", [b"one\n\nmore", b"two"]),
        (b" one \n<|endoftext|>\n\ttwo\t", [b" one ", b"\ttwo\t"]),
        (b"\xef\xbb\xbfone\n<|endoftext|>\n", [b"\xef\xbb\xbfone"]),
        (b"<|endoftext|", [b"<|endoftext|"]),
        (b"one <|endoftext |> still one", [b"one <|endoftext |> still one"]),
    ],
)
def test_newlines_beside_separators_are_framing_and_all_else_is_kept(
    tmp_path: Path, data: bytes, stories: list[bytes]
) -> None:
    found, counts = read(tmp_path / "a.txt", data)
    assert found == stories
    assert counts.stories == len(stories)
    assert counts.bytes == sum(map(len, stories))
    assert (counts.invalid_utf8, counts.empty, counts.inline_separators) == (0, 0, 0)


@pytest.mark.parametrize(
    ("data", "stories", "inline"),
    [
        (b"one<|endoftext|>two", [b"one", b"two"], 1),
        (b"one <|endoftext|>\ntwo", [b"one ", b"two"], 1),
        (b"one\n<|endoftext|> two", [b"one", b" two"], 1),
        (b"one\n<|endoftext|>two\n<|endoftext|>\n", [b"one", b"two"], 1),
        (b"one<|endoftext|>", [b"one"], 1),
        (b"<|endoftext|>one", [b"one"], 1),
        (b"one\n<|endoftext|><|endoftext|>\ntwo", [b"one", b"two"], 2),
        (b"one\n<|endoftext|>\n<|endoftext|>\ntwo", [b"one", b"two"], 0),
    ],
)
def test_a_separator_inside_a_line_ends_a_story_and_is_counted(
    tmp_path: Path, data: bytes, stories: list[bytes], inline: int
) -> None:
    found, counts = read(tmp_path / "a.txt", data)
    assert found == stories
    assert counts.inline_separators == inline


def test_empty_stories_are_counted_between_separators_only(tmp_path: Path) -> None:
    data = b"\n<|endoftext|>\n\n<|endoftext|>\none\n<|endoftext|>\n \t\n<|endoftext|>\n\n"
    found, counts = read(tmp_path / "a.txt", data)
    assert found == [b"one"]
    assert counts == StoryCounts(stories=1, bytes=3, empty=2)


def test_stories_that_are_not_utf8_are_left_out_and_counted(tmp_path: Path) -> None:
    good = "naïve “quotes” 🐱".encode()
    bad = [b"\xff", good[:-1], "naïve".encode("latin-1"), b"\xed\xa0\x80", b"\xc0\xaf"]
    found, counts = read(tmp_path / "a.txt", b"\n<|endoftext|>\n".join([bad[0], good, *bad[1:], good]))
    assert found == [good, good]
    assert counts == StoryCounts(stories=2, bytes=2 * len(good), invalid_utf8=5)


def test_crlf_inside_stories_stays_and_is_counted(tmp_path: Path) -> None:
    found, counts = read(tmp_path / "a.txt", b"a\r\nb\r\n<|endoftext|>\r\nc\r\n<|endoftext|>\r\n")
    assert found == [b"a\r\nb", b"c"]
    assert counts == StoryCounts(stories=2, bytes=5, crlf=1)


def test_random_files_read_the_same_in_any_chunks_and_as_a_regular_expression_does(tmp_path: Path) -> None:
    """The reference splits the whole file with one expression; the reader streams it."""
    dice = random.Random(0)
    parts = [b"<|endoftext|>"] * 4 + [b"\n", b"\r", b" ", b"\r\n", b"a", b"bc", b"<|end", b"\xff", "ü".encode()]
    met = StoryCounts()
    for _ in range(300):
        data = b"".join(dice.choice(parts) for _ in range(dice.randrange(25)))
        (tmp_path / "a.txt").write_bytes(data)
        pieces = re.split(rb"[\r\n]*<\|endoftext\|>[\r\n]*", data.strip(b"\r\n"))
        stories = [p for p in pieces if p.strip() and p.decode(errors="ignore").encode() == p]
        alone = len(re.findall(rb"(?:(?<=[\r\n])|\A)<\|endoftext\|>(?=[\r\n]|\Z)", data))
        results = [stream(tmp_path / "a.txt", chunk_bytes) for chunk_bytes in (1, 5, 13, 1 << 20)]
        for found, counts in results:
            assert found == stories, data
            assert counts.inline_separators == data.count(b"<|endoftext|>") - alone, data
            assert counts == results[0][1]
        met.inline_separators += results[0][1].inline_separators
        met.stories += len(stories)
        met.invalid_utf8 += results[0][1].invalid_utf8
    assert min(met.inline_separators, met.stories, met.invalid_utf8) > 100  # the files were not all alike


def test_a_file_without_separators_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MAX_STORY_BYTES", 100)
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n<|endoftext|>\n" + b"x" * 1000)
    with pytest.raises(IsoflopError) as error:
        list(iter_stories(path, StoryCounts(), chunk_bytes=40))
    assert str(error.value) == (
        f"{path} has no <|endoftext|> in the 103 bytes from byte 17 on: a line <|endoftext|> must end each story"
    )


def test_what_is_written_reads_back_and_is_measured(tmp_path: Path) -> None:
    stories = [b"one", b" two\r\nlines ", "drei ü".encode()]
    path = tmp_path / "a.txt"
    written = write_stories(path, stories)
    data = path.read_bytes()
    assert data == b"".join(story + b"\n<|endoftext|>\n" for story in stories)
    assert written.sha256 == hashlib.sha256(data).hexdigest()
    assert (written.bytes, written.stories, written.story_bytes) == (len(data), 3, 3 + 12 + 7)
    counts = StoryCounts()
    assert list(iter_stories(path, counts)) == stories
    assert counts == StoryCounts(stories=3, bytes=22, crlf=1)


def test_at_most_stops_before_the_story_that_is_too_much() -> None:
    stories = [b"aaa", b"bbb", b"cccc", b"d"]
    for n_bytes, n_stories in [(2, 0), (3, 1), (5, 1), (6, 2), (9, 2), (10, 3), (11, 4), (99, 4)]:
        assert list(at_most(stories, n_bytes)) == stories[:n_stories]


def test_at_least_leaves_the_rest_to_the_next() -> None:
    rest = iter([b"aaa", b"bbb", b"cccc", b"d"])
    assert list(at_least(rest, 4)) == [b"aaa", b"bbb"]
    assert list(at_least(rest, 4)) == [b"cccc"]
    assert list(at_least(rest, 4)) == [b"d"]


def test_hold_back_keeps_the_fewest_last_stories_that_reach_the_size() -> None:
    dice = random.Random(1)
    for _ in range(200):
        stories = [bytes(dice.randrange(1, 9)) for _ in range(dice.randrange(12))]
        n_bytes = dice.randrange(1, 30)
        tail: deque[bytes] = deque()
        front = list(hold_back(stories, n_bytes, tail))
        assert front + list(tail) == stories
        if front:
            assert sum(map(len, tail)) >= n_bytes
        assert sum(map(len, list(tail)[1:])) < n_bytes


@pytest.mark.skipif(not SHARED.exists(), reason="the excerpts of TinyStories are not beside the checkout")
@pytest.mark.parametrize(
    ("name", "stories", "size"),
    [
        ("excerpt_v2_train.txt", 3_117, 2_561_762),
        ("excerpt_v2_valid.txt", 3_118, 2_513_494),
        ("excerpt_v1_mojibake.txt", 1_000, 965_799),
    ],
)
def test_real_stories_are_all_there(tmp_path: Path, name: str, stories: int, size: int) -> None:
    counts = StoryCounts()
    found = list(iter_stories(SHARED / name, counts, chunk_bytes=10_007))
    assert (counts.stories, counts.invalid_utf8, counts.empty, counts.inline_separators) == (stories, 0, 0, 0)
    assert counts.bytes == size - stories * len("\n<|endoftext|>\n")  # the official layout
    write_stories(tmp_path / "again.txt", found)
    assert (tmp_path / "again.txt").read_bytes() == (SHARED / name).read_bytes()
