"""TinyStories from the Hugging Face hub: pinned files, kept outside data/, where DVC would delete them.

`huggingface_hub` finds the file, the user's cache, token and proxies. The transfer is `fetch.py`'s, because
`hf_hub_download` removes an unfinished file when it fails: 2.2 GB would start over every time.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

import httpx2
from huggingface_hub import constants, get_hf_file_metadata, get_session, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled
from huggingface_hub.file_download import HfFileMetadata
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # documented there

from isoflop.corpus.fetch import PATIENCE, TEMPORARY_STATUS, Patience, Transfer, exclusive, fetch, wrong_size
from isoflop.corpus.stories import END_OF_STORY
from isoflop.errors import IsoflopError
from isoflop.files import sha256_of

WHAT = "data.source = tinystories"


@dataclass(frozen=True, kw_only=True)
class Pin:
    """A file that is accepted with this content only."""

    name: str
    bytes: int
    sha256: str
    stories: int

    @property
    def story_bytes(self) -> int:
        """About the bytes of its stories alone."""
        return self.bytes - self.stories * len(END_OF_STORY)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A dataset on the hub at one commit: `train` and `valid` are its files."""

    repo: str
    revision: str
    licence: str
    train: Pin
    valid: Pin


TINYSTORIES = Dataset(
    repo="roneneldan/TinyStories",
    revision="f54c09fd23315a6f9c86f9dc80f725de7d8f9c64",
    licence="CDLA-Sharing-1.0",
    train=Pin(
        name="TinyStoriesV2-GPT4-train.txt",
        bytes=2_227_753_162,
        sha256="6418d412de72888f52b5142c761ac21a582f7d1166f0bfbdb5f03ccfdec90443",
        stories=2_717_699,
    ),
    valid=Pin(
        name="TinyStoriesV2-GPT4-valid.txt",
        bytes=22_502_601,
        sha256="6874bae9a4c1a4e7edcf0e53b86c17817e9cf881fc75ff2368da457b80c0585d",
        stories=27_630,
    ),
)


class Unreachable(Exception):
    """The hub does not answer; the text says how."""


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A dataset, where it is asked for, and where its files are kept.

    `assets`: folder of what this project fetches; `hub_cache`: `huggingface_hub`'s own cache, read only.
    """

    dataset: Dataset
    endpoint: str
    assets: Path
    hub_cache: Path
    patience: Patience

    @classmethod
    def from_environment(cls) -> Hub:
        """TinyStories as HF_ENDPOINT, HF_HOME, HF_ASSETS_CACHE and HF_HUB_CACHE have it."""
        endpoint = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
        if not endpoint.startswith(("http://", "https://")):
            raise IsoflopError(f"HF_ENDPOINT = {endpoint} must begin with http:// or https://")
        return cls(
            dataset=TINYSTORIES,
            endpoint=endpoint,
            assets=Path(constants.HF_ASSETS_CACHE).expanduser() / "isoflop",
            hub_cache=Path(constants.HF_HUB_CACHE),
            patience=PATIENCE,
        )

    def store(self, pin: Pin) -> Path:
        """Where the file lies once fetched."""
        return self.assets / "hub" / self.dataset.repo.replace("/", "--") / self.dataset.revision / pin.name

    def url(self, pin: Pin) -> str:
        """The file's address at the hub."""
        data = self.dataset
        return hf_hub_url(data.repo, pin.name, repo_type="dataset", revision=data.revision, endpoint=self.endpoint)

    def cached(self, pin: Pin) -> Path | None:
        """The file where it is on this machine already. Raises IsoflopError where its content is another."""
        stored = self.store(pin)
        found = (
            stored
            if stored.exists()
            else try_to_load_from_cache(
                self.dataset.repo,
                pin.name,
                cache_dir=self.hub_cache,
                revision=self.dataset.revision,
                repo_type="dataset",
            )
        )
        if not isinstance(found, (str, Path)):
            return None
        path = Path(found)
        if problem := _problem(path, pin):
            raise IsoflopError(f"{problem}. It lies in {path}: delete it there, and it is fetched anew")
        return path

    def check(self, pin: Pin, timeout_s: float) -> None:
        """Ask the hub for the file's size and hash, waiting `timeout_s` seconds in all.

        Raises Unreachable where the hub does not answer (no name, no connection, no answer in time, too busy,
        or something else in its place), IsoflopError where it answers that the file is another or not there.
        """
        answer = self._head(pin, timeout_s)
        if isinstance(answer, Exception):
            raise self._judged(answer, pin, timeout_s)
        if answer.commit_hash is None:
            raise Unreachable(f"{self.endpoint} answers, but not as the hub does (a proxy or a login page?)")
        if answer.size is not None and answer.size != pin.bytes:
            raise IsoflopError(wrong_size(f"{WHAT}: {pin.name} at {self.endpoint}", answer.size, pin.bytes))
        etag = answer.etag or ""
        if re.fullmatch("[0-9a-f]{64}", etag) and etag != pin.sha256:
            raise IsoflopError(_wrong_hash(f"{pin.name} at {self.endpoint}", etag, pin))

    def _head(self, pin: Pin, timeout_s: float) -> HfFileMetadata | Exception:
        """The HEAD request's answer or failure.

        In a thread, because a resolver that hangs and a server that trickles bytes know no timeout.
        """
        answers: list[HfFileMetadata | Exception] = []

        def head() -> None:
            try:
                answers.append(get_hf_file_metadata(self.url(pin), timeout=timeout_s, endpoint=self.endpoint))
            except Exception as error:
                answers.append(error)

        thread = threading.Thread(target=head, daemon=True)
        thread.start()
        thread.join(timeout_s)
        return answers[0] if answers else httpx2.TimeoutException("")

    def _judged(self, error: Exception, pin: Pin, timeout_s: float) -> Exception:
        """What the failure of a HEAD request means."""
        if isinstance(error, OfflineModeIsEnabled):
            return Unreachable("HF_HUB_OFFLINE is set")
        if isinstance(error, httpx2.TimeoutException):
            return Unreachable(f"{self.endpoint} does not answer within {timeout_s:g} s")
        if isinstance(error, HfHubHTTPError):
            answer = error.response
            status = f"{answer.status_code} {answer.reason_phrase}"
            said = answer.headers.get("X-Error-Message") or answer.headers.get("X-Error-Code")
            if answer.status_code in TEMPORARY_STATUS or said is None:  # the hub says why it refuses
                return Unreachable(f"{self.endpoint} answers {status}")
            return IsoflopError(
                f"{WHAT}: {self.endpoint} answers {status} ({said}) for {self.dataset.repo}/{pin.name} "
                f"at revision {self.dataset.revision}: check HF_ENDPOINT and HF_TOKEN"
            )
        if isinstance(error, httpx2.HTTPError):
            return Unreachable(f"cannot connect to {self.endpoint}: {error}")
        return error

    def obtain(self, pin: Pin) -> Path:
        """Fetch the file and check it; continues what an earlier, broken transfer left.

        Raises IsoflopError where the transfer breaks for good, the disk is full, or the content is wrong.
        """
        path = self.store(pin)
        path.parent.mkdir(parents=True, exist_ok=True)
        transfer = Transfer(
            url=self.url(pin),
            part=path.with_name(pin.name + ".part"),
            headers=build_hf_headers(),
            size=pin.bytes,
            pinned=True,
            label=pin.name,
            what=f"{WHAT}: {pin.name}",
            way_out=", or set data.source to grammar",
        )
        with exclusive(path):
            if not path.exists():
                _check_space(path.parent, pin.bytes - transfer.done)
                fetch(get_session(), transfer, self.patience)
                if problem := _problem(transfer.part, pin):
                    transfer.forget()
                    raise IsoflopError(
                        f"{problem}. What came from {self.endpoint} is removed. Run again; "
                        "if it stays so, the file served there is not the one pinned here"
                    )
                transfer.part.replace(path)
        return path


def _problem(path: Path, pin: Pin) -> str | None:
    """What is wrong with the content of `path`, if anything."""
    size = path.stat().st_size
    if size != pin.bytes:
        return wrong_size(f"{WHAT}: {pin.name}", size, pin.bytes)
    found = sha256_of(path)
    return None if found == pin.sha256 else _wrong_hash(pin.name, found, pin)


def _wrong_hash(name: str, found: str, pin: Pin) -> str:
    return f"{WHAT}: {name} has sha256 {found}, expected {pin.sha256}: this is not the file that is pinned"


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise IsoflopError(
            f"{WHAT}: {needed:,} bytes are still to be fetched into {folder}, where {free:,} are free: "
            "free some space, or set HF_HOME to a folder on a larger disk"
        )
