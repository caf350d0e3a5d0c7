"""The first screen: what to know before anything else, and the answer in two sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from isoflop.reporting.markup import code, esc
from isoflop.reporting.text import bpb, flops, interval, listed, signed, span

MARKS = {"exploratory": "exploratory, ", "earlier": "earlier, "}


def notices(study: dict[str, Any]) -> list[str]:
    """What makes the numbers something else than they seem."""
    return list(_notices(study))


def _notices(study: dict[str, Any]) -> Iterator[str]:
    corpus, control = study["corpus"], study["arms"][0]
    if corpus["fallback"]:
        yield (
            f"**These results are not on {titled(corpus['requested'])}.** It could not be had "
            f"({esc(corpus['fallback_reason'])}), and the embedded story grammar took its place. "
            f"For the real corpus, once it can be reached: {code(corpus['fetch_command'])}."
        )
    if mismatch := study["budget"]["mismatch"]:
        each = listed([f"{code(entry['label'])} with {entry['ratio']:.3f} times its FLOPs" for entry in mismatch])
        yield (
            f"**Compute is not equal.** Against the control, {each} trained outside the tolerance of "
            f"{100 * study['budget']['tolerance']:g} %: a difference there may be the budget's."
        )
    if not control["bpb"]["n"]:
        yield f"**There is nothing to compare with.** The control has no result: {_no_result(control)}."


def answer(study: dict[str, Any]) -> str:
    """Two sentences: the verdicts, and what they hold for."""
    return f"{verdict_sentence(study)} {scope_sentence(study)}"


def verdict_sentence(study: dict[str, Any]) -> str:
    """The verdicts of the planned and exploratory arms; of earlier ones only where there are no others."""
    arms = [arm for arm in study["arms"] if arm["comparison"]]
    arms = [arm for arm in arms if arm["role"] != "earlier"] or arms
    if not arms:
        return f"There is nothing to compare: only the control {code(study['control'])} was trained."
    text = _one(arms[0], study) if len(arms) == 1 else _several(arms, study)
    return f"{text}."


def _one(arm: dict[str, Any], study: dict[str, Any]) -> str:
    verdict, contrast = arm["comparison"]["verdict"], arm["comparison"]["contrast"]
    name, control, margin = code(arm["label"]), code(study["control"]), f"{study['study']['margin']:g}"
    if arm["role"] in MARKS:
        name += f" ({arm['role']})"
    if verdict["word"] == "equivalent" and arm["comparison"]["identical"]:
        return (
            f"{name} gave exactly the result of the control {control}: the same bits per byte with every seed, to the "
            "last digit, so what it changes never reached the weights"
        )
    known = f"the measured difference is {signed(contrast['difference'])} bits per byte "
    known += f"(95 % interval {interval(contrast['interval'])})"
    if verdict["word"] in ("better", "worse"):
        beyond = "more than" if verdict["beyond_margin"] else "not shown to be more than"
        size = f"{bpb(abs(contrast['difference']))} bits per byte (95 % interval of the difference "
        size += f"{interval(contrast['interval'])})"
        return f"{name} is {verdict['word']} than the control {control} by {size}, {beyond} the margin of {margin}"
    if verdict["word"] == "equivalent":
        text = f"{name} is equivalent to the control {control} within the margin of {margin}: {known}"
        return text + (f", detectably {verdict['detected']} but by less than that" if verdict["detected"] else "")
    if verdict["word"] == "inconclusive":
        return f"Whether {name} differs from the control {control} is open: {known}, and {_after_colon(arm, study)}"
    text = f"There is no verdict on {name} against the control {control} ({_after_colon(arm, study)})"
    if contrast["n"] == 1:
        text += f"; the one pair of seeds differs by {signed(contrast['difference'])} bits per byte"
    return text


def _several(arms: Sequence[dict[str, Any]], study: dict[str, Any]) -> str:
    margin = f"{study['study']['margin']:g}"
    endings = {
        "better": ("is better", "are better"),
        "worse": ("is worse", "are worse"),
        "equivalent": (f"is equivalent within {margin}", f"are equivalent within {margin}"),
        "inconclusive": ("is inconclusive", "are inconclusive"),
        "no verdict": ("has no verdict", "have no verdict"),
    }
    groups = []
    for word, (one, many) in endings.items():
        names = [_with_size(arm) for arm in arms if arm["comparison"]["verdict"]["word"] == word]
        if names:
            groups.append(f"{listed(names)} {one if len(names) == 1 else many}")
    return f"Against the control {code(study['control'])} (differences in bits per byte), {'; '.join(groups)}"


def _with_size(arm: dict[str, Any]) -> str:
    mark, size = MARKS.get(arm["role"], ""), signed(arm["comparison"]["contrast"]["difference"])
    return f"{code(arm['label'])} ({mark}{size})"


def _after_colon(arm: dict[str, Any], study: dict[str, Any]) -> str:
    """`7 further seeds per arm would settle it with a chance of 80 %`, or why there is no verdict."""
    return verdict_text(arm, study).split(": ", 1)[1]


def verdict_text(arm: dict[str, Any], study: dict[str, Any]) -> str:
    """The verdict in its own words; where there is none, the reason behind the reason."""
    verdict = arm["comparison"]["verdict"]
    if verdict["word"] == "no verdict" and (reason := _no_result(arm) or _no_result(study["arms"][0])):
        return f"no verdict: {reason}"
    text = str(verdict["text"]).replace("%", " %")
    if verdict["word"] == "equivalent" and arm["comparison"]["identical"]:
        text += " (the same to the last digit)"
    return esc(text)


def _no_result(arm: dict[str, Any]) -> str:
    """Why an arm has no finished seed; empty where it has one."""
    if arm["bpb"]["n"]:
        return ""
    n = len(arm["diverged"])
    if not n:
        return f"{code(arm['label'])} has no finished run"
    return f"{'the only seed' if n == 1 else f'all {n} seeds'} of {code(arm['label'])} diverged"


def scope_sentence(study: dict[str, Any]) -> str:
    """Seeds, compute, corpus and noise."""
    arms, noise = study["arms"], study["noise"]
    counts = [arm["bpb"]["n"] for arm in arms if arm["role"] != "earlier"]
    low, high = min(counts), max(counts)
    seeds = "one seed" if (low, high) == (1, 1) else f"{span(low, high)} finished seeds"
    where = f"with {seeds} per arm, at {flops(study['budget']['flops'])} FLOPs of training on {corpus_name(study)}"
    if noise["sd"] is None:
        return f"This is {where}; how far chance alone moves a run is not known from {_control_seeds(noise['n'])}."
    return f"This is {where}; seeds alone move the control by {bpb(noise['sd'])} bits per byte (standard deviation)."


def _control_seeds(n: int) -> str:
    return "one seed of the control" if n else "a control without a finished seed"


def corpus_name(study: dict[str, Any]) -> str:
    """The corpus in words, with the fallback said."""
    corpus = study["corpus"]
    return titled(corpus["source"]) + (f" (not {titled(corpus['requested'])})" if corpus["fallback"] else "")


def titled(source: str) -> str:
    """A source of data in words."""
    return {"grammar": "the embedded story grammar", "tinystories": "TinyStories"}.get(source) or code(source)


def setting(study: dict[str, Any]) -> str:
    """Study, corpus and compute in one line."""
    corpus, budget = study["corpus"], study["budget"]
    revision = f", revision {code(corpus['revision'][:12])}" if corpus["revision"] else ""
    compute = (
        "compute is not equal, see above" if budget["mismatch"] else f"equal within {100 * budget['tolerance']:g} %"
    )
    return (
        f"Study {code(study['study']['name'])}. Corpus: {corpus_name(study)}{revision}. Training compute: "
        f"{flops(budget['flops'])} FLOPs per run ({compute}). Smallest difference that matters: "
        f"{study['study']['margin']:g} bits per byte."
    )
