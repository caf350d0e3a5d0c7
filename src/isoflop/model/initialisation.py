"""Initial weights. Each parameter draws from a generator of its own, seeded by its name: where two arms agree in name
and shape they begin with the same weights, whatever else differs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from isoflop.config import ModelConfig

OUTPUTS = ("attention.out.weight", "mlp.down.weight")  # what writes into the residual stream


@torch.no_grad()
def initialise(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """gpt2: N(0, init_std), output projections N(0, init_std / sqrt(2 L)), biases 0 (Radford et al. 2019).

    torch: what PyTorch's own layers do: embeddings N(0, 1), matrices and their biases uniform within
    1 / sqrt(fan-in). Gains of norms are 1 and their biases 0 in both.
    """
    parameters = dict(model.named_parameters())
    for name, parameter in parameters.items():
        generator = _generator(seed, name)
        if "norm" in name:
            parameter.fill_(1.0 if name.endswith("weight") else 0.0)
        elif config.init == "gpt2":
            _like_gpt2(parameter, name, config, generator)
        else:
            _like_torch(parameter, name, parameters, generator)
        if name.endswith("decay.bias"):
            # sigmoid(b)^(1/16) from 0.89 to 0.9999: heads begin with memories of about 10 to 10,000 tokens.
            parameter.copy_(torch.linspace(-1.7, 6.5, len(parameter)))


def _like_gpt2(parameter: Tensor, name: str, config: ModelConfig, generator: torch.Generator) -> None:
    if parameter.ndim < 2:
        parameter.zero_()
        return
    std = config.init_std / math.sqrt(2 * config.n_layer) if name.endswith(OUTPUTS) else config.init_std
    parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)


def _like_torch(parameter: Tensor, name: str, parameters: Mapping[str, Tensor], generator: torch.Generator) -> None:
    if name.startswith(("embedding", "position")):
        parameter.copy_(torch.randn(parameter.shape, generator=generator))
        return
    fan_in = parameters[name.rsplit(".", 1)[0] + ".weight"].shape[1]
    parameter.copy_((2 * torch.rand(parameter.shape, generator=generator) - 1) / math.sqrt(fan_in))


def _generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
