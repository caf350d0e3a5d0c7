"""What the benchmark prints."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from measure import QUIET

console = Console()
if not console.is_terminal:
    console = Console(width=120)


def show(title: str, columns: list[str], rows: list[list[str]], caption: str = "") -> None:
    table = Table(title=title, caption=caption or None, title_justify="left", caption_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=i == 0)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def training(shape: str, found: dict[str, Any]) -> None:
    for part, title in (("single", "one process, all cores"), ("study", "one-thread processes, one per core")):
        modes = found[part]
        order = sorted(modes, key=lambda name: -modes[name].get("tokens_per_s", {"median": 0})["median"])
        show(
            f"{shape}: training, {title}",
            ["mode", "tokens/s", "quartiles", "repeats", "first steps", "batches"],
            [_mode(name, modes[name]) for name in order],
        )
    console.print(
        f"{shape}: single {found['single_ratio']:.2f}, study {found['study_ratio']:.2f} "
        f"(over as many processes of the peer: {found['study_ratio_to_parallel_peer']:.2f}); with the settings of "
        f"params.yaml: single {found['single_ratio_default']:.2f}, study {found['study_ratio_default']:.2f}"
    )
    if found["others"] > QUIET:
        console.print(
            f"other processes took up to {found['others']:.0%} of the machine: these figures cannot be relied on",
            style="bold red",
        )
    console.print()


def _mode(name: str, record: dict[str, Any]) -> list[str]:
    if "error" in record:
        return [name, "does not work", record["error"].strip().splitlines()[-1][:60], "", "", ""]
    rate = record["tokens_per_s"]
    if name == "ours: default":
        compiled = "compiled" if record["compile"] else "eager"
        name = f"{name} ({record['precision']} {compiled}, {record['optimizer']})"
    return [
        name,
        f"{rate['median']:,.0f}",
        f"{rate['q1']:,.0f} to {rate['q3']:,.0f}",
        str(len(rate["repeats"])),
        f"{record['first_steps_s']:.1f} s",
        f"{record['batch_share']:.2%}" if name.startswith("ours") else "",
    ]


def evaluation(found: dict[str, Any]) -> None:
    rates = found["tokens_per_s"]
    labels = {
        "train": "training step",
        "evaluate": "evaluate (test, windows overlap by half)",
        "float32": "the same, float32",
        "bf16": "the same, bf16",
        "validate": "validation in the loop (windows side by side)",
    }
    show(
        f"evaluation, {found['threads']} thread",
        ["", "tokens/s", "quartiles", "over training"],
        [
            [
                label,
                f"{rates[key]['median']:,.0f}",
                f"{rates[key]['q1']:,.0f} to {rates[key]['q3']:,.0f}",
                f"{rates[key]['median'] / rates['train']['median']:.2f}",
            ]
            for key, label in labels.items()
        ],
        f"other processes took up to {found['others']:.0%} of the machine; "
        f"bits per byte: float32 {found['bpb']['float32']:.6f}, bf16 {found['bf16_bpb_difference']:+.1e}",
    )


def sampling(found: dict[str, Any]) -> None:
    columns = ["shape", "early", "late", "late / early", "batch of 32", "past the block", "recompute", "same text"]
    show(
        "sampling, microseconds per token, 1 thread",
        columns,
        [
            [
                shape,
                *(f"{1e6 * one[key]:,.0f}" for key in ("early", "late")),
                f"{one['late_over_early']:.2f}",
                *(f"{1e6 * one[key]:,.0f}" for key in ("batch", "past_block", "recompute")),
                "yes" if one["same_text"] else "no",
            ]
            for shape, one in found.items()
        ],
    )


def tokenising(found: dict[str, Any]) -> None:
    show(
        f"tokenising {found['bytes'] / 1e6:,.0f} MB with {found['threads']} threads",
        ["tokenizer", "MB/s", "library alone", "ratio", "building it", "peak MB", "MB more per GB"],
        [
            [
                kind,
                f"{one['mb_per_s']:,.0f}",
                f"{one['peer_mb_per_s']:,.1f}" if "peer_mb_per_s" in one else "",
                f"{one['mb_per_s'] / one['peer_mb_per_s']:.2f}" if "peer_mb_per_s" in one else "",
                f"{one['build_s']:.1f} s",
                f"{one['peak_mb']:,.0f}",
                f"{one['growth_mb_per_gb']:,.0f}",
            ]
            for kind, one in found.items()
            if isinstance(one, dict)
        ],
    )


def imports(found: dict[str, Any]) -> None:
    show(
        "importing entry points",
        ["module", "seconds", "loads", "of which not needed"],
        [
            [module, f"{one['seconds']:.2f}", ", ".join(one.get("loads", [])), ", ".join(one.get("not_needed", []))]
            for module, one in found.items()
        ],
    )


def on_gpu(found: dict[str, Any]) -> None:
    show(
        "S1 on one GPU",
        ["mode", "tokens/s", "quartiles", "repeats", "first steps", "batches"],
        [_mode(name, record) for name, record in found["single"].items()]
        + [_mode(f"{count} seeds at once", record) for count, record in found["seeds"].items()],
        f"ours over the best other: {found['ratio']:.2f}; MFU {found['mfu']:.1%}",
    )
