"""What `isoflop.inspect` found, as tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Found = Mapping[str, Any]

TITLES = {
    "embedding": "embeddings",
    "attention": "attention",
    "mlp": "MLP",
    "block_norms": "norms of blocks",
    "final_norm": "final norm",
    "head": "head",
    "mtp": "second token (mtp)",
}


def render(found: Found) -> None:
    """Print all tables; `found` is what `isoflop.inspect.describe` returns."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{escape(found['name'])}[/] ({found['kind']}; weights: {found['weights']})\n")
    console.print(_parameters(found))
    console.print(f"{found['parameters']['flops_per_token']:,} FLOPs per trained token\n")
    console.print(_shapes(found))
    console.print("\n".join(["", *_findings(found), ""]))
    console.print(_circuits(found))
    console.print(
        "QK = W_Q^T W_K without RoPE (distance 0), OV = W_O W_V; both without biases, gains, and QK-norm. "
        "sigma: largest singular value."
    )


def _parameters(found: Found) -> Table:
    table = Table(title="parameters", title_justify="left")
    table.add_column("part")
    table.add_column("parameters", justify="right")
    table.add_column("%", justify="right")
    for part, entry in found["parameters"]["parts"].items():
        tied = part == "head" and found["model"]["tie_embeddings"]
        if entry["count"] or tied:
            count = "tied" if tied else f"{entry['count']:,}"
            table.add_row(TITLES[part], count, "" if tied else f"{entry['percent']:.1f}")
    table.add_section()
    table.add_row("total", f"{found['parameters']['total']:,}", "100.0")
    return table


def _shapes(found: Found) -> Table:
    table = Table(title="shapes of one forward pass, each stage when it is done", title_justify="left")
    table.add_column("stage")
    table.add_column("shape")
    for stage, shape in _blocks_together(found["shapes"]):
        table.add_row(stage, str(tuple(shape)))
    return table


def _blocks_together(shapes: list[dict[str, Any]]) -> Iterator[tuple[str, list[int]]]:
    """Neighbouring blocks with the same stages and shapes as one: `blocks.0-3.mlp`."""

    def layer(entry: Mapping[str, Any]) -> str:
        name: str = entry["stage"]
        return name.split(".")[1] if name.startswith("blocks.") else ""

    groups: list[tuple[list[str], list[tuple[str, list[int]]]]] = []  # layers, what each of them holds
    for number, entries in groupby(shapes, layer):
        held = [(entry["stage"].removeprefix(f"blocks.{number}"), entry["shape"]) for entry in entries]
        if number and groups and groups[-1][1] == held:
            groups[-1][0].append(number)
        else:
            groups.append(([number], held))
    for layers, held in groups:
        span = layers[0] if len(layers) == 1 else f"{layers[0]}-{layers[-1]}"
        yield from ((f"blocks.{span}{stage}" if span else stage, shape) for stage, shape in held)


def _findings(found: Found) -> Iterator[str]:
    causal, loss, memory = found["causality"], found["loss"], found["memory"]
    if causal["causal"]:
        yield (
            f"causal: no gradient from an output to a later token; the last of {causal['positions']} outputs depends "
            f"on {causal['reach']} tokens"
        )
    else:
        yield f"[bold red]NOT CAUSAL[/]: a gradient of {causal['future_gradient']:.2e} reaches a later token"
    yield (
        f"initial loss: {loss['initial']:.4f} nats per token, ln V = {loss['ln_v']:.4f} "
        f"({loss['initial'] - loss['ln_v']:+.4f}), on {loss['tokens']:,} tokens ({escape(loss['on'])})"
    )
    if loss["now"] is not None:
        yield f"loss of these weights on the same tokens: {loss['now']:.4f} nats per token"
    yield (
        f"memory in float32: weights {_size(memory['weights'])}, KV cache of one sequence of {memory['context']:,} "
        f"tokens {_size(memory['kv_cache'])}"
    )


def _circuits(found: Found) -> Table:
    size = found["model"]["d_model"] // found["model"]["n_head"]
    table = Table(title=f"circuits of heads, rank at most {size}", title_justify="left")
    for column in ("layer", "kind", "head", "KV head", "QK rank", "QK sigma", "OV rank", "OV sigma"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for _, heads in groupby(found["circuits"], lambda entry: entry["layer"]):
        for c in heads:
            cells = (c["layer"], c["kind"], c["head"], c["kv_head"], c["qk_rank"], f"{c['qk_top']:.3g}")
            table.add_row(*map(str, (*cells, c["ov_rank"], f"{c['ov_top']:.3g}")))
        table.add_section()
    return table


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.2f} GiB"
