"""What the tests of `download` share: a small dataset, the hub that serves it, a stand-in for the grammar."""

from __future__ import annotations

import hashlib
import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub
import pytest

from hubserver import HubServer
from isoflop.config import DataConfig
from isoflop.corpus import sources
from isoflop.corpus.download import download
from isoflop.corpus.fetch import Patience
from isoflop.corpus.hub import Dataset, Hub, Pin
from isoflop.corpus.stories import StoryCounts, iter_stories
from isoflop.errors import IsoflopError

REPO, REVISION = "someone/Stories", "0123456789abcdef0123456789abcdef01234567"
END = b"\n<|endoftext|>\n"

CONFIG = DataConfig(
    source="tinystories",
    offline="grammar",
    timeout_s=0.5,
    max_bytes=20_000,
    val_bytes=1_500,
    test_bytes=1_000,
    drop_duplicates=False,
    grammar_seed=7,
)


def made_up(n_stories: int, seed: int) -> list[bytes]:
    dice = random.Random(seed)
    words = ["the", "cat", "and", "a", "dog", "ran", "home.\n", "“Hi”,", "said"]
    return [" ".join(dice.choices(words, k=dice.randrange(8, 30))).strip().encode() + b"." for _ in range(n_stories)]


VALID, TRAIN = made_up(400, 0), made_up(2_000, 1)
FILES = {"train.txt": END.join([*TRAIN, b""]), "valid.txt": END.join([*VALID, b""])}


def pin(name: str) -> Pin:
    data = FILES[name]
    return Pin(
        name=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), stories=data.count(b"<|endoftext|>")
    )


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """The dataset on a server, without what the developer's own settings would change."""
    for name in list(os.environ):
        if name.startswith("HF_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    huggingface_hub.close_session()
    with HubServer(dict(FILES), REPO, REVISION) as server:
        yield server
    huggingface_hub.close_session()


def hub_at(server: HubServer, folder: Path) -> Hub:
    """The hub that `server` is, with caches in `folder` and little patience."""
    return Hub(
        dataset=Dataset(repo=REPO, revision=REVISION, licence="free", train=pin("train.txt"), valid=pin("valid.txt")),
        endpoint=server.url,
        assets=folder / "assets",
        hub_cache=folder / "hub",
        patience=Patience(stall_s=0.3, pauses_s=(0.01, 0.01)),
    )


def replace_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stories that tell their seed and have 1.5 bits a byte, at no cost."""

    def generate(seed: int, n_bytes: int) -> Iterator[tuple[bytes, float]]:
        dice = random.Random(seed)
        total = 0
        while total < n_bytes:
            story = b"s%d " % seed + bytes(dice.choices(b"xyz", k=dice.randrange(20, 60)))
            total += len(story)
            yield story, len(story) * 1.5

    monkeypatch.setattr(sources.grammar, "generate", generate)


def nobody_there() -> str:
    """An address of this machine where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def write(path: Path, stories: list[bytes], end: bytes = END) -> str:
    path.write_bytes(b"".join(story + end for story in stories))
    return str(path)


def stories_of(path: Path) -> list[bytes]:
    return list(iter_stories(path, StoryCounts()))


def size(stories: list[bytes]) -> int:
    return sum(map(len, stories))


def error_of(config: DataConfig, folder: Path, hub: Hub | None = None) -> str:
    with pytest.raises(IsoflopError) as error:
        download(config, folder, hub)
    return str(error.value)


def assert_ends(valid: list[bytes], all_stories: list[bytes], config: DataConfig) -> None:
    """`valid` are the fewest last stories: some with `test_bytes`, before them some with `val_bytes`."""
    assert valid == all_stories[-len(valid) :]
    n_test = next(n for n in range(len(valid) + 1) if size(valid[len(valid) - n :]) >= config.test_bytes)
    val = valid[: len(valid) - n_test]
    assert size(val) >= config.val_bytes > size(val[1:])
