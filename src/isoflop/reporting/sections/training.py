"""How the runs went: predicted against measured, speed, stability, position in the story."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isoflop.reporting.document import Block, Cell, Picture, Section, Text, cell, table
from isoflop.reporting.figures import Drawing
from isoflop.reporting.markup import code
from isoflop.reporting.text import NA, TIMES, count, duration, flops, listed, percent, plural, signed

EXACT = ("parameters", "flops_per_token", "steps", "tokens")
LARGE = 1024  # d_model from which matrix products can be expected to reach the peak
NAMES = {"flops_per_token": "FLOPs/token"}


def sections(study: dict[str, Any], drawings: dict[str, Drawing]) -> Iterator[Section]:
    yield Section(id="predicted", title="Predicted against measured", blocks=list(_predicted(study, drawings)))
    stability = [arm for arm in study["arms"] if arm["stability"]["rows"]]
    if "stability" in drawings or stability:
        yield Section(id="stability", title="Stability", blocks=list(_stability(study, drawings)))
    if "positions" in drawings:
        text = "A difference that grows along the story points to the use of context."
        blocks: list[Block] = [Picture(drawing=drawings["positions"]), Text(text=text)]
        yield Section(id="positions", title="By position in the story", blocks=blocks)


def _predicted(study: dict[str, Any], drawings: dict[str, Drawing]) -> Iterator[Block]:
    columns = ("arm", *(NAMES.get(key, key) for key in EXACT), "first loss: ln V", "measured", "off")
    columns += ("time at the peak", "measured", "MFU")
    yield table(columns, [_predicted_row(arm) for arm in study["arms"]])
    yield Text(text=" ".join(_exactness(study)))
    if text := _mfu(study):
        yield Text(text=text)
    if "speed" in drawings:
        yield Picture(drawing=drawings["speed"])


def _predicted_row(arm: dict[str, Any]) -> list[Cell]:
    cost, predicted = arm["cost"], arm["predicted"]
    loss = cost["first_loss"]
    off = None if loss is None else loss - predicted["first_loss"]
    ideal = _ideal_seconds(arm)
    return [
        cell(code(arm["label"])),
        *(_held(predicted[key], cost[key], measured=cost["measured"]) for key in EXACT),
        cell(f"{predicted['first_loss']:.3f}", sort=predicted["first_loss"]),
        cell(NA if loss is None else f"{loss:.3f}", sort=loss),
        cell(signed(off, 3), sort=off),
        cell(duration(ideal), sort=ideal),
        cell(duration(cost["train_s"]), sort=cost["train_s"]),
        cell(percent(cost["mfu"], 1), sort=cost["mfu"]),
    ]


def _held(predicted: float, found: float, *, measured: bool) -> Cell:
    if not measured:
        return cell(f"{count(predicted)} (planned)", sort=predicted)
    if predicted == found:
        return cell(count(found), sort=found)
    return cell(f"{count(found)} (predicted {count(predicted)})", sort=found)


def _ideal_seconds(arm: dict[str, Any]) -> float | None:
    peak = arm["cost"]["peak_flops"]
    return arm["cost"]["flops"] / peak if peak else None


def _exactness(study: dict[str, Any]) -> Iterator[str]:
    arms = [arm for arm in study["arms"] if arm["cost"]["measured"]]
    wrong = [arm for arm in arms if any(arm["predicted"][key] != arm["cost"][key] for key in EXACT)]
    names = "Parameters, FLOPs per token, steps and tokens"
    if arms and not wrong:
        yield f"{names} came out exactly as planned."
    elif wrong:
        yield f"{names} differ from the plan in {listed([code(arm['label']) for arm in wrong])}."
    losses = [arm["cost"]["first_loss"] for arm in arms if arm["cost"]["first_loss"] is not None]
    if losses:
        offs = [arm["cost"]["first_loss"] - arm["predicted"]["first_loss"] for arm in arms if arm["cost"]["first_loss"]]
        yield (
            "A model that knows nothing guesses each of V tokens alike and loses ln V nats; the first loss, before any "
            f"update, lies {signed(min(offs), 3)}"
            + (f" to {signed(max(offs), 3)}" if f"{min(offs):.3f}" != f"{max(offs):.3f}" else "")
            + " from it"
            + (": the initialisation is sound." if max(map(abs, offs)) < 0.1 else ", which is far for a sound start.")
        )


def _mfu(study: dict[str, Any]) -> str:
    arms = [arm for arm in study["arms"] if arm["cost"]["mfu"] and arm["cost"]["peak_flops"]]
    if not arms:
        return "Time and MFU cannot be held against a peak: no run's machine is known."
    shares = [percent(arm["cost"]["mfu"]) for arm in sorted(arms, key=lambda arm: float(arm["cost"]["mfu"]))]
    reach = shares[0] if shares[0] == shares[-1] else f"{shares[0]} to {shares[-1]}"
    precisions = listed(sorted({machine["precision"] for machine in study["facts"]["machines"]}), "or")
    return (
        "MFU is the counted FLOPs per second over the peak of one large matrix product on the same machine in the "
        f"run's precision ({flops(arms[0]['cost']['peak_flops'])} FLOP/s, {precisions}); the time at the peak is what "
        f"the budget would take at that speed. The runs reach {reach} of it. What keeps them from more, as far as the "
        f"shapes tell: {_small_products(arms[0])}normalisation, rotary embedding, softmax, loss and optimiser move "
        "memory without adding to the FLOPs that are counted. No profile was taken."
    )


def _small_products(arm: dict[str, Any]) -> str:
    model, train = arm["config"]["model"], arm["config"]["train"]
    if model["d_model"] >= LARGE:
        return ""
    rows = train["batch_size"] * model["block_size"] // train["grad_accum"]
    shape = f"{model['d_model']} {TIMES} {model['d_ff']}"
    return f"{count(rows)} tokens at a time through matrices of {shape} and less are small products; "


def _stability(study: dict[str, Any], drawings: dict[str, Drawing]) -> Iterator[Block]:
    if "stability" in drawings:
        yield Picture(drawing=drawings["stability"])
    columns = (
        "arm",
        "finished",
        "diverged",
        "gradient norm, median",
        "largest",
        "rows clipped",
        "largest rise of loss",
    )
    rows = []
    for arm in study["arms"]:
        found = arm["stability"]
        if not found["rows"] and not arm["diverged"]:
            continue
        numbers = (found["grad_norm_median"], found["grad_norm_max"])
        rows.append(
            [
                cell(code(arm["label"])),
                cell(arm["bpb"]["n"]),
                cell(len(arm["diverged"])),
                *(cell(NA if value is None else f"{value:.2f}", sort=value) for value in numbers),
                cell(percent(found["clipped"], 1), sort=found["clipped"]),
                cell(
                    NA if found["largest_rise"] is None else f"{found['largest_rise']:.3f}", sort=found["largest_rise"]
                ),
            ]
        )
    yield table(columns, rows)
    dead = sum(len(arm["diverged"]) for arm in study["arms"])
    text = f"{plural(dead, 'run')} diverged. " if dead else "No run diverged. "
    yield Text(
        text=f"{text}Gradient norms are those before clipping, over the logged steps after warmup of all finished "
        "seeds; the largest rise is of the training loss (nats per token) from one logged row to the next."
    )
