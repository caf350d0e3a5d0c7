"""The loop: repeatable to the bit, resumable to the bit, honest about divergence, invariant where it should be."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from conftest import params_text
from isoflop import machine as machines
from isoflop.checkpoint import Checkpoints
from isoflop.config import ModelConfig
from isoflop.machine import Machine, this_machine
from isoflop.model.gpt import GPT
from isoflop.params import parse_params, resolve_arm
from isoflop.plan import Corpus, Plan, predict
from isoflop.recorder import Row
from isoflop.training import Progress, Stopped, train

TINY = (
    ("n_layer: 4", "n_layer: 1"),
    ("optimizer: muon", "optimizer: adamw"),
    ("d_model: 128", "d_model: 32"),
    ("d_ff: 384", "d_ff: 64"),
    ("block_size: 128", "block_size: 16"),
    ("flops: 4.0e+12", "flops: null"),
    ("steps: null", "steps: 24"),
    ("batch_size: 16", "batch_size: 4"),
    ("warmup_steps: 50", "warmup_steps: 4"),
    ("evals: 8", "evals: 3"),
    ("log_points: 100", "log_points: 7"),
    ("precision: auto", "precision: float32"),
)


class Collector:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.resumed: list[Row] = []

    def resume(self, rows: Sequence[Row]) -> None:
        self.resumed = list(rows)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.rows.append((step, dict(metrics)))

    def commit(self) -> None: ...

    def close(self, status: str) -> None: ...


class TinyTokens:
    """A repetitive byte stream: something to learn in a few steps."""

    def __init__(self) -> None:
        text = np.frombuffer(b"the cat sat on the mat. the dog sat on the cat. " * 40, np.uint8)
        self.streams = {"train": text, "val": text[:100]}
        self.meta = SimpleNamespace(splits={"val": SimpleNamespace(bytes=99)})

    def split(self, name: str) -> np.ndarray[Any, Any]:
        return self.streams[name]


def plan_of(*replacements: tuple[str, str]) -> Plan:
    text = params_text(*TINY)
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new, 1)
    arm = resolve_arm(parse_params(text, "params.yaml"), "base")
    model = ModelConfig(**vars(arm.model), vocab_size=256)
    sizes = {f"{split}_{unit}": 1 for split in ("train", "val", "test") for unit in ("tokens", "bytes")}
    return Plan(
        arm="base",
        tokenizer="byte",
        tokenizer_spec=arm.tokenizer_spec,
        model=model,
        train=arm.train.config(),
        config_hash="c",
        data_digest="d",
        tokens_digest="t",
        corpus=Corpus(source="x", fallback=False, **sizes),
        predicted=predict(arm, model, 1920),
    )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return this_machine("float32", tmp_path_factory.mktemp("machine") / "machine.json")


def trained(
    plan: Plan,
    machine: Machine,
    folder: Path,
    *,
    seed: int = 0,
    signal: Any = None,
    recorder: Collector | None = None,
    every_s: float = 60.0,
) -> tuple[GPT, Progress]:
    checkpoints = Checkpoints(folder, "key", every_s=every_s, study="s")
    try:
        return train(
            plan,
            seed,
            TinyTokens(),  # type: ignore[arg-type]
            machine=machine,
            recorder=recorder or Collector(),
            checkpoints=checkpoints,
            signal=signal or SimpleNamespace(stopped=False),
        )
    finally:
        checkpoints.release()


def without_times(rows: Sequence[Row]) -> list[Row]:
    return [(step, {k: v for k, v in m.items() if not k.startswith("time/")}) for step, m in rows]


def assert_same(a: tuple[GPT, Progress], b: tuple[GPT, Progress]) -> None:
    for name, weight in a[0].state_dict().items():
        assert torch.equal(weight, b[0].state_dict()[name]), name
    assert without_times(a[1].rows) == without_times(b[1].rows)
    assert a[1].first_loss == b[1].first_loss


class StopAt:
    """A signal that arrives during step n + 1: the loop asks once per step."""

    def __init__(self, step: int) -> None:
        self.asked, self.step = 0, step

    @property
    def stopped(self) -> bool:
        self.asked += 1
        return self.asked > self.step


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_the_same_arm_and_seed_gives_the_same_bits(precision: str, machine: Machine, tmp_path: Path) -> None:
    plan, machine = plan_of(), dataclasses.replace(machine, precision=precision)
    first, second = (trained(plan, machine, tmp_path / str(i)) for i in range(2))
    assert_same(first, second)
    other = trained(plan, machine, tmp_path / "other", seed=1)
    assert not torch.equal(first[0].embedding.weight, other[0].embedding.weight)


@pytest.mark.slow
@pytest.mark.skipif(not machines.has_compiler(), reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
@pytest.mark.parametrize("change", [("window: [0]", "window: [4]"), ("mtp: 0", "mtp: 1")], ids=lambda c: str(c[1]))
def test_compiled_training_is_the_eager_one_up_to_rounding_and_repeats_its_own_bits(
    change: tuple[str, str], machine: Machine, tmp_path: Path
) -> None:
    plan, compiled = plan_of(change), dataclasses.replace(machine, compiled=True)
    eager = trained(plan, machine, tmp_path / "eager")
    whole = trained(plan, compiled, tmp_path / "whole")
    for (_, a), (_, b) in zip(eager[1].rows, whole[1].rows, strict=True):
        assert a["train/loss"] == pytest.approx(b["train/loss"], abs=2e-3)
    assert_same(whole, trained(plan, compiled, tmp_path / "again"))
    with pytest.raises(Stopped):
        trained(plan, compiled, tmp_path / "cut", signal=StopAt(9))
    assert_same(whole, trained(plan, compiled, tmp_path / "cut"))


def test_compilation_is_chosen_by_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(compile: Any, flops: float) -> bool:
        return this_machine("float32", tmp_path / "machine.json", compile=compile, flops=flops).compiled

    monkeypatch.setattr(machines, "default_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(machines, "has_compiler", lambda: True)
    assert [compiled("auto", flops) for flops in (4e12, 1e14)] == [False, True]
    assert (compiled("always", 1.0), compiled("never", 1e20)) == (True, False)
    monkeypatch.setattr(machines, "has_compiler", lambda: False)
    assert not compiled("auto", 1e14)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_it_learns_and_measures_at_fixed_steps(optimizer: str, machine: Machine, tmp_path: Path) -> None:
    recorder = Collector()
    plan = plan_of(("optimizer: adamw", f"optimizer: {optimizer}"), ("lr: 0.006", "lr: 0.01"))
    _, progress = trained(plan, machine, tmp_path, recorder=recorder)
    assert [step for step, _ in recorder.rows] == [3, 7, 8, 10, 14, 16, 17, 21, 24]
    assert [step for step, metrics in recorder.rows if "val/bpb" in metrics] == [8, 16, 24]
    assert recorder.rows == progress.rows
    last = recorder.rows[-1][1]
    assert last["tokens"] == 24 * 4 * 16
    assert last["flops"] == last["tokens"] * plan.predicted.flops_per_token
    assert last["train/loss"] < progress.first_loss - 0.5
    assert progress.first_loss == pytest.approx(plan.predicted.first_loss, abs=0.2)
    assert last["val/bpb"] < recorder.rows[2][1]["val/bpb"]


@pytest.mark.parametrize("stop", [0, 5, 9, 22])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_an_interrupted_run_ends_in_the_same_bits(stop: int, optimizer: str, machine: Machine, tmp_path: Path) -> None:
    plan = plan_of(("optimizer: adamw", f"optimizer: {optimizer}"))
    whole = trained(plan, machine, tmp_path / "whole")
    with pytest.raises(Stopped, match=r"stopped at step \d+ of 24"):
        trained(plan, machine, tmp_path / "cut", signal=StopAt(stop))
    recorder = Collector()
    resumed = trained(plan, machine, tmp_path / "cut", recorder=recorder)
    assert_same(whole, resumed)
    assert resumed[1].resumed == 1
    assert [*recorder.resumed, *recorder.rows] == resumed[1].rows


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of()
    whole = trained(plan, machine, tmp_path / "whole")
    for stop in (5, 5):  # each attempt saves one checkpoint and stops
        with pytest.raises(Stopped):
            trained(plan, machine, tmp_path / "cut", signal=StopAt(stop))
    older, newest = sorted((tmp_path / "cut" / "key").glob("0*.pt"))
    newest.write_bytes(newest.read_bytes()[:1000])
    resumed = trained(plan, machine, tmp_path / "cut")
    assert f"{newest}: cut short or changed since it was written; using an older one" in capsys.readouterr().err
    assert_same(whole, resumed)
    assert older.exists()


def test_all_checkpoints_damaged_means_starting_over(machine: Machine, tmp_path: Path) -> None:
    plan = plan_of()
    whole = trained(plan, machine, tmp_path / "whole")
    with pytest.raises(Stopped):
        trained(plan, machine, tmp_path / "cut", signal=StopAt(5))
    for path in (tmp_path / "cut" / "key").glob("0*.pt"):
        path.write_bytes(b"")
    again = trained(plan, machine, tmp_path / "cut")
    assert_same(whole, again)
    assert again[1].resumed == 0


def test_gradient_accumulation_changes_nothing_but_rounding(machine: Machine, tmp_path: Path) -> None:
    one, _ = trained(plan_of(), machine, tmp_path / "1")
    four, _ = trained(plan_of(("grad_accum: 1", "grad_accum: 4")), machine, tmp_path / "4")
    for name, weight in one.state_dict().items():
        torch.testing.assert_close(four.state_dict()[name], weight, rtol=1e-3, atol=1e-4)


def test_training_goes_on_where_a_checkpoint_does_not_fit(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: Checkpoints, step: int, state: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Checkpoints, "save", full)
    _, progress = trained(plan_of(), machine, tmp_path, every_s=0.0001)
    assert progress.step == 24
    assert "warning: no checkpoint at step 1 ([Errno 28] No space left on device); training goes on" in (
        capsys.readouterr().err
    )


def test_weights_that_break_in_the_last_step_are_a_divergence(machine: Machine, tmp_path: Path) -> None:
    steps, rate = ("steps: 24", "steps: 1"), ("lr: 0.006", "lr: 1.0e+38")
    _, progress = trained(plan_of(steps, rate, ("warmup_steps: 4", "warmup_steps: 0")), machine, tmp_path)
    assert progress.diverged_at == progress.step == 1


def test_divergence_ends_the_run_and_is_recorded(machine: Machine, tmp_path: Path) -> None:
    recorder = Collector()
    plan = plan_of(
        ("lr: 0.006", "lr: 1.0e+30"), ("grad_clip: 1.0", "grad_clip: 0"), ("warmup_steps: 4", "warmup_steps: 0")
    )
    _, progress = trained(plan, machine, tmp_path, recorder=recorder)
    assert progress.diverged_at == progress.step == 3
    assert recorder.rows[-1][0] == 3
    assert not np.isfinite(recorder.rows[-1][1]["train/loss"])
    assert "val/bpb" not in recorder.rows[-1][1]
    assert np.isfinite(progress.first_loss)


def test_norm_gains_are_not_decayed_and_the_tied_matrix_is_updated_once(machine: Machine) -> None:
    from isoflop.optim import Optimisers

    plan = plan_of()
    model = GPT(plan.model)
    model.initialise(0)
    groups = Optimisers(model, plan.train, machine.device).parts[0].param_groups
    decayed, plain = groups
    assert decayed["weight_decay"] == plan.train.weight_decay
    assert all(p.ndim == 2 for p in decayed["params"])
    assert plain["weight_decay"] == 0
    assert all(p.ndim == 1 for p in plain["params"])
    ids = [id(p) for group in groups for p in group["params"]]
    assert len(ids) == len(set(ids)) == len(list(model.parameters()))
