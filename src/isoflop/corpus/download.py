"""data/raw: the stories of `data.source` as train.txt and valid.txt, and source.json says what they are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from isoflop.config import DataConfig
from isoflop.corpus.hub import Hub
from isoflop.corpus.sources import Corpus, open_source, problem, shown
from isoflop.corpus.stories import SEPARATOR, StoryCounts, Written, at_most, write_stories
from isoflop.errors import IsoflopError
from isoflop.files import atomic_path, disk_errors, write_json

FETCH_COMMAND = "dvc repro -f download && dvc repro"


def download(config: DataConfig, folder: Path, hub: Hub | None = None) -> dict[str, Any]:
    """Write train.txt, valid.txt, valid_bits.npy (of the grammar only) and source.json to `folder`.

    valid_bits.npy: float64, -log2 P of each story of valid.txt. Returns what source.json holds. `hub` is by
    default the one that the environment names. Raises IsoflopError, leaving `folder` as it was, where the
    source cannot be had, is not the file that is pinned, or is too small for the splits.
    """
    with ExitStack() as stack:
        stack.enter_context(disk_errors(folder))
        corpus = open_source(config, hub, stack)
        if corpus.fallback_reason:
            print(_fallback_notice(corpus.fallback_reason), file=sys.stderr)
        train, valid = _write(config, folder, corpus)
        source = _source_json(config, corpus, train, valid)
        write_json(folder / "source.json", source)
    for line in _warnings(corpus):
        print(f"warning: data.source = {shown(config.source)}: {line}", file=sys.stderr)
    origin = "" if corpus.origin == corpus.source else f" ({corpus.origin})"
    print(
        f"corpus: {corpus.source}{origin} in {folder}: {train.story_bytes:,} bytes in "
        f"{_stories(train.stories)} to train on, {valid.story_bytes:,} bytes in {_stories(valid.stories)} "
        "for validation and test"
    )
    return source


def _write(config: DataConfig, folder: Path, corpus: Corpus) -> tuple[Written, Written]:
    """Write everything but source.json, which is removed: it says that the folder is complete."""
    with (
        atomic_path(folder / "train.txt") as train_path,
        atomic_path(folder / "valid.txt") as valid_path,
    ):
        train = write_stories(train_path, at_most(corpus.train, config.max_bytes))
        valid = write_stories(valid_path, corpus.valid)
        _check(config, corpus, train, valid)
        (folder / "source.json").unlink(missing_ok=True)
        (folder / "valid_bits.npy").unlink(missing_ok=True)
    if corpus.bits is not None:
        assert len(corpus.bits) == valid.stories
        with atomic_path(folder / "valid_bits.npy") as path, path.open("wb") as handle:
            np.save(handle, np.array(corpus.bits, dtype=np.float64))
    return train, valid


def _check(config: DataConfig, corpus: Corpus, train: Written, valid: Written) -> None:
    """Raise IsoflopError where the corpus leaves a split without its stories."""
    need = config.val_bytes + config.test_bytes
    if len(corpus.counts) == 1:
        _check_file(config, corpus.counts[0], train, valid)
    elif valid.story_bytes < need:
        raise problem(
            config,
            f"has {valid.story_bytes:,} bytes for validation and test, less than "
            f"data.val_bytes + data.test_bytes = {need:,}: lower them",
        )
    if train.stories == 0:
        raise IsoflopError(
            f"data.max_bytes = {config.max_bytes:,} is smaller than the first story: raise it, there must be "
            "something to train on"
        )


def _check_file(config: DataConfig, met: StoryCounts, train: Written, valid: Written) -> None:
    """Raise IsoflopError where one file has not enough for all three splits."""
    left_out = ""
    if n := met.invalid_utf8:
        if met.stories == 0:
            raise problem(config, f"holds no story in UTF-8 ({n:,} left out): convert the file to UTF-8")
        left_out = f" ({n:,} more {'is' if n == 1 else 'are'} left out: not valid UTF-8)"
    if met.stories < 3:
        raise problem(
            config,
            f"holds {_stories(met.stories)} only{left_out}, and training, validation and test need one each: "
            f"a line {SEPARATOR.decode()} must end each story",
        )
    if train.stories == 0 and valid.stories == met.stories:
        raise problem(
            config,
            f"holds {met.bytes:,} bytes in {_stories(met.stories)}{left_out}; "
            f"data.val_bytes + data.test_bytes = {config.val_bytes + config.test_bytes:,} and some more to train on "
            "are needed: lower data.val_bytes and data.test_bytes, or give more stories",
        )


def _stories(n: int) -> str:
    return "1 story" if n == 1 else f"{n:,} stories" if n else "no story"


def _source_json(config: DataConfig, corpus: Corpus, train: Written, valid: Written) -> dict[str, Any]:
    return {
        "requested": shown(config.source),
        "source": corpus.source,
        "fallback": corpus.fallback_reason is not None,
        "fallback_reason": corpus.fallback_reason,
        "fetch_command": FETCH_COMMAND if corpus.fallback_reason is not None else None,
        "origin": corpus.origin,
        "revision": corpus.revision,
        "licence": corpus.licence,
        "files": {"train": asdict(train), "valid": asdict(valid)},
        "skipped": {
            "invalid_utf8": sum(counts.invalid_utf8 for counts in corpus.counts),
            "empty": sum(counts.empty for counts in corpus.counts),
            "inline_separators": sum(counts.inline_separators for counts in corpus.counts),
        },
    }


def _warnings(corpus: Corpus) -> Iterator[str]:
    """What is worth a look in the files that were read."""
    for counts in corpus.counts:
        if counts.invalid_utf8:
            yield f"{_stories(counts.invalid_utf8)} left out: not valid UTF-8"
        if counts.empty:
            yield f"{_stories(counts.empty)} left out: empty"
        if n := counts.inline_separators:
            yield f"{n:,} {SEPARATOR.decode()} not alone on a line; each ended a story like any other"
        if counts.crlf:
            yield f"{_stories(counts.crlf)} with lines that end in CRLF, which are kept as they are"


def _fallback_notice(reason: str) -> str:
    lines = [
        f"TinyStories could not be fetched: {reason}.",
        "The embedded grammar corpus takes its place: every number that follows is about that corpus.",
        f"Once the hub can be reached:  {FETCH_COMMAND}",
        "To stop here instead:  data.offline: fail  in params.yaml",
    ]
    rule = "=" * max(map(len, lines))
    return "\n".join(["", rule, *lines, rule, ""])
