"""What a reader should know before believing the numbers: corpus, budget, provenance of the runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from isoflop.analysis.arms import flops_of
from isoflop.collected import Collected

BUDGET_TOLERANCE = 0.01  # relative to the control's FLOPs


def corpus(collected: Collected) -> dict[str, Any]:
    """What the stories are, and how the splits overlap."""
    source = collected.source
    known = ("requested", "source", "fallback", "fallback_reason", "fetch_command", "revision", "licence")
    sizes = ("stories", "tokens", "bytes")
    return {
        **{key: source.get(key) for key in known},
        "data_digest": next((run.evaluation["data_digest"] for arm in collected.arms for run in arm.runs), None),
        "splits": {name: {key: split[key] for key in sizes} for name, split in collected.splits.items()},
        "duplicates": dict(collected.duplicates),
        "skipped": dict(source.get("skipped") or {}),
    }


def budget(collected: Collected, arms: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The compute of the control, and the arms that differ from it by more than 1 %."""
    asked = {key: value for key, value in vars(collected.params.train.budget).items() if value is not None}
    ((kind, amount),) = asked.items()
    return {
        "kind": kind,
        "amount": amount,
        "flops": flops_of(collected.arms[0]),
        "tolerance": BUDGET_TOLERANCE,
        "mismatch": [
            {"label": arm["label"], "ratio": arm["cost"]["flops_ratio"]}
            for arm in arms
            if abs(arm["cost"]["flops_ratio"] - 1) > BUDGET_TOLERANCE
        ],
    }


def facts(collected: Collected, arms: Sequence[dict[str, Any]], aside: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Provenance over all runs that are shown. Names of runs are `label, seed n`."""
    runs = [(arm["label"], run) for arm in (*arms, *aside) for run in arm["runs"]]
    recorded = [(label, run["seed"], run["record"]) for label, run in runs if run["record"]]
    return {
        "origins": dict(Counter(run["origin"] for _, run in runs)),
        "git_revs": _distinct(record["git_rev"] for _, _, record in recorded),
        "code_digests": _distinct(record["code_digest"] for _, _, record in recorded),
        "dirty": [f"{label}, seed {seed}" for label, seed, record in recorded if record["git_dirty"]],
        "resumed": [f"{label}, seed {seed}" for label, seed, record in recorded if record["resumed"]],
        "experiments": _distinct(record["dvc_exp_name"] for _, _, record in recorded if record["dvc_exp_name"]),
        "machines": _machines([record["machine"] for _, _, record in recorded]),
        "started": sorted(record["started"] for _, _, record in recorded)[:: max(1, len(recorded) - 1)],
        "unrecorded": [f"{label}, seed {run['seed']}" for label, run in runs if not run["record"]],
        "same_learning_rate": len({(a["config"]["train"]["lr"], a["config"]["train"]["optimizer"]) for a in arms}) == 1,
        "protocol": _protocol(collected),
        "tracking_uri": _server(collected.tracking_uri),
    }


def _server(uri: str | None) -> str | None:
    """Address of a tracking server, without name and password; None for a local store, whose path is private."""
    parts = urlsplit(uri or "")
    if parts.scheme not in ("http", "https"):
        return None
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _distinct(values: Any) -> list[Any]:
    """In the order of first appearance."""
    return list(dict.fromkeys(values))


def _machines(machines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Distinct machines and settings, with the number of runs; the measured peak varies and does not count."""
    shown = ("host_cpu", "cores", "threads", "device", "torch", "python", "precision")
    count = Counter(tuple(machine[key] for key in shown) for machine in machines)
    return [dict(zip(shown, values, strict=True)) | {"runs": n} for values, n in count.items()]


def _protocol(collected: Collected) -> dict[str, Any] | None:
    evaluations = [run.evaluation for arm in (*collected.arms, *collected.aside) for run in arm.runs]
    assert len({evaluation["protocol_hash"] for evaluation in evaluations}) <= 1, "collect keeps one protocol"
    return dict(evaluations[0]["protocol"]) if evaluations else None
