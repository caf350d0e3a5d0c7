"""What `collect` gathers and everything after it reads: arms with their runs, and what was left out and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from isoflop.params import Params

Origin = Literal["workspace", "store", "git"]
Role = Literal["control", "planned", "exploratory", "earlier", "candidate", "rung"]


@dataclass(frozen=True, kw_only=True)
class CollectedRun:
    """One run with its evaluation (`experiments/eval/*.json`).

    `record` is its run.json and `history` the rows of its history.csv; both may be missing where only the committed
    evaluation is known (origin "git").
    """

    seed: int
    origin: Origin
    evaluation: dict[str, Any]
    record: dict[str, Any] | None
    history: list[dict[str, float]]
    run_id: str | None  # of MLflow
    experiment_id: str | None

    @property
    def bpb(self) -> float | None:
        """Test bits per byte; None where the run diverged."""
        value: float | None = self.evaluation["bpb"]
        return value

    @property
    def diverged(self) -> bool:
        return bool(self.evaluation["status"] == "diverged")


@dataclass(frozen=True, kw_only=True)
class CollectedArm:
    """Runs that share one configuration. `label` says what it changes: `mqa`, `base · n_kv_head=2`.

    role: control; planned (committed in params.yaml); exploratory (in params.yaml now, not as committed); earlier
    (found in the store, no longer in params.yaml); candidate (another setting of the same arm was better on val);
    rung (of a ladder, at another budget than the control's).
    `same_as` are arms of params.yaml that resolve to the same configuration: counted once. `stands_for` are the arms
    of its grid of tuned settings, of which it was chosen.
    """

    label: str
    name: str  # as in params.yaml
    role: Role
    committed: bool  # its configuration is that of an arm of params.yaml as committed
    changes: dict[str, Any]  # dotted key -> value, against the control's configuration
    config: dict[str, Any]  # tokenizer, tokenizer_spec, model, train
    config_hash: str
    predicted: dict[str, Any]  # plan.Prediction as plain data
    same_as: list[str]
    runs: list[CollectedRun]  # by seed
    missing_seeds: list[int]  # in params.yaml, without a run
    stands_for: list[str] = field(default_factory=list)

    def finite(self) -> dict[int, float]:
        """Test bits per byte by seed, diverged runs left out."""
        return {run.seed: run.bpb for run in self.runs if run.bpb is not None}


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """A run that is not compared, and why."""

    label: str
    seed: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One setting of a grid. `val` is the mean of the last val bpb over the grid's seeds, None where it is out."""

    label: str
    settings: dict[str, Any]  # tuned key -> value
    val: float | None
    diverged: list[int]
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Arms that differ in the tuned settings alone; one of them stands for all.

    `seeds` are those of the means; `problem` says why the choice is not by val, where it is not.
    """

    role: Role
    candidates: list[Candidate]
    seeds: list[int]
    problem: str | None


@dataclass(frozen=True, kw_only=True)
class Collected:
    """Everything of a study. `arms[0]` is the control.

    `aside` and `grids` are filled by `analysis.set_apart`: arms that are shown and not compared with the control.
    """

    params: Params
    arms: list[CollectedArm]
    control_note: str  # which control this is and where its runs come from, one sentence
    excluded: list[Excluded]
    source: dict[str, Any]  # data/raw/source.json
    splits: dict[str, dict[str, Any]]  # stories, tokens, bytes, floor_bits by split (of the control's tokenizer)
    duplicates: dict[str, int]
    warnings: list[str]  # from the store, and other things a reader should know
    baseline_rev: str | None  # commit of the control; None without git
    tracking_uri: str | None
    aside: list[CollectedArm] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
