"""Measurements of a model as it stands: shapes on the way, causality, loss, and the circuits of its heads.

B batch, T time, D d_model, C head size, H query heads, K key-value heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isoflop.model.gpt import GPT

Stage = tuple[str, tuple[int, ...]]

# Weights are float32: what lies below its rounding, relative to the largest singular value, is no rank.
EPS = torch.finfo(torch.float32).eps


@dataclass(frozen=True, kw_only=True)
class Causality:
    """How far gradients reach back from an output. `future_gradient` is the largest one to a later token: exactly 0."""

    positions: int
    future_gradient: float
    reach: int  # tokens that the last output depends on, itself included

    @property
    def causal(self) -> bool:
        return self.future_gradient == 0


@dataclass(frozen=True, kw_only=True)
class Circuit:
    """A head's two products in the residual stream: D x D matrices of rank at most C (Elhage et al. 2021).

    QK = W_Q^T W_K says which token looks at which, OV = W_O W_V what is then moved. Left out are RoPE (the QK of
    distance 0), biases, gains of norms and the normalisation of queries and keys; a linear layer's decay and norm too.
    """

    layer: int
    head: int
    kv_head: int
    kind: str
    qk_rank: int
    qk_top: float  # largest singular value
    ov_rank: int
    ov_top: float


@torch.no_grad()
def stages(model: GPT, ids_BT: Tensor) -> list[Stage]:
    """Name and output shape of every module of one forward pass, in the order in which they finish.

    With `mtp`, its module follows, as training runs it.
    """
    seen: list[Stage] = [("ids", tuple(ids_BT.shape))]

    def note(name: str, module: nn.Module, inputs: Any, output: Tensor) -> None:
        seen.append((name, tuple(output.shape)))

    def run(prefix: str, forward: Any) -> Any:
        wanted = [
            (name, module)
            for name, module in model.named_modules()
            if name and name.startswith("mtp") == bool(prefix) and not isinstance(module, nn.Identity)
        ]
        handles = [module.register_forward_hook(partial(note, name)) for name, module in wanted]
        try:
            return forward()
        finally:
            for handle in handles:
                handle.remove()

    logits = run("", lambda: model(ids_BT))
    # The head is a product with a matrix, the embedding's where it is tied: no module that a hook could see.
    seen.append(("head (embedding)" if model.head is None else "head", tuple(logits.shape)))
    if model.mtp is not None:
        run("mtp", lambda: model.loss(ids_BT, ids_BT))
    return seen


def causality(model: GPT, ids_T: Tensor) -> Causality:
    """Gradients of three outputs (the first, a middle one, the last) with respect to every token's embedding."""
    t = len(ids_T)
    caught: list[Tensor] = []

    def catch(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        caught.append(output.detach().requires_grad_())
        return caught[0]

    handle = model.embedding.register_forward_hook(catch)
    try:
        hidden_TD = model.hidden(ids_T[None])[0]
    finally:
        handle.remove()
    worst, reach = 0.0, 0
    for position in sorted({0, t // 2, t - 1}):
        out = model.logits(hidden_TD[position]).sum()
        (gradient,) = torch.autograd.grad(out, caught[0], retain_graph=True)
        size_T = gradient[0].abs().amax(-1)
        worst = max([worst, *size_T[position + 1 :].tolist()])
        reach = position + 1 - int(size_T.nonzero()[0]) if size_T.any() else 0
    return Causality(positions=t, future_gradient=worst, reach=reach)


@torch.no_grad()
def mean_nats(model: GPT, streams_NT: Tensor) -> float:
    """Mean nats per next token over windows of T ids, T - 1 of them predicted; one window at a time."""
    total = 0.0
    for window_T in streams_NT:
        logits_TV = model(window_T[None, :-1])[0].float()
        total += F.cross_entropy(logits_TV, window_T[1:], reduction="sum").item()
    return total / (streams_NT.shape[0] * (streams_NT.shape[1] - 1))


@torch.no_grad()
def circuits(model: GPT) -> list[Circuit]:
    """Every head of every layer, linear ones included. The D x D products are never formed."""
    config, found = model.config, []
    shared = config.n_head // config.n_kv_head
    for layer, block in enumerate(model.blocks):
        attention: Any = block.attention
        q, k, v = (getattr(attention, x).weight.view(-1, config.head_dim, config.d_model) for x in "qkv")
        out = attention.out.weight.view(config.d_model, config.n_head, config.head_dim).permute(1, 0, 2)
        k, v = (x.repeat_interleave(shared, dim=0) for x in (k, v))
        qk, ov = spectrum(q.transpose(1, 2), k), spectrum(out, v)
        for head in range(config.n_head):
            found.append(
                Circuit(
                    layer=layer,
                    head=head,
                    kv_head=head // shared,
                    kind=config.attention_of(layer),
                    qk_rank=rank(qk[head], config.d_model),
                    qk_top=qk[head, 0].item(),
                    ov_rank=rank(ov[head], config.d_model),
                    ov_top=ov[head, 0].item(),
                )
            )
    return found


def spectrum(left_HDC: Tensor, right_HCD: Tensor) -> Tensor:
    """The C largest singular values of each `left @ right`, descending, float64, (H, C); the others are 0.

    With left = Q R and right^T = Q' R' they are those of R R'^T, which is C x C.
    """
    r_left = torch.linalg.qr(left_HDC.double(), mode="r").R
    r_right = torch.linalg.qr(right_HCD.double().transpose(-2, -1), mode="r").R
    values: Tensor = torch.linalg.svdvals(r_left @ r_right.transpose(-2, -1))
    return values


def rank(values: Tensor, size: int) -> int:
    """Numerical rank: singular values above `size` * eps of float32 * the largest (as numpy's matrix_rank has it)."""
    return int((values > size * EPS * values.max()).sum())
