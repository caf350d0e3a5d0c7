"""A collected study as `collect` would gather it, made up: realistic in shape, known in its numbers."""

from __future__ import annotations

import dataclasses
import io
import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ruamel.yaml import YAML

from isoflop.collected import Collected, CollectedArm, CollectedRun, Excluded
from isoflop.config import ModelConfig
from isoflop.files import digest_of
from isoflop.params import Params, parse_params, resolve_arm
from isoflop.plan import predict
from isoflop.schema import plain

PARAMS = Path(__file__).parents[1] / "params.yaml"
ARMS: dict[str, dict[str, Any]] = {"base": {}, "mqa": {"model.n_kv_head": 1}}
EIGHT: dict[str, dict[str, Any]] = {
    "base": {},
    "gqa": {"model.n_kv_head": 2},
    "mqa": {"model.n_kv_head": 1},
    "wide": {"model.d_model": 160, "model.d_ff": 448},
    "deep": {"model.n_layer": 6, "model.d_model": 112, "model.d_ff": 320, "model.n_head": 4},
    "qk_norm": {"model.qk_norm": True},
    "untied": {"model.tie_embeddings": False},
    "low_lr": {"train.lr": 0.001},
}
TRAIN_TOKENS, TEST_STORIES, FLOOR = 12_000_000, 300, 0.8732
PEAK = 4.4e11


def params_text(arms: Mapping[str, Any], seeds: Sequence[int], **study: Any) -> str:
    """params.yaml of the repository with other arms and seeds, and changes to its `study` section."""
    raw = YAML(typ="safe").load(PARAMS.read_text(encoding="utf-8"))
    raw |= {"arms": {name: dict(changes) for name, changes in arms.items()}, "seeds": list(seeds)}
    raw["report"]["control"] = next(iter(arms))
    raw["study"] |= {"name": "kv_heads", "margin": 0.01, "predictions": []} | study
    text = io.StringIO()
    YAML(typ="safe").dump(raw, text)
    return text.getvalue()


def make_params(arms: Mapping[str, Any], seeds: Sequence[int], **study: Any) -> Params:
    """The same, parsed."""
    return parse_params(params_text(arms, seeds, **study), "params.yaml")


def make_study(
    arms: Mapping[str, Any] = ARMS,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    base: float = 1.5,
    sd: float = 0.004,
    effects: Mapping[str, float] | None = None,
    bpb: Mapping[str, Sequence[float]] | None = None,
    fallback: bool = True,
    source: str | None = None,
    roles: Mapping[str, str] | None = None,
    **study: Any,
) -> Collected:
    """Arms (the first is the control) x seeds. bpb = base + effect + seed noise (shared in part by the arms).

    `bpb` gives exact test values instead, one for each seed. `source` is grammar where `fallback`, else tinystories.
    """
    params = make_params(arms, seeds, **study)
    made = []
    for i, name in enumerate(arms):
        target = dict(zip(seeds, (bpb or {}).get(name, ()), strict=False))
        for seed in seeds:
            noise = 0.6 * _rng("seed", seed).normal() + 0.8 * _rng("run", name, seed).normal()
            target.setdefault(seed, base + (effects or {}).get(name, 0.012 * i) + sd * noise)
        role = (roles or {}).get(name, "planned" if i else "control")
        made.append(_arm(params, name, role, target, source or ("grammar" if fallback else "tinystories")))
    story_bytes = _story_bytes()
    grammar = (source or ("grammar" if fallback else "tinystories")) == "grammar"
    floor = FLOOR * int(story_bytes.sum()) if grammar else None
    return Collected(
        params=params,
        arms=made,
        control_note="The control is base as of commit 1234abcd; its runs come from this workspace.",
        excluded=[],
        source=_source(source or ("grammar" if fallback else "tinystories"), fallback),
        splits={
            "train": {"stories": 14_000, "tokens": TRAIN_TOKENS, "bytes": 11_986_000, "sha256": "0" * 64}
            | {"floor_bits": None},
            "val": {"stories": 77, "tokens": 65_600, "bytes": 65_523, "sha256": "1" * 64, "floor_bits": None},
            "test": {"stories": TEST_STORIES, "tokens": int(story_bytes.sum()) + TEST_STORIES, "sha256": "2" * 64}
            | {"bytes": int(story_bytes.sum()), "floor_bits": floor},
        },
        duplicates={"within_train": 0, "val_in_train": 0, "test_in_train": 0, "test_in_val": 0}
        | {"dropped_val": 0, "dropped_test": 0},
        warnings=[],
        baseline_rev="1234abcd" * 5,
        tracking_uri="sqlite:////somewhere/mlflow.db",
    )


def table(csv_text: str) -> pd.DataFrame:
    """What the report reads of a table that `collect` wrote."""
    return pd.read_csv(io.StringIO(csv_text))


# --- changes to a study


def change_run(study: Collected, label: str, seed: int, **fields: Any) -> Collected:
    """One run with other fields (`evaluation` and `record` are merged into what is there)."""
    arms = []
    for arm in study.arms:
        runs = [_changed(run, fields) if (arm.label, run.seed) == (label, seed) else run for run in arm.runs]
        arms.append(dataclasses.replace(arm, runs=runs))
    return dataclasses.replace(study, arms=arms)


def without_seed(study: Collected, label: str, seed: int, *, missing: bool = True) -> Collected:
    """One run gone."""
    arms = [
        dataclasses.replace(
            arm,
            runs=[run for run in arm.runs if run.seed != seed],
            missing_seeds=[*arm.missing_seeds, seed] if missing else arm.missing_seeds,
        )
        if arm.label == label
        else arm
        for arm in study.arms
    ]
    return dataclasses.replace(study, arms=arms)


def diverged(study: Collected, label: str, seed: int, step: int = 120) -> Collected:
    """One run that ended with a loss that is not a number."""
    run = next(run for arm in study.arms if arm.label == label for run in arm.runs if run.seed == seed)
    rows = [dict(row) for row in run.history if row["step"] <= step]
    rows[-1] |= {"train/loss": math.nan, "train/grad_norm": math.nan}
    rows[-1].pop("val/bpb", None)
    evaluation = {"status": "diverged", "bpb": None, "bits": None, "nats": None}
    empty: dict[str, Any] = {"story_bits": [], "story_bytes": [], "bpb_by_position": [], "flops": rows[-1]["flops"]}
    return change_run(
        study,
        label,
        seed,
        evaluation=evaluation | empty,
        record={"status": "diverged", "diverged_at": step},
        history=rows,
    )


def from_git(study: Collected, label: str) -> Collected:
    """An arm of which only the committed evaluations are known."""
    arms = [
        dataclasses.replace(
            arm,
            runs=[
                dataclasses.replace(run, origin="git", record=None, history=[], run_id=None, experiment_id=None)
                for run in arm.runs
            ],
        )
        if arm.label == label
        else arm
        for arm in study.arms
    ]
    return dataclasses.replace(study, arms=arms)


def exclude(study: Collected, *entries: tuple[str, int, str]) -> Collected:
    """Runs that were left out: label, seed, reason."""
    return dataclasses.replace(study, excluded=[Excluded(label=a, seed=s, reason=r) for a, s, r in entries])


def one_run(params: Params, name: str, seed: int, bpb: float) -> CollectedRun:
    """One finished run of an arm of `params` on the grammar, with everything that its files hold."""
    return _arm(params, name, "planned", {seed: bpb}, "grammar").runs[0]


def write_samples(study: Collected, folder: Path, *, text: str | None = None, skip: Collection[str] = ()) -> None:
    """experiments/samples/<arm>-<seed>.md as `sample` writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for arm in study.arms:
        for run in arm.runs:
            if arm.label in skip or run.origin != "workspace":
                continue
            lines = [f"# {arm.name}-{run.seed}", "", "temperature 0.8, top_p 0.95, seed 0, at most 400 tokens", ""]
            for i, prompt in enumerate(study.params.sample.prompts, start=1):
                story = text or f" there was a {arm.name} named Tim.\n\nTim had {run.seed + 2} red balls. " * 3
                quoted = (f"**{prompt}**" if prompt else "") + story
                lines += [f"## Prompt {i}", "", *(f"> {line}".rstrip() for line in quoted.splitlines()), ""]
            if run.diverged:
                lines = [*lines[:4], "The run diverged: there is no model to sample from.", ""]
            (folder / f"{arm.name}-{run.seed}.md").write_text("\n".join(lines), encoding="utf-8")


# --- parts


def _changed(run: CollectedRun, fields: Mapping[str, Any]) -> CollectedRun:
    merged = dict(fields)
    for name in ("evaluation", "record"):
        if name in merged and merged[name] is not None:
            merged[name] = {**(getattr(run, name) or {}), **merged[name]}
    return dataclasses.replace(run, **merged)


def _rng(*key: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def _story_bytes() -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.clip(_rng("stories").normal(850, 180, TEST_STORIES), 500, 1200).astype(np.int64)


def _source(source: str, fallback: bool) -> dict[str, Any]:
    return {
        "requested": "tinystories" if fallback else source,
        "source": source,
        "fallback": fallback,
        "fallback_reason": "huggingface.co did not answer within 5 s" if fallback else None,
        "fetch_command": "dvc repro -f download && dvc repro" if fallback else None,
        "origin": "isoflop.grammar",
        "revision": None if source == "grammar" else "f54c09fd23315a6f9c86f9dc80f725de7d8f9c64",
        "licence": None if source == "grammar" else "CDLA-Sharing-1.0",
        "files": {},
        "skipped": {"invalid_utf8": 0, "empty": 0, "inline_separators": 0},
    }


def _arm(params: Params, name: str, role: Any, target: Mapping[int, float], source: str) -> CollectedArm:
    arm = resolve_arm(params, name)
    model = ModelConfig(**vars(arm.model), vocab_size=256)
    config = {
        "tokenizer": arm.tokenizer,
        "tokenizer_spec": plain(arm.tokenizer_spec),
        "model": plain(model),
        "train": plain(arm.train.config()),
    }
    made = CollectedArm(
        label=name,
        name=name,
        role=role,
        committed=role in ("control", "planned"),
        changes=dict(arm.changes),
        config=config,
        config_hash=digest_of(config),
        predicted=plain(predict(arm, model, TRAIN_TOKENS)),
        same_as=[],
        runs=[],
        missing_seeds=[],
    )
    return dataclasses.replace(made, runs=[_run(made, seed, value, source) for seed, value in target.items()])


def _run(arm: CollectedArm, seed: int, bpb: float, source: str) -> CollectedRun:
    p = arm.predicted
    identity = {"arm": arm.name, "seed": seed, "run_uid": digest_of([arm.name, seed], 32)}
    identity |= {"run_key": digest_of([arm.config_hash, seed]), "config_hash": arm.config_hash}
    identity |= {"data_digest": "d" * 64, "tokens_digest": "e" * 64, "status": "finished"}
    measured = {"steps": p["steps"], "flops": p["flops"], "parameters": p["parameters"]}
    return CollectedRun(
        seed=seed,
        origin="workspace",
        evaluation=identity | measured | _evaluation(arm, seed, bpb, source),
        record=identity | measured | _record(arm, seed),
        history=_history(arm, seed, bpb),
        run_id=digest_of(["mlflow", arm.name, seed], 32),
        experiment_id="1",
    )


def _evaluation(arm: CollectedArm, seed: int, bpb: float, source: str) -> dict[str, Any]:
    sizes = _story_bytes()
    rates = bpb + 0.15 * _rng("hard").normal(size=TEST_STORIES) + 0.03 * _rng(arm.name, seed).normal(size=TEST_STORIES)
    bits = rates * sizes
    bits *= bpb * sizes.sum() / bits.sum()
    edges = (0, 32, 64, 128, 256, 512, 1024)
    shape = (1.62, 0.92, 0.98, 1.01, 1.0, 0.99, 1.02)
    jitter = 0.002 * _rng("position", arm.name, seed).normal(size=len(edges))
    return {
        "protocol": {"split": "test", "stride": 0.5, "rule": "each token once"},
        "protocol_hash": "0123456789abcdef",
        "context": arm.config["model"]["block_size"],
        "bpb": bpb,
        "bits": float(bits.sum()),
        "nats": float(bits.sum() * math.log(2)),
        "tokens": int(sizes.sum()) + TEST_STORIES,
        "bytes": int(sizes.sum()),
        "stories": TEST_STORIES,
        "floor_bpb": FLOOR if source == "grammar" else None,
        "bpb_by_position": [
            {"from": low, "to": high, "bpb": float(bpb * s + j)}
            for low, high, s, j in zip(edges, (*edges[1:], None), shape, jitter, strict=True)
        ],
        "story_bits": [round(float(b), 4) for b in bits],
        "story_bytes": [int(b) for b in sizes],
        "tokenizer": arm.config["tokenizer"],
        "config": arm.config,
        "predicted": arm.predicted,
        "train_tokens": arm.predicted["tokens"],
        "flops_per_token": arm.predicted["flops_per_token"],
    }


def _speed(arm: CollectedArm, seed: int) -> float:
    return 2.05e11 / arm.predicted["flops_per_token"] * (1 + 0.02 * float(_rng("speed", arm.name, seed).normal()))


def _record(arm: CollectedArm, seed: int) -> dict[str, Any]:
    p, speed = arm.predicted, _speed(arm, seed)
    seconds = p["tokens"] / speed
    return {
        "diverged_at": None,
        "tokens": p["tokens"],
        "first_loss": p["first_loss"] + 0.01 + 0.004 * float(_rng("first", arm.name, seed).normal()),
        "final": {"val/bpb": None, "train/loss": None},
        "corpus": {"source": "grammar", "fallback": True},
        "provenance": {
            "git_rev": "89abcdef" * 5,
            "git_dirty": False,
            "dvc_exp_name": None,
            "code_digest": "c0de" * 4,
        },
        "machine": {
            "host_cpu": "Example CPU 3.0 GHz",
            "cores": 2,
            "threads": 2,
            "device": "cpu",
            "torch": "2.13.0+cpu",
            "python": "3.11.7",
            "precision": "bf16",
            "peak_flops": PEAK,
        },
        "timing": {
            "started": f"2025-11-30T10:{seed:02d}:00.000+00:00",
            "ended": f"2025-11-30T10:{seed:02d}:40.000+00:00",
            "train_s": round(seconds, 3),
            "eval_s": 4.1,
            "tokens_per_s": speed,
            "mfu": speed * p["flops_per_token"] / PEAK,
            "resumed": 0,
        },
    }


def _history(arm: CollectedArm, seed: int, bpb: float) -> list[dict[str, float]]:
    p, train, rng = arm.predicted, arm.config["train"], _rng("history", arm.name, seed)
    steps, rows = int(p["steps"]), []
    evals = {round(steps * (i + 1) / train["evals"]) for i in range(train["evals"])}
    logged = {max(1, round(steps * (i + 1) / train["log_points"])) for i in range(train["log_points"])}
    for step in sorted(evals | logged):
        x = step / steps
        value = bpb + 0.02 + 1.1 * (x**-0.4 - 1) * (1 + 0.02 * float(rng.normal()))
        tokens = step * (p["tokens"] // steps)
        row = {
            "step": step,
            "tokens": tokens,
            "flops": float(tokens * p["flops_per_token"]),
            "train/loss": min(p["first_loss"], value * math.log(2) * (1 + 0.02 * float(rng.normal()))),
            "train/lr": train["lr"] * min(1.0, step / 50) * 0.5 * (1 + math.cos(math.pi * x)),
            "train/grad_norm": 0.4 + 2.0 * math.exp(-10 * x) * float(rng.lognormal(0, 0.25)),
            "time/elapsed_s": tokens / 36000,
            "time/tokens_per_s": _speed(arm, seed) * (1 + 0.03 * float(rng.normal())),
            "time/mfu": 0.5,
        }
        if step in evals:
            row["val/bpb"] = value
        rows.append(row)
    return rows
