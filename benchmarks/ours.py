"""This repository's training step, evaluation and sampling, as the stages run them."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isoflop import training
from isoflop.config import SampleConfig
from isoflop.evaluation import token_nats, windows
from isoflop.machine import this_machine
from isoflop.params import Arm, load_params, resolve_arm
from isoflop.plan import make_plan
from isoflop.sampling import choose, generate
from isoflop.stages.evaluate import evaluate
from isoflop.tokens import open_tokens
from measure import ROOT

# What makes the model a Llama, whatever study stands in params.yaml.
LLAMA: dict[str, Any] = {
    "norm": "rmsnorm",
    "positions": "rope",
    "mlp": "swiglu",
    "attention": ["softmax"],
    "window": [0],
    "qk_norm": False,
    "bias.qkv": False,
    "bias.proj": False,
    "bias.mlp": False,
    "tie_embeddings": True,
    "dropout": 0.0,
    "mtp": 0,
}
NEVER = -1  # an end-of-story token that no model writes


class Ours:
    """The loop of `train`, without its bookkeeping: every part of a step is the one that a study's runs take."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.params = load_params(ROOT / "params.yaml")
        self.tokens = open_tokens(Path(spec["tokens"]))
        self.plan = make_plan(self._arm(spec), self.tokens.meta)
        self.machine = this_machine(
            self.plan.train.precision,
            Path(spec["tokens"]).parent / "machine.json",
            compile=self.plan.train.compile,
            flops=self.plan.predicted.flops,
        )
        self.loop = training._Loop(self.plan, 0, self.tokens, self.machine)
        if spec.get("compile_mode"):
            self.loop.loss = torch.compile(self.loop._plain_loss, mode=spec["compile_mode"])
        self.tokens_per_step = self.plan.tokens_per_step
        self.index, self.batch_s = 0, 0.0
        self._draw = self.loop.windows.batch
        self.loop.windows.batch = self._timed_batch  # type: ignore[method-assign]

    def _arm(self, spec: dict[str, Any]) -> Arm:
        shape = dict(spec["shape"])
        del shape["vocab_size"]
        changes: dict[str, Any] = {"train.batch_size": shape.pop("batch_size"), "train.grad_accum": 1}
        changes |= {f"model.{key}": value for key, value in (LLAMA | shape | {"n_kv_head": shape["n_head"]}).items()}
        changes |= {"tokenizer": "byte"}
        changes |= {f"train.{key}": spec[key] for key in ("precision", "optimizer") if key in spec}
        if "compile" in spec:
            changes["train.compile"] = "always" if spec["compile"] else "never"
        changes |= {"train.budget.flops": spec["flops"], "train.budget.tokens": None, "train.budget.steps": None}
        return resolve_arm(dataclasses.replace(self.params, arms={"bench": changes}), "bench")

    def _timed_batch(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        start = time.perf_counter()
        batch = self._draw(first, count)
        self.batch_s += time.perf_counter() - start
        return batch

    def step(self) -> Tensor:
        loss, _, _ = self.loop._step(self.index % self.plan.predicted.steps)
        self.index += 1
        return loss

    def wait(self) -> None:
        if self.machine.device.type == "cuda":
            torch.cuda.synchronize()

    def describe(self) -> dict[str, Any]:
        train = self.plan.train
        return {
            "threads": torch.get_num_threads(),
            "parameters": self.plan.predicted.parameters,
            "precision": self.machine.precision,
            "compile": self.machine.compiled,
            "optimizer": train.optimizer,
            "peak_flops": self.machine.peak_flops,
            "flops_per_token": self.plan.predicted.flops_per_token,
        }

    def answer(self, do: str, arguments: dict[str, Any]) -> dict[str, Any]:
        asked: dict[str, Callable[..., dict[str, Any]]] = {
            "evaluate": self.evaluate,
            "validate": self.validate,
            "bpb": self.bpb,
            "sample": self.sample,
        }
        return asked[do](**arguments)

    # --- evaluation: rates count the tokens that are scored, each once

    def evaluate(self) -> dict[str, Any]:
        """The test split as the stage `evaluate` does it: windows overlap by half."""
        config, context = self.params.eval, self.plan.model.block_size
        model = self.loop.model.eval()
        start = time.perf_counter()
        result = evaluate(model, self.tokens, config)
        seconds = time.perf_counter() - start
        stride = max(1, int(context * config.stride))
        processed = sum(length for _, length, _ in windows(result.tokens, context, stride))
        return {"tokens": result.tokens, "processed": processed, "seconds": seconds, "bpb": result.bpb}

    def validate(self) -> dict[str, Any]:
        """The val split as the loop does it between steps: windows side by side."""
        start = time.perf_counter()
        bpb = self.loop._validate()
        seconds = time.perf_counter() - start
        return {"tokens": self.tokens.meta.splits["val"].tokens, "seconds": seconds, "bpb": bpb}

    def bpb(self, precision: str) -> dict[str, Any]:
        """Bits per byte of the test split with the matmuls in `precision`."""
        stream, config = np.asarray(self.tokens.split("test")), self.params.eval
        stride = max(1, int(self.plan.model.block_size * config.stride))
        dtype = {"float32": torch.float32, "bf16": torch.bfloat16}[precision]
        start = time.perf_counter()
        nats = token_nats(self.loop.model.eval(), stream, stride=stride, batch_size=config.batch_size, dtype=dtype)
        seconds = time.perf_counter() - start
        bpb = float(nats.sum()) / (math.log(2) * self.tokens.meta.splits["test"].bytes)
        return {"tokens": len(nats), "seconds": seconds, "bpb": bpb}

    # --- sampling

    def sample(self, repeats: int, batch: int, tokens: int) -> dict[str, Any]:
        """Seconds per token early and late in the context, rates of one and of many sequences, and of a loop that
        computes the whole context anew for every token."""
        context = self.plan.model.block_size
        tokens = min(tokens, context // 4)
        early, late = context // 8, context - tokens - 1
        found: dict[str, list[float]] = {name: [] for name in ("early", "late", "batch", "recompute", "past_block")}
        same_text = True
        for _ in range(repeats):
            found["early"].append(self._seconds_per_token(1, early, tokens))
            found["late"].append(self._seconds_per_token(1, late, tokens))
            found["batch"].append(self._seconds_per_token(batch, early, tokens) / batch)
            seconds, text = self._recompute(late, tokens)
            found["recompute"].append(seconds)
            cached = generate(self.loop.model, [self._prompt(late)], self._config(tokens), NEVER)
            same_text &= cached[0] == text
            found["past_block"].append(self._seconds_per_token(1, early, 2 * context))
        return {name: statistics.median(values) for name, values in found.items()} | {
            "positions": {"early": [early, early + tokens], "late": [late, late + tokens]},
            "batch_size": batch,
            "same_text": same_text,
        }

    def _prompt(self, length: int) -> list[int]:
        return [int(i) for i in np.asarray(self.tokens.split("val")[:length])]

    def _config(self, n_tokens: int) -> SampleConfig:
        return dataclasses.replace(self.params.sample, n_tokens=n_tokens)

    def _seconds_per_token(self, sequences: int, prompt: int, n_tokens: int) -> float:
        """The first token, which reads the prompt, is taken off."""
        prompts, model = [self._prompt(prompt)] * sequences, self.loop.model.eval()
        took = []
        for n in (1, 1 + n_tokens):
            start = time.perf_counter()
            generate(model, prompts, self._config(n), NEVER)
            took.append(time.perf_counter() - start)
        return (took[1] - took[0]) / n_tokens

    @torch.inference_mode()
    def _recompute(self, prompt: int, n_tokens: int) -> tuple[float, list[int]]:
        """Generation as the simplest loop does it: seconds per token, and the tokens."""
        ids, config, model = self._prompt(prompt), self._config(n_tokens), self.loop.model.eval()
        uniform = np.random.default_rng([config.seed, 0])
        start = time.perf_counter()
        for _ in range(n_tokens):
            logits = model(torch.tensor([ids[-model.context :]], device=self.machine.device))[0, -1]
            ids.append(choose(logits.double().cpu().numpy(), config, uniform))
        return (time.perf_counter() - start) / n_tokens, ids[prompt:]
