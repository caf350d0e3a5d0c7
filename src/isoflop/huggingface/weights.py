"""A model's weights under the names and in the layouts of a family, and back. Pure functions of dicts of tensors.

What differs, beside the names:

- RoPE: here the pairs (0, 1), (2, 3), ... of a head turn together, in Llama and Qwen3 (0, C/2), (1, C/2 + 1), ...: the
  rows of q and k, and the gains of their norms, are reordered within each head. A score is a sum over pairs, whose
  order does not matter.
- GPT-2 has q, k and v in one matrix, and stores every matrix of its blocks as (in, out).
- `attention_bias` of Llama and Qwen3 is one switch for q, k, v and the output, and GPT-2 always has all biases: one
  that this model lacks is written as zeros.

A tied head is the embedding and stands in no dict. H heads, C head size.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from isoflop.config import BiasConfig, ModelConfig
from isoflop.errors import IsoflopError
from isoflop.huggingface.families import GPT2, Family, obstacles

State = Mapping[str, Tensor]

# Buffers that older checkpoints carry along: causal masks of GPT-2, rotation frequencies of Llama.
BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")


def to_family(state: State, config: ModelConfig, family: Family) -> dict[str, Tensor]:
    """Weights of this model as those of `family`; an `mtp` module is left out.

    Raises IsoflopError with every reason why the family cannot express the model.
    """
    if reasons := obstacles(config, family):
        raise IsoflopError(f"{family.title} cannot express this model: {'; '.join(reasons)}")
    biases = biases_in(family, config.bias)
    full = {name: tensor for name, tensor in state.items() if not name.startswith("mtp.")}
    for name, weight in list(full.items()):
        if _has_bias(module := name.removesuffix(".weight"), config, biases):
            full.setdefault(f"{module}.bias", torch.zeros(len(weight)))
    if family is GPT2:
        _join_qkv(full, config)
    names = _names(config, family, biases)
    return {theirs: _layout(ours, full[ours], config, family, back=False) for ours, theirs in names.items()}


def from_family(state: State, config: ModelConfig, family: Family) -> dict[str, Tensor]:
    """Weights of `family` as those of this model, float32. `config` is that of their config.json.

    Raises IsoflopError where names are missing or left over, or a tied head differs from the embedding.
    """
    prefix, rest = family.block.split(".")[0] + ".", dict(state)
    if not any(name.startswith(prefix) for name in rest):  # saved without the head around it
        rest = {name if name.startswith("lm_head") else prefix + name: tensor for name, tensor in rest.items()}
    rest = {name: tensor for name, tensor in rest.items() if not name.endswith(BUFFERS)}
    names = _names(config, family, config.bias)
    missing = [theirs for theirs in names.values() if theirs not in rest]
    if missing:
        raise IsoflopError(f"{family.title} weights: {_some(missing)} missing: not the weights of this config.json")
    made = {ours: _layout(ours, rest.pop(theirs), config, family, back=True) for ours, theirs in names.items()}
    head = rest.pop(f"{family.outer['head']}.weight", None)
    if head is not None and not torch.equal(head.float(), made["embedding.weight"]):
        raise IsoflopError(
            f"{family.title} weights: lm_head.weight differs from the embedding, but tie_word_embeddings is true in "
            "config.json (or left to its default): set it to false"
        )
    if rest:
        raise IsoflopError(f"{family.title} weights: {_some(list(rest))} unknown: not the weights of this config.json")
    if family is GPT2:
        _split_qkv(made, config)
    return made


def biases_in(family: Family, bias: BiasConfig) -> BiasConfig:
    """The biases that `family` has where this model has `bias`."""
    if family is GPT2:
        return BiasConfig(qkv=True, proj=True, mlp=True)
    attention = bias.qkv or bias.proj
    return BiasConfig(qkv=attention, proj=attention, mlp=bias.mlp)


def halves(rows: Tensor, heads: int) -> Tensor:
    """(H C, ...): interleaved pairs of each head -> first members, then second members."""
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).transpose(1, 2).flatten(0, 2)


def interleaved(rows: Tensor, heads: int) -> Tensor:
    """The inverse of `halves`."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).transpose(1, 2).flatten(0, 2)


def _layout(name: str, tensor: Tensor, config: ModelConfig, family: Family, *, back: bool) -> Tensor:
    """One tensor from this model's layout to the family's, or `back`; float32, memory of its own."""
    heads = {"q": config.n_head, "k": config.n_kv_head, "q_norm": 1, "k_norm": 1}
    module = name.split(".")[-2]
    if family.rotates and ".attention." in name and module in heads:
        tensor = (interleaved if back else halves)(tensor, heads[module])
    elif family is GPT2 and name.startswith("blocks.") and tensor.ndim == 2:
        tensor = tensor.T
    return tensor.detach().float().clone(memory_format=torch.contiguous_format)


def _names(config: ModelConfig, family: Family, bias: BiasConfig) -> dict[str, str]:
    """Parameter here -> parameter there. For GPT-2, q, k and v count as `attention.qkv` here."""
    modules = {ours: theirs for ours, theirs in family.outer.items() if ours != "head" or not config.tie_embeddings}
    for i in range(config.n_layer):
        modules |= {f"blocks.{i}.{ours}": f"{family.block}.{i}.{theirs}" for ours, theirs in family.inner.items()}
    return {
        f"{ours}.{part}": f"{theirs}.{part}"
        for ours, theirs in modules.items()
        for part in (("weight", "bias") if _has_bias(ours, config, bias) else ("weight",))
    }


def _has_bias(module: str, config: ModelConfig, bias: BiasConfig) -> bool:
    if module.endswith("norm"):
        return config.norm == "layernorm"
    if ".attention." in module:
        return bias.proj if module.endswith(".out") else bias.qkv
    return ".mlp." in module and bias.mlp


def _join_qkv(state: dict[str, Tensor], config: ModelConfig) -> None:
    for i in range(config.n_layer):
        for part in ("weight", "bias"):
            parts = [state.pop(f"blocks.{i}.attention.{x}.{part}") for x in "qkv"]
            state[f"blocks.{i}.attention.qkv.{part}"] = torch.cat(parts)


def _split_qkv(state: dict[str, Tensor], config: ModelConfig) -> None:
    for i in range(config.n_layer):
        for part in ("weight", "bias"):
            parts = state.pop(f"blocks.{i}.attention.qkv.{part}").chunk(3)
            state |= {f"blocks.{i}.attention.{x}.{part}": tensor for x, tensor in zip("qkv", parts, strict=True)}


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} {'is' if len(names) == 1 else 'are'}"
