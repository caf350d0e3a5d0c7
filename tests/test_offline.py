"""A hub that cannot be reached: the embedded corpus takes its place, or it is an error, and soon."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from downloads import (
    CONFIG,
    FILES,
    REVISION,
    error_of,
    hub_at,
    nobody_there,
    replace_grammar,
    serving,
)
from hubserver import HubServer
from isoflop.corpus import sources
from isoflop.corpus.download import download
from isoflop.corpus.hub import TINYSTORIES, Hub
from isoflop.errors import IsoflopError


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with serving(monkeypatch) as server:
        yield server


@pytest.fixture
def hub(server: HubServer, tmp_path: Path) -> Hub:
    return hub_at(server, tmp_path)


@pytest.fixture(autouse=True)
def _grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_grammar(monkeypatch)


def unreachable(server: HubServer, hub: Hub, how: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Hub, str]:
    """The hub with a fault, and the reason that is given for it."""
    if how == "refused":
        hub = replace(hub, endpoint=nobody_there())
        return hub, f"cannot connect to {hub.endpoint}: "
    if how in ("no name", "no resolver"):

        def resolve(*_: Any, **__: Any) -> Any:
            time.sleep(5 if how == "no resolver" else 0)
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        hub = replace(hub, endpoint="http://hub.invalid")
        if how == "no name":
            return hub, "cannot connect to http://hub.invalid: [Errno -2] Name or service not known"
        return hub, "http://hub.invalid does not answer within 0.5 s"
    if how in ("hangs", "trickles"):
        setattr(server, how, True)
        return hub, f"{server.url} does not answer within 0.5 s"
    if how == "portal":
        server.is_portal = True
        return hub, f"{server.url} answers, but not as the hub does (a proxy or a login page?)"
    server.status = int(how)
    server.error_code = "Busy" if how == "503" else None
    return hub, f"{server.url} answers {how} "


FAULTS = ["refused", "no name", "no resolver", "hangs", "trickles", "portal", "503", "500", "429", "403"]


@pytest.mark.parametrize("how", FAULTS)
def test_the_grammar_takes_the_place_of_a_hub_that_cannot_be_reached(
    server: HubServer,
    hub: Hub,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    hub, reason = unreachable(server, hub, how, monkeypatch)
    start = time.monotonic()
    source = download(CONFIG, tmp_path / "raw", hub)
    assert time.monotonic() - start < CONFIG.timeout_s + 3
    assert (source["requested"], source["source"], source["fallback"]) == ("tinystories", "grammar", True)
    assert source["fallback_reason"].startswith(reason)
    assert source["fetch_command"] == "dvc repro -f download && dvc repro"
    err = capsys.readouterr().err
    assert f"TinyStories could not be fetched: {reason}" in err
    assert "The embedded grammar corpus takes its place" in err
    assert "dvc repro -f download && dvc repro" in err
    assert (tmp_path / "raw/valid_bits.npy").exists()
    assert server.asked("cdn", "GET") == []


@pytest.mark.parametrize("how", FAULTS)
def test_offline_fail_makes_it_an_error(
    server: HubServer, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    hub, reason = unreachable(server, hub, how, monkeypatch)
    message = error_of(replace(CONFIG, offline="fail"), tmp_path / "raw", hub)
    assert message.startswith(f"data.source = tinystories cannot be fetched: {reason}")
    assert message.endswith(
        ". data.offline = fail forbids the embedded corpus in its place: run again once the hub can be reached, "
        "set HF_ENDPOINT to a mirror of it, set data.offline to grammar, or set data.source to grammar or to the "
        "path of a text file"
    )


@pytest.mark.parametrize("offline", ["grammar", "fail"])
def test_a_hub_that_does_not_have_the_file_is_an_error_and_no_fallback(
    server: HubServer, hub: Hub, tmp_path: Path, offline: Any
) -> None:
    config = replace(CONFIG, offline=offline)
    other = replace(hub, dataset=replace(hub.dataset, revision="f" * 40))
    assert error_of(config, tmp_path / "raw", other) == (
        f"data.source = tinystories: {server.url} answers 404 Not Found (Invalid rev id) for "
        f"someone/Stories/valid.txt at revision {'f' * 40}: check HF_ENDPOINT and HF_TOKEN"
    )
    del server.files["valid.txt"]
    assert "answers 404 Not Found (Entry not found) for someone/Stories/valid.txt" in error_of(
        config, tmp_path / "raw", hub
    )


def test_the_real_file_replaces_the_fallback_once_the_hub_is_back(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    server.status = 503
    download(CONFIG, tmp_path / "raw", hub)
    server.status = None
    source = download(CONFIG, tmp_path / "raw", hub)
    assert (source["source"], source["fallback"], source["fetch_command"]) == ("tinystories", False, None)
    assert not (tmp_path / "raw/valid_bits.npy").exists()


ENTRY = """
import sys
from pathlib import Path
from isoflop.corpus import download as downloading, hub, sources
from isoflop.config import DataConfig
hub.TINYSTORIES = hub.Dataset(**eval(sys.argv[1], vars(hub)))
sources.grammar.generate = lambda seed, n_bytes: ((b"story %d" % i, 1.0) for i in range(9999))
downloading.download(DataConfig(**eval(sys.argv[2])), Path(sys.argv[3]))
"""


def run_alone(hub: Hub, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`download` in a process of its own, which finds the hub through its environment."""
    dataset = {name: getattr(hub.dataset, name) for name in ("repo", "revision", "licence", "train", "valid")}
    return subprocess.run(
        [sys.executable, "-c", ENTRY, repr(dataset), repr(asdict(CONFIG)), str(folder)],
        env={**os.environ, "PYTHONPATH": str(Path(sources.__file__).parents[2]), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_environment_names_the_hub_and_the_cache(server: HubServer, hub: Hub, tmp_path: Path) -> None:
    home = {"HF_HOME": str(tmp_path / "home")}
    done = run_alone(hub, tmp_path / "raw", HF_ENDPOINT=server.url, **home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("corpus: tinystories (someone/Stories: valid.txt)")
    stored = tmp_path / "home/assets/isoflop/hub/someone--Stories" / REVISION / "valid.txt"
    assert stored.read_bytes() == FILES["valid.txt"]

    done = run_alone(hub, tmp_path / "raw", HF_ENDPOINT=server.url, HF_HUB_OFFLINE="1", **home)
    assert done.stdout.startswith("corpus: tinystories"), done.stderr
    stored.unlink()
    n_requests = len(server.requests)
    done = run_alone(hub, tmp_path / "raw", HF_ENDPOINT=server.url, HF_HUB_OFFLINE="1", **home)
    assert "TinyStories could not be fetched: HF_HUB_OFFLINE is set." in done.stderr
    assert len(server.requests) == n_requests


def test_the_default_hub_is_tinystories_at_its_pinned_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example/")
    hub = Hub.from_environment()
    assert hub.dataset is TINYSTORIES
    assert hub.url(TINYSTORIES.valid) == (
        "https://mirror.example/datasets/roneneldan/TinyStories/resolve/"
        "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64/TinyStoriesV2-GPT4-valid.txt"
    )
    monkeypatch.setenv("HF_ENDPOINT", "mirror.example")
    with pytest.raises(IsoflopError, match=r"HF_ENDPOINT = mirror\.example must begin with http:// or https://"):
        Hub.from_environment()
