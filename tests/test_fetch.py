"""Files behind a URL: streamed, resumed, never mixed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from downloads import (
    CONFIG,
    FILES,
    TRAIN,
    VALID,
    assert_ends,
    error_of,
    hub_at,
    nobody_there,
    serving,
    stories_of,
)
from hubserver import HubServer
from isoflop.corpus.download import download
from isoflop.corpus.hub import Hub


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with serving(monkeypatch) as server:
        yield server


@pytest.fixture
def hub(server: HubServer, tmp_path: Path) -> Hub:
    return hub_at(server, tmp_path)


def leftovers(hub: Hub) -> list[str]:
    return sorted(path.suffix for path in (hub.assets / "url").iterdir() if path.suffix != ".lock")


@pytest.mark.parametrize("tells_length", [True, False])
def test_a_url_is_streamed_like_a_file(server: HubServer, hub: Hub, tmp_path: Path, tells_length: bool) -> None:
    server.tells_length = tells_length
    url = server.plain("valid.txt")
    source = download(replace(CONFIG, source=url), tmp_path / "raw", hub)
    assert source["origin"] == source["source"] == url
    assert_ends(stories_of(tmp_path / "raw/valid.txt"), VALID, CONFIG)
    assert leftovers(hub) == []


def test_a_broken_url_transfer_resumes_while_the_file_is_the_same(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    config = replace(CONFIG, source=server.plain("valid.txt"))
    server.break_after = [5_000, 0, 0]
    message = error_of(config, tmp_path / "raw", hub)
    assert message.startswith(f"data.source = {config.source}: the transfer broke after 5,000 bytes (")
    assert message.endswith(
        " and the transfer resumes there: run the same command again, "
        "or fetch the file by other means and set data.source to its path"
    )
    server.requests.clear()
    download(config, tmp_path / "raw", hub)
    tag = f'"{hashlib.md5(FILES["valid.txt"]).hexdigest()}"'
    assert [(r.headers["range"], r.headers["if-range"]) for r in server.requests] == [("bytes=5000-", tag)]
    assert_ends(stories_of(tmp_path / "raw/valid.txt"), VALID, CONFIG)


def test_a_url_whose_file_changed_in_between_is_not_mixed(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    config = replace(CONFIG, source=server.plain("valid.txt"))
    server.break_after = [5_000, 0, 0]
    error_of(config, tmp_path / "raw", hub)
    server.files["valid.txt"] = FILES["train.txt"]
    download(config, tmp_path / "raw", hub)
    assert_ends(stories_of(tmp_path / "raw/valid.txt"), TRAIN, CONFIG)


@pytest.mark.parametrize("etag", ["", 'W/"about this"'])
def test_a_server_that_cannot_tell_whether_the_file_changed_sends_it_all(
    server: HubServer, hub: Hub, tmp_path: Path, etag: str
) -> None:
    config = replace(CONFIG, source=server.plain("valid.txt"))
    server.etag = etag
    server.break_after = [5_000, 5_000, 5_000]
    message = error_of(config, tmp_path / "raw", hub)
    assert "). Check the connection and run the same command again, or fetch the file by" in message
    assert len(server.requests) == 3  # no try brought more than the first
    server.break_after = [5_000]
    download(config, tmp_path / "raw", hub)
    assert all("range" not in r.headers for r in server.requests)
    assert_ends(stories_of(tmp_path / "raw/valid.txt"), VALID, CONFIG)


def test_a_url_that_was_fetched_but_did_not_suit_is_not_fetched_again(
    server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    config = replace(CONFIG, source=server.plain("valid.txt"))
    assert "lower data.val_bytes" in error_of(replace(config, val_bytes=10**6), tmp_path / "raw", hub)
    server.requests.clear()
    download(config, tmp_path / "raw", hub)
    assert [r.headers["range"] for r in server.requests] == [f"bytes={len(FILES['valid.txt'])}-"]
    assert leftovers(hub) == []


def test_a_url_that_is_not_there_is_an_error_and_no_fallback(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    url = server.plain("nothing.txt").replace("http://", "http://me:secret@")
    assert error_of(replace(CONFIG, source=url), tmp_path / "raw", hub) == (
        f"data.source = {server.plain('nothing.txt')}: the server answers 404 Not Found"
    )
    url = f"{nobody_there()}/a.txt"
    message = error_of(replace(CONFIG, source=url), tmp_path / "raw", hub)
    assert message.startswith(f"data.source = {url}: the transfer broke after 0 bytes (")
