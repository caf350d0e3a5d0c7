"""Threats to validity, each from something that is known about this study, and the runs that were left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isoflop.reporting.document import Bullets, Section, Text, cell, table
from isoflop.reporting.markup import code, esc
from isoflop.reporting.sections.answer import titled
from isoflop.reporting.text import count, flops, listed, plural, seeds_text, span

FEW = 5  # seeds per arm; below it a t interval hangs on its assumption of normal noise
LISTED = 10  # arms left out for one reason
ODD_SPREAD = 2.0  # an arm this much noisier (or quieter) than the pooled fit says


def sections(study: dict[str, Any]) -> Iterator[Section]:
    items = [*_corpus(study), *_compute(study), *_seeds(study), *_provenance(study), *_scope(study)]
    items += [esc(warning) for warning in study["warnings"]]
    yield Section(id="threats", title="Threats to validity", blocks=[Bullets(items=items)])
    yield Section(id="excluded", title="Runs left out", blocks=[_excluded(study)])


def _corpus(study: dict[str, Any]) -> Iterator[str]:
    corpus, duplicates = study["corpus"], study["corpus"]["duplicates"]
    if corpus["fallback"]:
        yield (
            f"**Fallback corpus.** Asked for was {titled(corpus['requested'])}; the stories come from the embedded "
            "grammar, whose structure is simpler than that of written text. An effect here need not be one there."
        )
    elif corpus["source"] == "grammar":
        yield "**Synthetic corpus.** The stories come from a grammar; an effect here need not be one on written text."
    shared = duplicates.get("test_in_train", 0) + duplicates.get("test_in_val", 0)
    if dropped := duplicates.get("dropped_test", 0):
        yield f"**Duplicates.** {plural(dropped, 'story', 'stories')} of test also stood elsewhere and were left out."
    elif shared:
        yield (
            f"**Duplicates between splits.** {plural(shared, 'story', 'stories')} of "
            f"{count(corpus['splits']['test']['stories'])} in test also stand in train or val: bits per byte are "
            "flattered, and more so for an arm that memorises."
        )
    if skipped := corpus["skipped"].get("invalid_utf8", 0):
        yield f"**Left out of the corpus.** {plural(skipped, 'story', 'stories')} that were not valid UTF-8."


def _compute(study: dict[str, Any]) -> Iterator[str]:
    for entry in study["budget"]["mismatch"]:
        yield f"**Budget.** {code(entry['label'])} trained with {entry['ratio']:.3f} times the control's FLOPs."
    if study["tuned"]:
        yield (
            "**Chosen on val.** Each arm stands at the best of its settings, chosen with the same weights that test "
            "scores, so a part of the choice is luck: the more settings an arm had, the more its figure is flattered."
        )
    elif study["facts"]["same_learning_rate"] and len(study["arms"]) > 1:
        lr = study["arms"][0]["config"]["train"]["lr"]
        yield (
            f"**One recipe.** Every arm was trained with the same learning rate ({lr:g}): an arm whose best rate lies "
            "elsewhere is at a disadvantage that this study cannot see."
        )
    epochs = [arm["predicted"]["epochs"] for arm in study["arms"]]
    if max(epochs) > 1:
        yield f"**Repeated data.** Training passes {max(epochs):.1f} times over the stories."


def _seeds(study: dict[str, Any]) -> Iterator[str]:
    counts = [arm["bpb"]["n"] for arm in study["arms"]]
    if min(counts) < FEW:
        yield (
            f"**Few seeds.** {span(min(counts), max(counts))} per arm: intervals are wide and rest on the assumption "
            "that noise over seeds is normal, which so few cannot check."
        )
    for arm in study["arms"]:
        if arm["diverged"]:
            seeds = seeds_text([run["seed"] for run in arm["diverged"]])
            yield (
                f"**Divergence.** {code(arm['label'])}: {seeds} diverged. The mean of the rest flatters the arm, "
                "because it leaves out the worst."
            )
        if arm["missing"]:
            yield f"**Missing runs.** {code(arm['label'])}: {seeds_text(arm['missing'])}."
        comparison = arm["comparison"]
        spread = comparison and comparison["contrast"]["spread"]
        if spread and not 1 / ODD_SPREAD < spread < ODD_SPREAD:
            yield (
                f"**Unequal noise.** The pairs of {code(arm['label'])} scatter {spread:.2f} times as much as the "
                "pooled fit assumes: its interval may be too narrow or too wide; the paired t test is the better guide."
            )
    late = [arm for arm in study["arms"] if arm["role"] in ("exploratory", "earlier")]
    if late:
        names = listed([code(arm["label"]) for arm in late])
        yield f"**Not planned.** {names} {'was' if len(late) == 1 else 'were'} added after the study was fixed."


def _provenance(study: dict[str, Any]) -> Iterator[str]:
    facts = study["facts"]
    if len(facts["code_digests"]) > 1:
        revisions = listed([code((rev or "no git")[:8]) for rev in facts["git_revs"]])
        yield f"**Code differs between runs**: {len(facts['code_digests'])} states of it, from revisions {revisions}."
    if facts["dirty"]:
        yield (
            f"**Uncommitted changes** in the tree of {plural(len(facts['dirty']), 'run')}: the revision alone does not "
            f"reproduce {'it' if len(facts['dirty']) == 1 else 'them'}."
        )
    if None in facts["git_revs"]:
        yield "**No git.** Some runs were made outside a repository; their code is known by its digest alone."
    if len(facts["machines"]) > 1:
        kinds = listed([f"{esc(m['host_cpu'])} {esc(m['device'])} {esc(m['precision'])}" for m in facts["machines"]])
        yield f"**Different machines or precision**: {kinds}. Speeds do not compare, and rounding differs."
    origins = facts["origins"]
    places = {"store": "the MLflow store", "git": "evaluations committed to git"}
    elsewhere = [f"{plural(origins[o], 'run')} from {place}" for o, place in places.items() if origins.get(o)]
    if elsewhere:
        verb = "was" if sum(origins.get(o, 0) for o in places) == 1 else "were"
        yield f"**Runs from elsewhere**: {listed(elsewhere)} {verb} not made in this workspace."
    if facts["unrecorded"]:
        runs = plural(len(facts["unrecorded"]), "run")
        yield f"**Unknown circumstances**: machine, time and code of {runs} are not known."
    if facts["resumed"]:
        yield f"**Resumed**: {plural(len(facts['resumed']), 'run')} continued from a checkpoint; speeds may show it."


def _scope(study: dict[str, Any]) -> Iterator[str]:
    arms = study["arms"]
    sizes = sorted({arm["cost"]["parameters"] for arm in arms})
    size = count(sizes[0]) if len(sizes) == 1 else f"{count(sizes[0])} to {count(sizes[-1])}"
    if any(len(family["budgets"]) > 1 for family in study["ladder"]):
        yield (
            "**The verdicts hold at one budget.** The ladder shows others beside it; nothing here says that the same "
            "holds beyond the sizes and budgets of the ladder."
        )
        return
    yield (
        f"**One size, one budget.** {size} parameters at {flops(study['budget']['flops'])} FLOPs: nothing here says "
        "that the same holds for larger models or longer training."
    )


def _excluded(study: dict[str, Any]) -> Any:
    """A row per arm and reason; arms that are many for one reason are counted, not listed."""
    if not study["excluded"]:
        return Text(text="None.")
    reasons: dict[str, dict[str, list[int]]] = {}
    for entry in study["excluded"]:
        reasons.setdefault(entry["reason"], {}).setdefault(entry["label"], []).append(entry["seed"])
    rows = []
    for reason, arms in reasons.items():
        if len(arms) > LISTED:
            runs = plural(sum(map(len, arms.values())), "run")
            rows.append([cell(plural(len(arms), "arm")), cell(runs), cell(esc(reason))])
            continue
        for label, seeds in arms.items():
            numbers = listed([str(seed) for seed in sorted(seeds)])
            rows.append([cell(code(label)), cell(numbers, sort=min(seeds)), cell(esc(reason))])
    return table(("arm", "seed", "reason"), rows, text_columns=(0, 2))
