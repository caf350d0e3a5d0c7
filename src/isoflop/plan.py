"""An arm made concrete: complete configuration, the data it will read, and predictions made before it runs."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from isoflop.config import ModelConfig, TokenizerSpec, TrainConfig
from isoflop.errors import IsoflopError
from isoflop.files import digest_of, write_text
from isoflop.model import cost
from isoflop.schedule import steps_for
from isoflop.schema import UNFIT, Problem, build, plain
from isoflop.tokens import TokenMeta

if TYPE_CHECKING:
    from isoflop.params import Arm


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """What is known before training. `first_loss` is ln V, in nats: the loss of a uniform guess."""

    parameters: int
    non_embedding_parameters: int
    flops_per_token: int
    steps: int
    tokens: int
    flops: float
    epochs: float
    first_loss: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """The tokens an arm trains on."""

    source: str
    fallback: bool
    train_tokens: int
    train_bytes: int
    val_tokens: int
    val_bytes: int
    test_tokens: int
    test_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """`experiments/plan/<arm>.yaml`: all that decides weights and history of a run, besides its seed and the code.

    What a run is called and kept by stands in `occasion.py`: were it here, another study would train everything anew.
    """

    arm: str
    tokenizer: str
    tokenizer_spec: TokenizerSpec
    model: ModelConfig
    train: TrainConfig
    config_hash: str  # of tokenizer, model and train: what two arms share if they are the same
    data_digest: str
    tokens_digest: str
    corpus: Corpus
    predicted: Prediction

    @property
    def tokens_per_step(self) -> int:
        return self.train.batch_size * self.model.block_size

    @property
    def config(self) -> dict[str, Any]:
        """What makes the configuration what it is, resolved, as plain data."""
        return {key: plain(getattr(self, key)) for key in ("tokenizer", "tokenizer_spec", "model", "train")}

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Read a plan. Raises IsoflopError where the file is missing or not what this code writes."""
        if not path.is_file():
            raise IsoflopError(f"{path}: no such plan; `dvc repro` makes it")
        problems: list[Problem] = []
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        stage = f"plan@{path.stem}"
        if isinstance(data, dict) and data.pop("seed", None) is not None:  # the copy in the folder of a run
            stage = f"train@{path.parent.name}"
        made: Any = build(cls, data, "", problems)
        if problems or made is UNFIT:
            found = "; ".join(f"{key} {rule}" for key, rule in problems)
            raise IsoflopError(f"{path}: {found}; written by another version? `dvc repro -s -f {stage}` makes it anew")
        plan: Plan = made
        return plan

    def to_yaml(self, **extra: Any) -> str:
        """The plan as YAML, keys in the order of the class."""
        return yaml.safe_dump(plain(self) | extra, sort_keys=False, allow_unicode=True)

    def write(self, path: Path) -> None:
        write_text(path, self.to_yaml())


def make_plan(arm: Arm, meta: TokenMeta) -> Plan:
    """Resolve `arm` against the tokens it will read.

    Raises IsoflopError for a budget below one step, warmup as long as the run, or splits shorter than a window.
    """
    model, train = ModelConfig(**vars(arm.model), vocab_size=meta.vocab_size), arm.train.config()
    _check_splits(arm, meta)
    return Plan(
        arm=arm.name,
        tokenizer=arm.tokenizer,
        tokenizer_spec=arm.tokenizer_spec,
        model=model,
        train=train,
        config_hash=digest_of(plain([arm.tokenizer_spec, model, train])),
        data_digest=meta.data_digest,
        tokens_digest=meta.tokens_digest,
        corpus=_corpus(meta),
        predicted=predict(arm, model, meta.splits["train"].tokens),
    )


def predict(arm: Arm, model: ModelConfig, train_tokens: int) -> Prediction:
    """Exact cost of the arm and the length of its run."""
    tokens_per_step = arm.train.batch_size * model.block_size
    flops_per_token = cost.flops_per_token(model)
    try:
        steps = steps_for(arm.train.budget, flops_per_token=flops_per_token, tokens_per_step=tokens_per_step)
    except IsoflopError as error:
        raise IsoflopError(f"params.yaml: arm {arm.name}: {error}") from None
    if arm.train.warmup_steps >= steps:
        raise IsoflopError(
            f"params.yaml: arm {arm.name}: train.warmup_steps = {arm.train.warmup_steps} does not leave a step of the "
            f"{steps} that the budget allows; lower it or raise train.budget"
        )
    tokens = steps * tokens_per_step
    return Prediction(
        parameters=cost.parameters(model),
        non_embedding_parameters=cost.non_embedding_parameters(model),
        flops_per_token=flops_per_token,
        steps=steps,
        tokens=tokens,
        flops=float(tokens * flops_per_token),
        epochs=round(tokens / train_tokens, 4),
        first_loss=round(math.log(model.vocab_size), 4),
    )


def _check_splits(arm: Arm, meta: TokenMeta) -> None:
    for name, split in meta.splits.items():
        if split.tokens < arm.model.block_size:
            raise IsoflopError(
                f"data/tokens/{meta.name}: the {name} split holds {split.tokens} tokens, less than one window of "
                f"model.block_size = {arm.model.block_size} (arm {arm.name}); raise data.max_bytes, "
                "data.val_bytes or data.test_bytes, or shorten the block"
            )


def _corpus(meta: TokenMeta) -> Corpus:
    sizes = {
        f"{name}_{unit}": getattr(split, unit) for name, split in meta.splits.items() for unit in ("tokens", "bytes")
    }
    return Corpus(source=meta.source["source"], fallback=meta.source["fallback"], **sizes)
