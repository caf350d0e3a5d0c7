"""Optimisers and their parameter groups."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from isoflop.config import TrainConfig
from isoflop.muon import Muon


class Optimisers:
    """One or two optimisers stepped as one, each group at its share of the scheduled rate."""

    def __init__(self, model: nn.Module, train: TrainConfig, device: torch.device) -> None:
        named = list(model.named_parameters())
        matrices = [p for name, p in named if p.ndim >= 2]
        vectors = [p for name, p in named if p.ndim < 2]
        self.peak = train.lr
        self.parts: list[torch.optim.Optimizer] = []
        if train.optimizer == "muon":
            hidden = [p for name, p in named if p.ndim >= 2 and name.startswith(("blocks.", "mtp."))]
            hidden_ids = {id(p) for p in hidden}
            matrices = [p for p in matrices if id(p) not in hidden_ids]
            self.parts.append(
                Muon(hidden, lr=train.muon_lr, momentum=train.muon_momentum, weight_decay=train.weight_decay)
            )
        groups = [
            {"params": matrices, "weight_decay": train.weight_decay},
            {"params": vectors, "weight_decay": 0.0},  # gains of norms are not decayed
        ]
        self.parts.append(
            torch.optim.AdamW(groups, lr=train.lr, betas=(train.beta1, train.beta2), eps=1e-8, fused=True)
        )
        for part in self.parts:
            for group in part.param_groups:
                group["peak_lr"] = group["lr"]

    def step(self, rate: float) -> None:
        """Update at the scheduled rate (each group's own peak, scaled like `lr`), and clear the gradients."""
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = group["peak_lr"] * rate / self.peak
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, object]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: Iterable[dict[str, object]]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)
