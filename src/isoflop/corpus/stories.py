"""Corpus files: how stories are framed, read and written, in memory that does not grow with the file.

A corpus file is bytes. `<|endoftext|>` ends a story wherever it stands. The newlines next to it, and those at
either end of the file, are framing; everything else belongs to a story and is kept byte for byte.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from isoflop.errors import IsoflopError

SEPARATOR = b"<|endoftext|>"
END_OF_STORY = b"\n" + SEPARATOR + b"\n"  # the official layout, which the files written here use
CHUNK_BYTES = 1 << 20
MAX_STORY_BYTES = 16 << 20  # memory must stay flat, and no story is as long as this

_NEWLINES = (b"\n", b"\r")


@dataclass
class StoryCounts:
    """What a pass over a corpus file met so far. `bytes` are those of the stories, without framing."""

    stories: int = 0
    bytes: int = 0
    invalid_utf8: int = 0
    empty: int = 0
    inline_separators: int = 0
    crlf: int = 0  # stories with lines that end in CRLF, which stays in them


@dataclass(frozen=True, kw_only=True)
class Written:
    """A corpus file as it was written: `bytes` of the file, `story_bytes` of its stories alone."""

    sha256: str
    bytes: int
    stories: int
    story_bytes: int


def iter_stories(path: Path, counts: StoryCounts, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the stories of `path` in their order, and count in `counts` what was met.

    Left out, never altered: stories that are not valid UTF-8 (`invalid_utf8`) and stories that hold nothing
    but white space (`empty`; what precedes the first separator or follows the last one may be empty). A
    separator that does not stand alone on its line ends a story like any other (`inline_separators`).
    Raises IsoflopError where 16 MiB go by without a separator.
    """
    starts_line: bool | None = None  # whether the separator before this piece starts its line; None: no separator
    for piece, last in _pieces(path, chunk_bytes):
        first = starts_line is None
        if not first:
            ends_line = piece[:1] in _NEWLINES or (last and not piece)
            counts.inline_separators += not (starts_line and ends_line)
        starts_line = piece[-1:] in _NEWLINES or (first and not piece)
        story = piece.strip(b"\r\n")
        if not story or story.isspace():
            counts.empty += not (first or last)
        elif not _is_utf8(story):
            counts.invalid_utf8 += 1
        else:
            counts.stories += 1
            counts.bytes += len(story)
            counts.crlf += b"\r\n" in story
            yield story


def _pieces(path: Path, chunk_bytes: int) -> Iterator[tuple[bytes, bool]]:
    """What stands between separators, framing included, and whether it is the end of the file."""
    pending = b""
    done = 0
    with path.open("rb") as handle:
        while chunk := handle.read(chunk_bytes):
            done += len(chunk)
            *complete, pending = (pending + chunk).split(SEPARATOR)
            for piece in complete:
                yield piece, False
            if len(pending) > MAX_STORY_BYTES:
                raise IsoflopError(
                    f"{path} has no {SEPARATOR.decode()} in the {len(pending):,} bytes "
                    f"from byte {done - len(pending):,} on: "
                    f"a line {SEPARATOR.decode()} must end each story"
                )
    yield pending, True


def _is_utf8(story: bytes) -> bool:
    try:
        story.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def at_most(stories: Iterable[bytes], n_bytes: int) -> Iterator[bytes]:
    """The first stories, as long as together they hold at most `n_bytes`."""
    total = 0
    for story in stories:
        total += len(story)
        if total > n_bytes:
            return
        yield story


def at_least(stories: Iterator[bytes], n_bytes: int) -> Iterator[bytes]:
    """The fewest first stories that together hold `n_bytes`; `stories` then stands at the next one."""
    total = 0
    while total < n_bytes and (story := next(stories, None)) is not None:
        total += len(story)
        yield story


def hold_back(stories: Iterable[bytes], n_bytes: int, tail: deque[bytes]) -> Iterator[bytes]:
    """Yield all stories but the last ones, which `tail` holds at the end: the fewest that hold `n_bytes`.

    One pass, in memory of `n_bytes` and a story. Where there is less than that, all of it ends in `tail`.
    """
    held = 0
    for story in stories:
        tail.append(story)
        held += len(story)
        while held - len(tail[0]) >= n_bytes:
            held -= len(tail[0])
            yield tail.popleft()


def write_stories(path: Path, stories: Iterable[bytes]) -> Written:
    """Write `stories` to `path` in the official layout: each followed by a newline and the separator's line.

    Not atomic by itself: the caller gives a temporary name.
    """
    digest = hashlib.sha256()
    n_stories = story_bytes = 0
    with path.open("wb") as handle:
        for story in stories:
            framed = story + END_OF_STORY
            handle.write(framed)
            digest.update(framed)
            n_stories += 1
            story_bytes += len(story)
    return Written(
        sha256=digest.hexdigest(),
        bytes=story_bytes + n_stories * len(END_OF_STORY),
        stories=n_stories,
        story_bytes=story_bytes,
    )
