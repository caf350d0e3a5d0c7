"""TinyStories from a server that behaves like the hub, in health and in trouble."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from downloads import (
    CONFIG,
    FILES,
    REVISION,
    TRAIN,
    VALID,
    assert_ends,
    error_of,
    hub_at,
    pin,
    serving,
    size,
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


def test_the_valid_file_alone_is_fetched_where_it_suffices(
    server: HubServer, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = download(CONFIG, tmp_path / "raw", hub)
    train, valid = stories_of(tmp_path / "raw/train.txt"), stories_of(tmp_path / "raw/valid.txt")
    assert_ends(valid, VALID, CONFIG)
    assert train == VALID[: len(train)]
    assert size(train) <= CONFIG.max_bytes < size(VALID[: len(train) + 1])
    assert {r.path.rsplit("/", 1)[-1] for r in server.requests} == {"valid.txt"}
    assert (
        source
        == json.loads((tmp_path / "raw/source.json").read_text())
        == {
            "requested": "tinystories",
            "source": "tinystories",
            "fallback": False,
            "fallback_reason": None,
            "fetch_command": None,
            "origin": "someone/Stories: valid.txt",
            "revision": REVISION,
            "licence": "free",
            "files": {
                name: {
                    "sha256": hashlib.sha256((tmp_path / f"raw/{name}.txt").read_bytes()).hexdigest(),
                    "bytes": (tmp_path / f"raw/{name}.txt").stat().st_size,
                    "stories": len(stories),
                    "story_bytes": size(stories),
                }
                for name, stories in (("train", train), ("valid", valid))
            },
            "skipped": {"invalid_utf8": 0, "empty": 0, "inline_separators": 0},
        }
    )
    assert sorted(p.name for p in (tmp_path / "raw").iterdir()) == ["source.json", "train.txt", "valid.txt"]
    out, err = capsys.readouterr()
    assert out == (
        f"corpus: tinystories (someone/Stories: valid.txt) in {tmp_path}/raw: {size(train):,} bytes in "
        f"{len(train)} stories to train on, {size(valid):,} bytes in {len(valid)} stories for validation and test\n"
    )
    assert err == "fetching valid.txt\n"


def test_more_is_taken_from_the_train_file_and_the_scored_stories_stay_the_same(
    server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    download(CONFIG, tmp_path / "little", hub)
    source = download(replace(CONFIG, max_bytes=100_000), tmp_path / "more", hub)
    assert source["origin"] == "someone/Stories: valid.txt, train.txt"
    train = stories_of(tmp_path / "more/train.txt")
    assert train == TRAIN[: len(train)]
    assert size(train) <= 100_000 < size(TRAIN[: len(train) + 1])
    assert (tmp_path / "more/valid.txt").read_bytes() == (tmp_path / "little/valid.txt").read_bytes()
    download(replace(CONFIG, max_bytes=10**9), tmp_path / "all", hub)
    assert stories_of(tmp_path / "all/train.txt") == TRAIN


def test_more_to_score_than_the_valid_file_holds_is_an_error(hub: Hub, tmp_path: Path) -> None:
    assert error_of(replace(CONFIG, val_bytes=10**6), tmp_path / "raw", hub) == (
        f"data.source = tinystories has {size(VALID):,} bytes for validation and test, less than "
        "data.val_bytes + data.test_bytes = 1,001,000: lower them"
    )


def test_what_is_fetched_survives_the_deletion_of_data_raw_and_is_not_fetched_again(
    server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    download(CONFIG, tmp_path / "raw", hub)
    n_requests = len(server.requests)
    server.hangs = True
    download(CONFIG, tmp_path / "raw2", hub)
    assert len(server.requests) == n_requests
    assert (tmp_path / "raw/train.txt").read_bytes() == (tmp_path / "raw2/train.txt").read_bytes()


def test_a_file_in_the_cache_of_huggingface_hub_is_used(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "datasets--someone--Stories" / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    (snapshot / "valid.txt").write_bytes(FILES["valid.txt"])
    assert download(CONFIG, tmp_path / "raw", hub)["source"] == "tinystories"
    assert server.requests == []


@pytest.mark.parametrize("resets", [False, True])
def test_a_transfer_that_breaks_goes_on_where_it_broke(
    server: HubServer, hub: Hub, tmp_path: Path, resets: bool
) -> None:
    server.break_after = [5_000, 700]
    server.resets = resets
    download(CONFIG, tmp_path / "raw", hub)
    ranges = [r.headers.get("range") for r in server.asked("cdn", "GET")]
    assert ranges == [None, "bytes=5000-", "bytes=5700-"]
    assert hub.store(pin("valid.txt")).read_bytes() == FILES["valid.txt"]


def test_a_transfer_that_stands_still_is_tried_again(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    server.break_after = [5_000]
    server.stalls = True
    start = time.monotonic()
    download(CONFIG, tmp_path / "raw", hub)
    assert time.monotonic() - start < 5
    assert [r.headers.get("range") for r in server.asked("cdn", "GET")] == [None, "bytes=5000-"]


def test_tries_go_on_as_long_as_they_bring_something(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    server.break_after = [5_000, 0, 100, 0, 100, 0, 100]
    download(CONFIG, tmp_path / "raw", hub)
    assert len(server.asked("cdn", "GET")) == 8


def test_an_end_that_comes_early_is_noticed_where_no_length_was_told(
    server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    server.tells_length = False
    server.break_after = [5_000]
    download(CONFIG, tmp_path / "raw", hub)
    assert [r.headers.get("range") for r in server.asked("cdn", "GET")] == [None, "bytes=5000-"]


def test_a_disk_that_is_too_small_is_told_before_the_transfer(
    server: HubServer, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000))
    folder, total = hub.store(pin("valid.txt")).parent, len(FILES["valid.txt"])
    assert error_of(CONFIG, tmp_path / "raw", hub) == (
        f"data.source = tinystories: {total:,} bytes are still to be fetched into {folder}, where 1,000 are free: "
        "free some space, or set HF_HOME to a folder on a larger disk"
    )
    assert server.asked("cdn", "GET") == []


def test_a_server_that_is_busy_in_between_is_asked_again(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    server.cdn_status = [503, 429]
    download(CONFIG, tmp_path / "raw", hub)
    assert len(server.asked("cdn", "GET")) == 3


def test_a_server_that_knows_no_ranges_sends_it_all_again(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    server.break_after = [5_000]
    server.accepts_ranges = False
    download(CONFIG, tmp_path / "raw", hub)
    assert hub.store(pin("valid.txt")).read_bytes() == FILES["valid.txt"]


def test_a_transfer_that_breaks_for_good_is_an_error_and_the_next_run_resumes(
    server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    server.break_after = [5_000, 0, 0]
    message = error_of(CONFIG, tmp_path / "raw", hub)
    part = hub.store(pin("valid.txt")).with_name("valid.txt.part")
    total = len(FILES["valid.txt"])
    assert message.startswith(
        f"data.source = tinystories: valid.txt: the transfer broke after 5,000 of {total:,} bytes ("
    )
    assert message.endswith(
        f"). They are kept in {part} and the transfer resumes there: "
        "run the same command again, or set data.source to grammar"
    )
    assert len(server.asked("cdn", "GET")) == 3  # one that brings bytes, one after each pause
    assert not (tmp_path / "raw").exists() or list((tmp_path / "raw").iterdir()) == []
    assert part.read_bytes() == FILES["valid.txt"][:5_000]

    server.requests.clear()
    download(CONFIG, tmp_path / "raw", hub)
    assert [r.headers.get("range") for r in server.asked("cdn", "GET")] == ["bytes=5000-"]


def test_the_token_goes_to_the_hub_and_not_to_the_cdn(
    server: HubServer, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    download(CONFIG, tmp_path / "raw", hub)
    asked = {r.port: r.headers.get("authorization") for r in server.requests}
    assert asked == {"hub": "Bearer hf_secret", "cdn": None}


def test_another_content_than_the_pinned_one_is_an_error_that_prints_both_hashes(
    server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    other = FILES["valid.txt"].replace(b"cat", b"dog")
    server.content["valid.txt"] = other
    assert error_of(CONFIG, tmp_path / "raw", hub) == (
        f"data.source = tinystories: valid.txt has sha256 {hashlib.sha256(other).hexdigest()}, "
        f"expected {pin('valid.txt').sha256}: this is not the file that is pinned. What came from {server.url} "
        "is removed. Run again; if it stays so, the file served there is not the one pinned here"
    )
    assert [p.name for p in hub.store(pin("valid.txt")).parent.iterdir() if p.suffix != ".lock"] == []
    server.content.clear()
    assert download(CONFIG, tmp_path / "raw", hub)["source"] == "tinystories"


def test_a_hash_that_the_hub_announces_is_checked_before_the_transfer(
    server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    server.linked_etag = "ab" * 32
    assert error_of(CONFIG, tmp_path / "raw", hub) == (
        f"data.source = tinystories: valid.txt at {server.url} has sha256 {'ab' * 32}, "
        f"expected {pin('valid.txt').sha256}: this is not the file that is pinned"
    )
    assert server.asked("cdn", "GET") == []


def test_another_size_than_the_pinned_one_is_an_error_that_prints_both(
    server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    total = len(FILES["valid.txt"])
    server.wrong_linked_size = 4_321
    assert error_of(CONFIG, tmp_path / "raw", hub) == (
        f"data.source = tinystories: valid.txt at {server.url}: found 4,321 bytes, expected {total:,}: "
        "this is not the file that is pinned"
    )
    server.wrong_linked_size = None
    server.content["valid.txt"] = FILES["valid.txt"] + b"more"
    assert error_of(CONFIG, tmp_path / "raw", hub) == (
        f"data.source = tinystories: valid.txt: found {total + 4:,} bytes, expected {total:,}: "
        "this is not the file that is pinned"
    )


def test_a_file_that_is_longer_than_announced_is_an_error(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    total = len(FILES["valid.txt"])
    server.content["valid.txt"] = FILES["valid.txt"] + b"more"
    server.tells_length = False
    assert f"found {total + 4:,} bytes, expected {total:,}" in error_of(CONFIG, tmp_path / "raw", hub)


def test_a_cached_file_that_was_changed_is_an_error_that_names_it(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    download(CONFIG, tmp_path / "raw", hub)
    path = hub.store(pin("valid.txt"))
    path.write_bytes(path.read_bytes()[:-1])
    total = len(FILES["valid.txt"])
    assert error_of(CONFIG, tmp_path / "raw", hub) == (
        f"data.source = tinystories: valid.txt: found {total - 1:,} bytes, expected {total:,}: this is not the "
        f"file that is pinned. It lies in {path}: delete it there, and it is fetched anew"
    )


def test_two_processes_fetch_the_same_file_once(
    server: HubServer, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.break_after = [5_000]
    server.stalls = True  # the first one is at it for a while
    threads = [threading.Thread(target=download, args=(CONFIG, tmp_path / name, hub)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert len(server.asked("cdn", "GET")) == 2  # both by the first
    assert (tmp_path / "one/valid.txt").read_bytes() == (tmp_path / "two/valid.txt").read_bytes()
    assert "waiting for another process that fetches valid.txt" in capsys.readouterr().err
