"""The training loop: a plan and a seed in, weights and a history out."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from isoflop.batches import Windows
from isoflop.checkpoint import Checkpoints
from isoflop.evaluation import token_nats
from isoflop.machine import Machine
from isoflop.model.gpt import GPT
from isoflop.optim import Optimisers
from isoflop.plan import Plan
from isoflop.recorder import Recorder, Row
from isoflop.schedule import fractions_of, learning_rate
from isoflop.tokens import TokenSet


class Stopped(Exception):
    """A signal asked the run to stop; a checkpoint was saved."""


@dataclasses.dataclass(kw_only=True)
class Progress:
    """What a checkpoint holds besides weights and optimiser."""

    step: int = 0
    rows: list[Row] = dataclasses.field(default_factory=list)
    first_loss: float = math.nan
    train_s: float = 0.0
    eval_s: float = 0.0
    resumed: int = 0
    diverged_at: int | None = None
    pending: list[Tensor] = dataclasses.field(default_factory=list)  # losses since the last row

    def last(self, name: str) -> float | None:
        """The newest value of a metric."""
        return next((metrics[name] for _, metrics in reversed(self.rows) if name in metrics), None)


class Signal(Protocol):
    """Says whether the run should stop at the next step."""

    stopped: bool


def train(
    plan: Plan,
    seed: int,
    tokens: TokenSet,
    *,
    machine: Machine,
    recorder: Recorder,
    checkpoints: Checkpoints,
    signal: Signal,
) -> tuple[GPT, Progress]:
    """Train to the end of the plan's budget, or until the loss is not finite.

    Raises Stopped when `signal` says so, after saving a checkpoint. The same plan, seed and machine give the same
    weights and the same rows (but for `time/...`), bit for bit, also across interruptions.
    """
    loop = _Loop(plan, seed, tokens, machine)
    loop.restore(checkpoints.load(machine.device))
    recorder.resume(loop.progress.rows)
    for step, metrics in loop.steps():
        if metrics:
            recorder.log(step, metrics)
        unfinished = step < plan.predicted.steps and loop.progress.diverged_at is None
        stop = signal.stopped  # asked once: it may change between two questions
        if unfinished and (stop or checkpoints.due()):
            try:
                checkpoints.save(step, loop.state())
                recorder.commit()
            except OSError as error:  # a full disk must not end a run that may still fit when it is done
                print(f"warning: no checkpoint at step {step} ({error}); training goes on", file=sys.stderr)
        if unfinished and stop:
            raise Stopped(f"stopped at step {step} of {plan.predicted.steps}; run again to continue from there")
    recorder.commit()
    return loop.model, loop.progress


class _Loop:
    """State of one run, and the generator that advances it."""

    def __init__(self, plan: Plan, seed: int, tokens: TokenSet, machine: Machine) -> None:
        self.plan, self.seed, self.machine = plan, seed, machine
        self.model = GPT(plan.model)
        self.model.initialise(seed)
        self.model.to(machine.device)
        self.optimisers = Optimisers(self.model, plan.train, machine.device)
        self.windows = Windows(tokens.split("train"), plan.model.block_size, seed)
        self.val = np.asarray(tokens.split("val"))
        self.val_bytes = tokens.meta.splits["val"].bytes
        self.progress = Progress()
        self.timed_from = 0, time.perf_counter()  # step and time at which the last row was measured
        self.loss = torch.compile(self._plain_loss) if machine.compiled else self._plain_loss

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimisers": self.optimisers.state_dict(),
            "progress": dataclasses.asdict(self.progress),
        }

    def restore(self, state: dict[str, Any] | None) -> None:
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        self.optimisers.load_state_dict(state["optimisers"])
        self.progress = Progress(**state["progress"])
        self.progress.resumed += 1

    def steps(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Advance to the end or to divergence; yield every step done, with its metrics where it is measured."""
        plan, progress = self.plan, self.progress
        log_steps = set(fractions_of(plan.predicted.steps, plan.train.log_points))
        eval_steps = set(fractions_of(plan.predicted.steps, plan.train.evals))
        self.timed_from = progress.step, time.perf_counter()
        with self._bar() as bar:
            while progress.step < plan.predicted.steps and progress.diverged_at is None:
                loss, grad_norm, rate = self._step(progress.step)
                progress.pending.append(loss)
                progress.step += 1
                if progress.step == 1:
                    progress.first_loss = float(loss)
                metrics: dict[str, float] = {}
                if progress.step in log_steps | eval_steps:
                    metrics = self._measure(float(grad_norm), rate, validate=progress.step in eval_steps)
                    progress.rows.append((progress.step, metrics))
                    self._show(bar, metrics)
                bar.update()
                yield progress.step, metrics

    def _step(self, index: int) -> tuple[Tensor, Tensor, float]:
        """One optimiser step; the mean loss in nats per token, the gradient's norm before clipping, the rate."""
        train = self.plan.train
        parts = train.grad_accum
        size = train.batch_size // parts
        total = torch.zeros((), device=self.machine.device)
        self.model.train()
        # Dropout's masks follow from seed and step alone, so that a resumed run draws the same ones.
        torch.manual_seed(int(np.random.SeedSequence([self.seed, index]).generate_state(1)[0]))
        for part in range(parts):
            ids, targets = self.windows.batch(index * train.batch_size + part * size, size)
            # Parts hold equally many tokens, so the mean of their means is the batch's mean.
            minimised, loss = self.loss(ids.to(self.machine.device), targets.to(self.machine.device))
            (minimised / parts).backward()  # type: ignore[no-untyped-call]
            total += loss.detach() / parts
        limit = train.grad_clip or float("inf")
        grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        rate = learning_rate(index, steps=self.plan.predicted.steps, train=train)
        self.optimisers.step(rate)
        return total, grad_norm, rate

    def _plain_loss(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return self.model.loss(ids, targets, self.machine.dtype)

    def _measure(self, grad_norm: float, rate: float, *, validate: bool) -> dict[str, float]:
        plan, progress = self.plan, self.progress
        loss = float(torch.stack(progress.pending).double().mean())
        progress.pending.clear()
        since_step, since_time = self.timed_from
        seconds = time.perf_counter() - since_time
        speed = (progress.step - since_step) * plan.tokens_per_step / seconds
        progress.train_s += seconds
        tokens = progress.step * plan.tokens_per_step
        metrics = {
            "tokens": tokens,
            "flops": float(tokens * plan.predicted.flops_per_token),
            "train/loss": loss,
            "train/lr": rate,
            "train/grad_norm": grad_norm,
        }
        if math.isfinite(loss) and validate:
            metrics["val/bpb"] = self._validate()
        # The last update may be the one that breaks the weights: then only the evaluation shows it.
        if not math.isfinite(loss + metrics.get("val/bpb", 0.0)):
            progress.diverged_at = progress.step
        metrics |= {
            "time/elapsed_s": progress.train_s + progress.eval_s,
            "time/tokens_per_s": speed,
            "time/mfu": speed * plan.predicted.flops_per_token / self.machine.peak_flops,
        }
        self.timed_from = progress.step, time.perf_counter()
        return metrics

    def _validate(self) -> float:
        """Bits per byte of the whole val split, windows side by side (cheaper than the test's sliding ones)."""
        start = time.perf_counter()
        self.model.eval()
        block = self.plan.model.block_size
        nats = token_nats(self.model, self.val, stride=block, batch_size=64, dtype=self.machine.dtype)
        self.progress.eval_s += time.perf_counter() - start
        return float(nats.sum()) / (math.log(2) * self.val_bytes)

    def _bar(self) -> tqdm[Any]:
        return tqdm(
            total=self.plan.predicted.steps,
            initial=self.progress.step,
            desc=self.plan.arm,
            unit="step",
            dynamic_ncols=True,
            disable=None,  # nothing where the output is not a terminal; the evaluations are printed there
        )

    def _show(self, bar: tqdm[Any], metrics: dict[str, float]) -> None:
        bpb = self.progress.last("val/bpb")
        text = f"loss {metrics['train/loss']:.3f}, {metrics['time/tokens_per_s']:,.0f} tokens/s"
        text += "" if bpb is None else f", val {bpb:.3f} bpb"
        bar.set_postfix_str(text)
        if bar.disable and "val/bpb" in metrics:
            print(f"  {self.progress.step}/{self.plan.predicted.steps} steps: {text}", flush=True)
