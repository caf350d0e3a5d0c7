"""What a run is called in the store: tags, params, and the process that writes it. Plain values only."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from ruamel.yaml import YAML

# Names of tags that this package reads back. `status` says more than MLflow's own status can.
RUN_UID = "run_uid"
STATUS = "status"
DIVERGED_AT = "diverged_at"
PROCESS = "isoflop.process"
SYNCED = "isoflop.synced"
EVALUATED = "isoflop.evaluated."  # followed by the protocol's hash; the value is the bits per byte

MAX_PARAM_CHARS = 6000  # MLflow's limit; it cuts longer values without a word
MAX_TAG_CHARS = 5000  # the smallest limit among the versions of MLflow that this package accepts


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """Who a run is, as its run.json says; all of it is known before the first step."""

    arm: str
    label: str  # the arm, and what an experiment changed in it
    seed: int
    study: str
    run_uid: str
    run_key: str
    config_hash: str
    data_digest: str
    tokens_digest: str
    source: str
    fallback: bool
    changes: Mapping[str, Any]  # dotted key -> value, what the arm changed
    git_rev: str | None
    git_dirty: bool | None
    dvc_exp_name: str | None
    code_digest: str | None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> RunIdentity:
        """The identity in the content of a run.json, or in what is known of it when training starts."""
        corpus, provenance = record["corpus"], record["provenance"]
        return cls(
            arm=record["arm"],
            label=record["label"],
            seed=record["seed"],
            study=record["study"],
            run_uid=record["run_uid"],
            run_key=record["run_key"],
            config_hash=record["config_hash"],
            data_digest=record["data_digest"],
            tokens_digest=record["tokens_digest"],
            source=corpus["source"],
            fallback=corpus["fallback"],
            changes=record["changes"],
            git_rev=provenance["git_rev"],
            git_dirty=provenance["git_dirty"],
            dvc_exp_name=provenance["dvc_exp_name"],
            code_digest=provenance["code_digest"],
        )

    @property
    def name(self) -> str:
        """The run's name in the UI, such as `mqa-s0`."""
        return f"{self.label}-s{self.seed}"

    def tags(self) -> dict[str, str]:
        """Tags by which the UI groups and filters. What is not known (no git, no experiment) has no tag."""
        values: dict[str, object] = {
            "arm": self.arm,
            "label": self.label,
            "seed": self.seed,
            "study": self.study,
            RUN_UID: self.run_uid,
            "run_key": self.run_key,
            "config_hash": self.config_hash,
            "data_digest": self.data_digest,
            "tokens_digest": self.tokens_digest,
            "corpus": self.source,
            "fallback": str(self.fallback).lower(),
            "changes": changes_text(self.changes),
            "git_rev": self.git_rev,
            "git_dirty": None if self.git_dirty is None else str(self.git_dirty).lower(),
            "dvc_exp_name": self.dvc_exp_name,
            "code_digest": self.code_digest,
            # MLflow's own names, which its UI shows as the source of the run.
            "mlflow.source.name": "isoflop.stages.train",
            "mlflow.source.type": "LOCAL",
            "mlflow.source.git.commit": self.git_rev,
        }
        return {key: str(value)[:MAX_TAG_CHARS] for key, value in values.items() if value not in (None, "")}


def changes_text(changes: Mapping[str, Any]) -> str:
    """`model.n_kv_head=1, train.lr=0.001`, in the order of the keys; `none` for a file as it stands."""
    return ", ".join(f"{key}={changes[key]}" for key in sorted(changes)) or "none"


def flat_params(config_text: str) -> dict[str, str]:
    """A resolved configuration (YAML text) as params: dotted keys, text values below MLflow's limit.

    Read as YAML 1.2, like DVC does. A longer value continues under `key.part1`, `key.part2`.
    """
    config = YAML(typ="safe", pure=True).load(config_text) or {}
    flat: dict[str, str] = {}
    for key, value in _leaves("", config):
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        flat[key] = text[:MAX_PARAM_CHARS]
        for part, start in enumerate(range(MAX_PARAM_CHARS, len(text), MAX_PARAM_CHARS), start=1):
            flat[f"{key}.part{part}"] = text[start : start + MAX_PARAM_CHARS]
    return flat


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Dotted key and value of everything in `value` that is not a mapping; an empty mapping is a value."""
    if isinstance(value, Mapping) and value:
        for key in value:
            yield from _leaves(f"{prefix}.{key}" if prefix else str(key), value[key])
    elif prefix:
        yield prefix, value


def process_tag() -> str:
    """This process, so that another can tell later whether it is gone: host, pid and start time."""
    return json.dumps({"host": _host(), "pid": os.getpid(), "started": psutil.Process().create_time()})


def is_gone(process: str | None) -> bool:
    """True if the process that wrote this tag ran on this host and no longer exists.

    False where that cannot be known: another host or container, no tag, a tag of another shape.
    """
    try:
        wanted = json.loads(process or "")
        host, pid, started = wanted["host"], int(wanted["pid"]), float(wanted["started"])
    except (ValueError, KeyError, TypeError):
        return False
    if host != _host():
        return False
    try:
        found = psutil.Process(pid)
        # The clock that start times are measured by may be corrected by a second; a reused pid is hours off.
        same = abs(found.create_time() - started) < 5
        return not same or found.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False


def is_other_and_alive(process: str | None) -> bool:
    """True if another process on this host wrote this tag and still exists."""
    try:
        wanted = json.loads(process or "")
        return wanted["host"] == _host() and wanted["pid"] != os.getpid() and not is_gone(process)
    except (ValueError, KeyError, TypeError):
        return False


def _host() -> str:
    """Host name and, on Linux, its set of process ids: containers may share a name but not those."""
    try:
        return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()
