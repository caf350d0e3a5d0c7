"""Parameters, FLOPs per token and speed of every arm, relative to `base`.

    python benchmarks/arms.py [--rounds 7] [--seconds 0.4] [--only TEXT ...] [--json FILE]

Arms are those of all `experiments/*.yaml`, and `base` with one setting of the architecture, the tokenizer or the
optimiser changed; what trains alike (another learning rate, another name) is measured once. Each is a step of the
training loop, all of it, not compiled, on one thread. A round takes every arm once, each beside `base`: its figures are
medians over rounds of the quotient of the two, in process time, so that neither a slow minute nor another process
counts. A GPU is timed by the clock.

FLOP/s relative to base is tokens/s times FLOPs per token: below 1, an arm is slower than its FLOPs say. The ids are
random, and every text is as fast as another.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from isoflop import paths, training
from isoflop.config import Budget, ModelConfig, TokenizerSpec
from isoflop.machine import Machine, this_machine
from isoflop.params import Arm, Params, load_params, parse_params, resolve_arm
from isoflop.plan import Plan, make_plan
from isoflop.study import applied, read_study
from isoflop.tokens import SPLITS, SplitMeta, TokenMeta, TokenSet, bin_path, dtype_of

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY = {"byte": 256, "gpt2": 50257}  # a bpe has the size that its entry asks for
TOKENIZERS = {
    "byte": {"kind": "byte"},
    "bpe512": {"kind": "bpe", "vocab_size": 512},
    "bpe2048": {"kind": "bpe", "vocab_size": 2048},
    "gpt2": {"kind": "gpt2"},
}
# One change of params.yaml each; `base` is measured with each of them.
SETTINGS: list[dict[str, Any]] = [
    {"model.norm": "layernorm"},
    {"model.positions": "learned"},
    {"model.positions": "none"},
    {"model.mlp": "gelu", "model.d_ff": 576},  # the same parameters in two matrices as in three
    {"model.mlp": "relu2", "model.d_ff": 576},
    {"model.bias": {"qkv": True, "proj": True, "mlp": True}},
    {"model.tie_embeddings": False},
    {"model.dropout": 0.1},
    {"model.qk_norm": True},
    {"model.n_kv_head": 2},
    {"model.n_kv_head": 1},
    {"model.window": [0, 32]},
    {"model.window": [32]},
    {"model.window": [16]},
    {"model.attention": ["softmax", "linear"]},
    {"model.attention": ["linear"]},
    {"model.mtp": 1},
    *({"tokenizer": name} for name in TOKENIZERS if name != "byte"),
    {"train.optimizer": "adamw"},
    {"train.grad_accum": 2},
]
TOKENS = 1 << 17  # random ids to train on


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """An arm to measure. `names`: where it occurs, `study.arm` or nothing but the change."""

    arm: Arm
    names: tuple[str, ...]

    @property
    def config(self) -> ModelConfig:
        spec = self.arm.tokenizer_spec
        return ModelConfig(**vars(self.arm.model), vocab_size=spec.vocab_size or VOCABULARY[spec.kind])

    @property
    def key(self) -> tuple[str, ...]:
        """What decides parameters, FLOPs and speed."""
        train = self.arm.train
        alike = {"mtp_weight": 0.0, "rope_theta": 1.0, "norm_eps": 1.0, "init": "gpt2", "init_std": 1.0}
        shape = repr(dataclasses.replace(self.config, **alike))
        return shape, train.optimizer, str(train.batch_size), str(train.grad_accum)


def candidates() -> list[Candidate]:
    """`base`, then every distinct arm, under all names that it has. The working directory must be the root."""
    params = load_params(paths.PARAMS)
    made: dict[tuple[str, ...], Candidate] = {}
    for arm, name in [(one(params, {}), "base"), *_of_settings(params), *_of_studies()]:
        new = Candidate(arm=arm, names=(name,))
        known = made.get(new.key)
        made[new.key] = dataclasses.replace(known, names=(*known.names, name)) if known else new
    return list(made.values())


def one(params: Params, changes: dict[str, Any]) -> Arm:
    """`params` with `changes`, and with the tokenizers of this file."""
    tokenizers = {name: TokenizerSpec(**{"vocab_size": None} | entry) for name, entry in TOKENIZERS.items()}
    given = dataclasses.replace(params, arms={"x": changes}, tokenizers=params.tokenizers | tokenizers)
    return resolve_arm(given, "x")


def _of_settings(params: Params) -> Iterator[tuple[Arm, str]]:
    for changes in SETTINGS:
        yield one(params, changes), ", ".join(f"{k.removeprefix('model.')}={_brief(v)}" for k, v in changes.items())


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return "all" if all(value.values()) else "+".join(key for key, on in value.items() if on)
    return str(value).replace("'", "").replace(" ", "").lower()


def _of_studies() -> Iterator[tuple[Arm, str]]:
    text = paths.PARAMS.read_text(encoding="utf-8")
    for path in sorted(paths.STUDIES.glob("*.yaml")):
        params = parse_params(applied(text, path.stem, read_study(path.stem)), str(path))
        for name in params.arms:
            yield resolve_arm(params, name), f"{path.stem}.{name}"


# --- one arm in the training loop


class Steps:
    """The loop of `train` for one arm, on random ids, and its rate when asked."""

    def __init__(self, candidate: Candidate, machine: Machine, folder: Path) -> None:
        self.candidate = candidate
        self.machine = machine
        tokens = random_tokens(folder, candidate.config.vocab_size)
        self.plan = plan_of(candidate.arm, tokens.meta)
        self.loop = training._Loop(self.plan, 0, tokens, machine)
        self.index = 0
        self.rates: list[float] = []  # tokens/s of each round
        self.quotients: list[float] = []  # of this arm's rate and the rate of base beside it

    def rate(self, seconds: float) -> float:
        """Tokens/s over about `seconds`, one step at least."""
        start, steps, elapsed = self._now(), 0, 0.0
        while elapsed < seconds or not steps:
            self.loop._step(self.index)
            self.index, steps = self.index + 1, steps + 1
            elapsed = self._now() - start
        return steps * self.plan.tokens_per_step / elapsed

    def _now(self) -> float:
        if self.machine.device.type == "cuda":
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()


def plan_of(arm: Arm, meta: TokenMeta) -> Plan:
    """The arm without an end, at a rate at which random ids do not make it diverge."""
    budget = Budget(flops=None, tokens=None, steps=1_000_000)
    calm = dataclasses.replace(arm.train, budget=budget, warmup_steps=1, lr=1e-3, muon_lr=1e-3, min_lr=0.0)
    return make_plan(dataclasses.replace(arm, train=calm), meta)


def random_tokens(folder: Path, vocab_size: int) -> TokenSet:
    """Uniform ids, the same files for every arm with this vocabulary."""
    place, dtype = folder / str(vocab_size), dtype_of(vocab_size)
    if not place.is_dir():
        place.mkdir(parents=True)
        ids = np.random.default_rng(0).integers(vocab_size, size=TOKENS + 1)
        for split in SPLITS:
            ids.astype(dtype).tofile(bin_path(place, split))
    split_meta = SplitMeta(stories=1, tokens=TOKENS, bytes=TOKENS, sha256="", floor_bits=None)
    meta = TokenMeta(
        name="random",
        kind="byte",
        vocab_size=vocab_size,
        eos=vocab_size - 1,
        dtype=dtype,
        token_bytes=np.ones(vocab_size, np.int32),
        tokens_digest="",
        data_digest="",
        splits=dict.fromkeys(SPLITS, split_meta),
        duplicates={},
        skipped={},
        source={"source": "random ids", "fallback": False},
    )
    return TokenSet(folder=place, meta=meta)


# --- all of them


def measure(chosen: list[Candidate], machine: Machine, *, rounds: int, seconds: float) -> list[Steps]:
    """Every candidate beside the first, `rounds` times, in alternating order."""
    with tempfile.TemporaryDirectory() as folder:
        arms = [Steps(candidate, machine, Path(folder)) for candidate in chosen]
        for arm in arms:  # steps that do not count: memory is laid out, states are made
            arm.rate(0.0)
            arm.rate(0.0)
        base = arms[0]
        gc.collect()
        gc.disable()
        for number in range(rounds):
            for arm in arms[1:] if number % 2 == 0 else arms[:0:-1]:
                before = base.rate(seconds / 2)
                arm.rates.append(arm.rate(seconds))
                after = base.rate(seconds / 2)
                base.rates += [before, after]
                arm.quotients.append(arm.rates[-1] / statistics.mean((before, after)))
        gc.enable()
        base.rates = base.rates or [base.rate(seconds)]
        base.quotients = [1.0]
    return arms


def record(arm: Steps, base: Steps) -> dict[str, Any]:
    """The figures of one arm, as plain data."""
    cost, of_base = arm.plan.predicted, base.plan.predicted
    relative = statistics.median(arm.quotients)
    return {
        "names": list(arm.candidate.names),
        "parameters": cost.parameters,
        "flops_per_token": cost.flops_per_token,
        "tokens_per_s": statistics.median(arm.rates),
        "parameters_relative": cost.parameters / of_base.parameters,
        "flops_per_token_relative": cost.flops_per_token / of_base.flops_per_token,
        "tokens_per_s_relative": relative,
        "flops_per_s_relative": relative * cost.flops_per_token / of_base.flops_per_token,
        "quotients": arm.quotients,
    }


def render(found: dict[str, Any]) -> None:
    console = Console()
    console = console if console.is_terminal else Console(width=140)
    title = f"training step of every arm, {found['precision']}, one thread, medians of {found['rounds']} rounds"
    table = Table(title=title, title_justify="left")
    table.add_column("arm")
    for column in ("parameters", "MFLOP/token", "tokens/s", "tokens/s, base 1", "FLOP/s, base 1"):
        table.add_column(column, justify="right")
    for row in found["arms"]:
        first, *more = row["names"]
        table.add_row(
            escape(first) + "".join(f"\n  = {name}" for name in more),
            f"{row['parameters']:,}",
            f"{row['flops_per_token'] / 1e6:.2f}",
            f"{row['tokens_per_s']:,.0f}",
            f"{row['tokens_per_s_relative']:.3f}",
            f"{row['flops_per_s_relative']:.3f}",
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each arm and round (default: %(default)s)")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="arms whose name holds one of these texts")
    parser.add_argument("--precision", choices=["auto", "float32", "bf16"], default="auto")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error(f"--rounds = {given.rounds}: must be at least 1")
    output = given.json.resolve() if given.json else None
    os.chdir(ROOT)
    torch.set_num_threads(1)
    base, *others = candidates()
    if given.only:
        others = [c for c in others if any(text in name for text in given.only for name in c.names)]
        if not others:
            parser.error(f"--only {' '.join(given.only)}: no arm has such a name; without it all are listed")
    machine = this_machine(given.precision, paths.local() / "machine.json")
    arms = measure([base, *others], machine, rounds=given.rounds, seconds=given.seconds)
    about = {
        "cpu": machine.cpu,
        "device": machine.describe()["device"],
        "threads": machine.threads,
        "torch": torch.__version__,
        "precision": machine.precision,
        "rounds": given.rounds,
        "seconds": given.seconds,
        "load_average": os.getloadavg()[0],
    }
    found = about | {"arms": [record(arm, arms[0]) for arm in arms]}
    render(found)
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        print(f"written: {output}")


if __name__ == "__main__":
    main()
