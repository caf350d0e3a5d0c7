"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) for the matrices of all layers at once.

N matrices of one shape, R rows, C columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

A, B, C = 3.4445, -4.7750, 2.0315  # of the quintic iteration
ITERATIONS = 5
EPS = 1e-7
STACK = 1_500_000  # elements of a stack on a CPU: its bf16 copy stays in a core's cache


class Muon(torch.optim.Optimizer):
    """The update of `torch.optim.Muon`, with one batched matmul where that has one for each matrix.

    One by one the small matmuls of the iteration keep a core half idle. Momentum is Nesterov's, weight decay is
    decoupled, and a matrix with more rows than columns moves sqrt(R / C) times as far.
    """

    def __init__(self, params: Iterable[Tensor], *, lr: float, momentum: float, weight_decay: float) -> None:
        super().__init__(list(params), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            for params in stacks(group["params"]):
                self._update(params, group)

    def _update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        grads = [p.grad for p in params if p.grad is not None]
        momenta = [self.state[p].setdefault("momentum_buffer", torch.zeros_like(p)) for p in params]
        torch._foreach_lerp_(momenta, grads, 1 - group["momentum"])
        nesterov = torch._foreach_lerp(grads, momenta, group["momentum"])
        rows, columns = params[0].shape
        updates = orthogonalised(torch.stack(nesterov).bfloat16()).float()
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(params, updates.unbind(), alpha=-group["lr"] * max(1, rows / columns) ** 0.5)


def orthogonalised(g_NRC: Tensor) -> Tensor:
    """N matrices with their singular values near 1: five steps of a Newton-Schulz iteration, in bf16."""
    tall = g_NRC.shape[1] > g_NRC.shape[2]
    x = (g_NRC.mT if tall else g_NRC).contiguous()
    x = x / x.flatten(1).norm(dim=1)[:, None, None].clamp(min=EPS)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x.mT if tall else x


def stacks(params: list[Tensor]) -> Iterator[list[Tensor]]:
    """The parameters that have a gradient, by shape, in stacks that stay in a core's cache."""
    by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
    for p in params:
        if p.grad is not None:
            by_shape[p.shape].append(p)
    for alike in by_shape.values():
        count = len(alike) if alike[0].is_cuda else max(1, STACK // alike[0].numel())
        for i in range(0, len(alike), count):
            yield alike[i : i + count]
