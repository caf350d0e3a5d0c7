"""Every section of params.yaml as a frozen dataclass without defaults.

They stand here and not beside what they configure because each stage validates the whole file before it
does any work, and most stages should not wait for torch to be imported. Rules that need more than one
value are methods named `problems`: they yield (key, sentence), and `params.py` makes one message of all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

Problems = Iterator[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """`study`: what is asked, and what would count as an answer."""

    name: str
    question: str
    margin: float  # bits per byte: the smallest difference that matters
    predictions: list[dict[str, object]]
    tuned: list[str]  # keys such as train.lr: arms that differ in nothing else are one arm, at its best setting on val
    ladder: dict[str, list[str]]  # family -> arms of several sizes and budgets, for isoFLOP curves

    def problems(self) -> Problems:
        if not self.margin > 0:
            yield "margin", "must be above 0 (bits per byte)"
        for i, prediction in enumerate(self.predictions):
            for key, rule in _prediction_problems(prediction):
                yield f"predictions.{i}.{key}", rule
        for key in self.tuned:
            if not key.startswith("train.") or key.startswith("train.budget") or key == "train.checkpoint_s":
                rule = "only settings of train other than its budget and checkpoint_s can be tuned"
                yield "tuned", f"holds {key!r}: {rule}"
        families = [arm for arms in self.ladder.values() for arm in set(arms)]
        for arm in sorted({arm for arm in families if families.count(arm) > 1}):
            yield "ladder", f"has the arm {arm!r} in more than one family"


def _prediction_problems(prediction: dict[str, object]) -> Problems:
    """A prediction holds arm, direction, and where it has them size and confidence."""
    for key in prediction.keys() - {"arm", "direction", "size", "confidence"}:
        yield key, "is unknown: a prediction holds arm, direction, size, confidence"
    if not isinstance(prediction.get("arm"), str):
        yield "arm", "must name an arm"
    if prediction.get("direction") not in ("better", "worse", "same"):
        yield "direction", "must be better, worse or same"
    for key, top in (("size", float("inf")), ("confidence", 1.0)):
        value = prediction.get(key, 0.0)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0 <= float(str(value)) <= top and float(str(value)) < float("inf")):
            yield key, "must be a number from 0 to 1" if top == 1 else "must be bits per byte, not negative"


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """`data`: which stories, and how many."""

    source: str  # tinystories | grammar | path or URL of a text file
    offline: Literal["grammar", "fail"]
    timeout_s: float
    max_bytes: int  # bytes of the training split, at most
    val_bytes: int
    test_bytes: int
    drop_duplicates: bool
    grammar_seed: int

    def problems(self) -> Problems:
        for key in ("max_bytes", "val_bytes", "test_bytes"):
            if getattr(self, key) < 1:
                yield key, "must be at least 1 byte"
        if not self.timeout_s > 0:
            yield "timeout_s", "must be above 0 seconds"
        if self.grammar_seed < 0:
            yield "grammar_seed", "must not be negative"
        if not self.source:
            yield "source", "must be tinystories, grammar, or the path or URL of a text file"


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec:
    """One entry of `tokenizers`."""

    kind: Literal["byte", "gpt2", "bpe"]
    vocab_size: int | None = None  # of a trained BPE, end-of-story token included

    def problems(self) -> Problems:
        if self.kind == "bpe":
            if self.vocab_size is None:
                yield "vocab_size", "is missing: a bpe tokenizer needs its size, such as 4096"
            elif self.vocab_size < 257:
                yield "vocab_size", "must be at least 257: 256 bytes and the end-of-story token"
        elif self.vocab_size is not None:
            yield "vocab_size", f"must be left out: the {self.kind} vocabulary has its own size"


@dataclass(frozen=True, kw_only=True)
class BiasConfig:
    """`model.bias`: which matrices have a bias beside them."""

    qkv: bool
    proj: bool  # attention's output projection
    mlp: bool


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """`model`: the architecture, without what the tokenizer decides."""

    n_layer: int
    n_head: int
    n_kv_head: int  # n_head: multi-head; 1: multi-query; between: grouped-query attention
    d_model: int
    d_ff: int
    block_size: int  # tokens of context
    norm: Literal["rmsnorm", "layernorm"]
    positions: Literal["rope", "learned", "none"]
    mlp: Literal["swiglu", "gelu", "relu2"]
    attention: list[Literal["softmax", "linear"]]  # a pattern: layer i has entry i modulo its length
    window: list[int]  # keys that a query sees, itself included; 0: all. A pattern as well
    qk_norm: bool
    bias: BiasConfig
    tie_embeddings: bool
    dropout: float
    mtp: int  # further tokens predicted in training: 0 or 1
    mtp_weight: float
    rope_theta: float
    norm_eps: float
    init: Literal["gpt2", "torch"]
    init_std: float

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_head

    def attention_of(self, layer: int) -> str:
        """Kind of attention in a layer (0-based)."""
        return self.attention[layer % len(self.attention)]

    def window_of(self, layer: int) -> int:
        """Window of a layer; 0 where it has none."""
        return self.window[layer % len(self.window)]

    def problems(self) -> Problems:
        sizes = ("n_layer", "n_head", "n_kv_head", "d_model", "d_ff", "block_size")
        small = [key for key in sizes if getattr(self, key) < 1]
        for key in small:
            yield key, "must be at least 1"
        for key in ("rope_theta", "norm_eps", "init_std"):
            if not getattr(self, key) > 0:
                yield key, "must be above 0"
        if not 0 <= self.dropout < 1:
            yield "dropout", "must lie in [0, 1)"
        if self.mtp not in (0, 1):
            yield "mtp", "must be 0 or 1"
        if self.mtp_weight < 0:
            yield "mtp_weight", "must not be negative"
        if not small:
            yield from self._shape_problems()
            yield from self._pattern_problems()

    def _shape_problems(self) -> Problems:
        if self.n_head % self.n_kv_head:
            yield "n_kv_head", f"does not divide model.n_head = {self.n_head}"
        if self.d_model % self.n_head:
            yield "n_head", f"does not divide model.d_model = {self.d_model}"
        elif self.head_dim % 2 and self.positions == "rope":
            yield (
                "d_model",
                f"gives an odd head size, {self.d_model} / {self.n_head} = {self.head_dim}: "
                "RoPE rotates pairs and needs an even one",
            )
        if self.block_size < 2 + self.mtp:
            why = "half a window is context in evaluation" if not self.mtp else "mtp predicts one token further"
            yield "block_size", f"must be at least {2 + self.mtp}: {why}"

    def _pattern_problems(self) -> Problems:
        for key in ("attention", "window"):
            length = len(getattr(self, key))
            if not 1 <= length <= self.n_layer:
                yield key, f"must be a pattern of 1 to model.n_layer = {self.n_layer} entries"
                return
        if any(window < 0 for window in self.window):
            yield "window", "must not be negative (0: no window)"
        both = [i for i in range(self.n_layer) if self.window_of(i) and self.attention_of(i) == "linear"]
        if both:
            yield "window", f"is set for the linear layer {both[0]}: a linear layer has no window, use 0 there"


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ModelShape):
    """A model's architecture, complete: the shape and the vocabulary of the arm's tokenizer."""

    vocab_size: int


@dataclass(frozen=True, kw_only=True)
class Budget:
    """`train.budget`: exactly one of the three is set."""

    flops: float | None = None
    tokens: float | None = None
    steps: float | None = None

    def problems(self) -> Problems:
        given = {key: value for key, value in vars(self).items() if value is not None}
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            yield "", f"must set exactly one of flops, tokens, steps (the others null), found {found}"
        for key, value in given.items():
            if not 0 < value < float("inf"):
                yield key, "must be above 0 and finite"
            elif key != "flops" and value != int(value):
                yield key, "must be a whole number"


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """What of `train` decides weights and history: budget, optimiser, schedule, and what is measured on the way."""

    budget: Budget
    batch_size: int  # sequences per optimiser step
    grad_accum: int  # the batch is computed in this many parts; the result is the same up to rounding
    optimizer: Literal["adamw", "muon"]
    lr: float
    min_lr: float
    warmup_steps: int
    muon_lr: float  # matrices of the blocks under `muon`; follows the same schedule, relative to its own peak
    muon_momentum: float
    weight_decay: float  # on matrices only
    beta1: float
    beta2: float
    grad_clip: float  # of the gradient's global L2 norm; 0: none
    precision: Literal["auto", "float32", "bf16"]
    compile: Literal["auto", "always", "never"]
    evals: int  # measurements of val bpb, at equal fractions of the budget
    log_points: int  # rows of history.csv, at equal fractions of the budget

    def problems(self) -> Problems:
        for key in ("batch_size", "grad_accum", "evals", "log_points"):
            if getattr(self, key) < 1:
                yield key, "must be at least 1"
        if self.grad_accum > 0 and self.batch_size % self.grad_accum:
            yield "grad_accum", f"does not divide train.batch_size = {self.batch_size}"
        for key in ("lr", "muon_lr"):
            if not getattr(self, key) > 0:
                yield key, "must be above 0"
        if not 0 <= self.min_lr <= self.lr:
            yield "min_lr", f"must lie between 0 and train.lr = {self.lr}"
        for key in ("warmup_steps", "weight_decay", "grad_clip"):
            if not getattr(self, key) >= 0:
                yield key, "must not be negative"
        for key in ("beta1", "beta2", "muon_momentum"):
            if not 0 <= getattr(self, key) < 1:
                yield key, "must lie in [0, 1)"


@dataclass(frozen=True, kw_only=True)
class TrainSection(TrainConfig):
    """`train` of params.yaml, complete: also how a run is kept, which cannot be seen in its result."""

    checkpoint_s: float  # seconds between checkpoints to resume from

    def config(self) -> TrainConfig:
        """What decides weights and history."""
        return TrainConfig(**{field.name: getattr(self, field.name) for field in fields(TrainConfig)})

    def problems(self) -> Problems:
        yield from super().problems()
        if not self.checkpoint_s > 0:
            yield "checkpoint_s", "must be above 0 seconds"


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """`eval`: how bits per byte are counted on the test split."""

    stride: float  # by which the window advances, as a fraction of the context
    contexts: list[int]  # further contexts to score at, in tokens; the headline figure is at block_size
    rope_scaling: Literal["none", "linear", "ntk", "yarn"]  # for contexts beyond block_size
    batch_size: int  # windows at a time; speed only

    def problems(self) -> Problems:
        if not 0 < self.stride <= 0.5:
            yield "stride", "must lie in (0, 0.5]: every token is owed at least half a window of context"
        if self.batch_size < 1:
            yield "batch_size", "must be at least 1"
        if any(context < 2 for context in self.contexts):
            yield "contexts", "must be at least 2 tokens each"


@dataclass(frozen=True, kw_only=True)
class SampleConfig:
    """`sample`: text generated by every run under the same prompts and seed."""

    prompts: list[str]
    n_tokens: int
    temperature: float  # 0: greedy
    top_k: int | None
    top_p: float | None
    seed: int

    def problems(self) -> Problems:
        if not self.prompts:
            yield "prompts", "must hold at least one prompt (an empty string starts a story)"
        if self.n_tokens < 1:
            yield "n_tokens", "must be at least 1"
        if not self.temperature >= 0:
            yield "temperature", "must not be negative (0 is greedy)"
        if self.top_k is not None and self.top_k < 1:
            yield "top_k", "must be at least 1, or null for no limit"
        if self.top_p is not None and not 0 < self.top_p <= 1:
            yield "top_p", "must lie in (0, 1], or null for no limit"
        if self.seed < 0:
            yield "seed", "must not be negative"


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """`report`: what the arms are compared with."""

    control: str
