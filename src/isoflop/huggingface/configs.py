"""A model's configuration as the config.json of a family, and back. Pure functions of plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isoflop.config import ModelConfig
from isoflop.errors import IsoflopError
from isoflop.huggingface.families import LLAMA, Family
from isoflop.schema import UNFIT, Problem, build


def to_config(config: ModelConfig, family: Family, eos: int) -> dict[str, Any]:
    """config.json of a model that `family` can express. `eos` begins and ends a text."""
    values: dict[str, Any] = {"architectures": [family.architecture]}
    values |= {key: options[0] for key, options in family.constants.items()}
    values |= {theirs: getattr(config, ours) for ours, theirs in family.keys.items()}
    if family.rotates:
        # Version 5 of transformers reads rope_parameters, earlier ones rope_theta.
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": config.rope_theta}
        values |= {"attention_bias": config.bias.qkv or config.bias.proj, "attention_dropout": 0.0}
        # Llama's is computed from the others, Qwen3's is 128 where config.json is silent.
        values |= {"mlp_bias": config.bias.mlp} if family is LLAMA else {"head_dim": config.head_dim}
    else:
        values |= {"embd_pdrop": config.dropout, "attn_pdrop": config.dropout, "resid_pdrop": config.dropout}
    return values | {"bos_token_id": eos, "eos_token_id": eos, "dtype": "float32"}


def from_config(values: Mapping[str, Any], family: Family, source: str) -> ModelConfig:
    """The configuration of a config.json, for use and not for training on: dropout 0.

    Raises IsoflopError that lists all keys of `source` that are missing or say what this model does not do.
    """
    problems = _foreign(values, family)
    known = {**family.defaults, **values}
    problems += [f"{key} is missing" for key in family.keys.values() if key not in known]
    if problems:
        raise IsoflopError(f"{source}: {'; '.join(problems)}; it cannot be imported as {family.title}")
    settings = {ours: known[theirs] for ours, theirs in family.keys.items()}
    if family.rotates:
        settings["rope_theta"] = _rope(values).get("rope_theta", settings["rope_theta"])
        settings["n_kv_head"] = settings["n_kv_head"] or settings["n_head"]
        bias = {"qkv": known["attention_bias"], "proj": known["attention_bias"], "mlp": known.get("mlp_bias", False)}
    else:
        settings["d_ff"] = settings["d_ff"] or 4 * settings["d_model"]
        settings |= {"n_kv_head": settings["n_head"], "rope_theta": 10000.0}
        bias = {"qkv": True, "proj": True, "mlp": True}
    settings |= dict(family.fixed) | {"attention": ["softmax"], "window": [0], "bias": bias}
    settings |= {"qk_norm": family.qk_norm, "dropout": 0.0, "mtp": 0, "mtp_weight": 0.0, "init": "gpt2"}
    found: list[Problem] = []
    config: Any = build(ModelConfig, settings, "model", found)
    if found or config is UNFIT:
        raise IsoflopError(f"{source}: " + "; ".join(f"{key} {rule}" for key, rule in found))
    made: ModelConfig = config
    return made


def _foreign(values: Mapping[str, Any], family: Family) -> list[str]:
    found = [
        f"{key} = {values[key]!r}, this model has {' or '.join(map(repr, options))}"
        for key, options in family.constants.items()
        if key in values and values[key] not in options
    ]
    if family.rotates:
        kind = _rope(values).get("rope_type", _rope(values).get("type", "default"))
        if kind != "default":
            found.append(f"rope_type = {kind!r}, this model has 'default'")
        size, heads, head_dim = (
            values.get(k, family.defaults.get(k)) for k in ("hidden_size", "num_attention_heads", "head_dim")
        )
        if head_dim and size and heads and head_dim * heads != size:
            found.append(f"head_dim = {head_dim}, this model has hidden_size / num_attention_heads = {size / heads:g}")
    return found


def _rope(values: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = values.get("rope_parameters") or values.get("rope_scaling") or {}
    return found
