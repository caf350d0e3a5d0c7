"""The write-up: says what the study says, in both forms, the same bytes each time."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from isoflop.analysis import analyse, curves_table
from isoflop.collected import Collected
from isoflop.files import write_json
from isoflop.reporting import build_report, read_samples, write_report
from isoflop.reporting.figures import draw_figures
from isoflop.reporting.figures.published import published, results
from isoflop.reporting.figures.style import arm_styles, power, shorten, theme
from isoflop.reporting.html import to_page
from isoflop.reporting.markdown import to_markdown
from isoflop.reporting.markup import code, esc, to_html, to_text
from isoflop.reporting.text import duration, flops, interval, listed, moment, p_value, percent, plural, signed
from isoflop.stages import report as stage
from studies import (
    EIGHT,
    change_run,
    diverged,
    exclude,
    from_git,
    make_study,
    params_text,
    table,
    without_seed,
    write_samples,
)

MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
VERDICTS = {
    "better": [1.450, 1.461, 1.4705],
    "worse": [1.550, 1.561, 1.5705],
    "equivalent": [1.501, 1.5105, 1.5195],
    "inconclusive": [1.54, 1.49, 1.53],
}
BASE = [1.50, 1.51, 1.52]


def as_json(made: Collected, **known: Any) -> dict[str, Any]:
    """The study as the stage reads it."""
    study: dict[str, Any] = json.loads(json.dumps(analyse(made, **known), allow_nan=False))
    return study


def text_of(made: Collected, **known: Any) -> str:
    """report.md without its figures."""
    return to_markdown(build_report(as_json(made, **known), {}, [], []))


def page_of(made: Collected) -> str:
    return to_page(build_report(as_json(made), {}, [], []))


def answer_of(text: str) -> str:
    return text.split("\n\n")[[line.startswith("# ") for line in text.split("\n\n")].index(True) + 1]


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def write_all(made: Collected, folder: Path) -> Path:
    """Everything that the stage does, with figures."""
    prompts = made.params.sample.prompts
    write_samples(made, folder / "samples")
    study = as_json(made)
    samples = read_samples(study, folder / "samples", prompts)
    write_report(study, table(curves_table(made)), samples, prompts, folder / "out")
    return folder / "out"


@cache
def busy_study() -> Collected:
    """Eight arms with a bit of everything."""
    made = make_study(EIGHT, range(3), effects={"wide": -0.015}, roles={"untied": "exploratory", "low_lr": "earlier"})
    made = without_seed(diverged(diverged(made, "wide", 0), "low_lr", 1), "deep", 2)
    return exclude(made, ("old", 0, "it was trained with another compute budget"))


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(busy_study(), tmp_path_factory.mktemp("busy"))


# --- what it says


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        (
            "better",
            r"`mqa` is better than the control `base` by 0\.0495 bits per byte .* more than the margin of 0\.01\.",
        ),
        (
            "worse",
            r"`mqa` is worse than the control `base` by 0\.0505 bits per byte .* more than the margin of 0\.01\.",
        ),
        (
            "equivalent",
            r"`mqa` is equivalent to the control `base` within the margin of 0\.01: the measured difference",
        ),
        ("inconclusive", r"Whether `mqa` differs from the control `base` is open: .* further seeds per arm would"),
    ],
)
def test_the_answer_says_the_verdict(word: str, sentence: str) -> None:
    made = make_study(bpb={"base": BASE, "mqa": VERDICTS[word]})
    assert as_json(made)["arms"][1]["comparison"]["verdict"]["word"] == word
    answer = answer_of(text_of(made))
    assert re.search(sentence, answer), answer
    assert len(re.findall(r"\. (?=[A-Z])", answer)) == 1, "two sentences"


def test_the_answer_groups_several_arms_by_verdict() -> None:
    arms = {name: EIGHT[name] for name in ("base", "gqa", "mqa", "wide", "deep")}
    values = dict(zip(("gqa", "mqa", "wide", "deep"), VERDICTS.values(), strict=True))
    made = make_study(arms, bpb={"base": BASE, **values, "deep": [1.503, 1.51, 1.524]}, roles={"deep": "exploratory"})
    answer = answer_of(text_of(made))
    assert f"`gqa` ({MINUS}0.0495) is better; `mqa` (+0.0505) is worse; `wide` (+0.0003)" in answer
    assert "`deep` (exploratory, +0.0023)" in answer
    assert answer.count("are equivalent within 0.01;") + answer.count("are equivalent within 0.01.") == 1


def test_one_seed_claims_nothing() -> None:
    text = text_of(make_study(seeds=[0], bpb={"base": [1.5], "mqa": [1.6]}))
    answer = answer_of(text)
    assert "There is no verdict on `mqa`" in answer
    assert "one pair of seeds differs by +0.1000" in answer
    assert not re.search(r"\b(better|worse|equivalent) (than|to)\b", answer)
    row = next(line for line in text.splitlines() if line.startswith("| `mqa` | no verdict"))
    assert row.split(" | ")[2:7] == ["+0.1000", "n/a", "n/a", "1.6000", "n/a"]


def test_only_the_control_still_makes_a_report(tmp_path: Path) -> None:
    out = write_all(make_study({"base": {}}), tmp_path)
    text = (out / "report.md").read_text()
    assert "There is nothing to compare: only the control `base` was trained." in text
    assert text.count("(figures/final.png)") == 1
    assert not (out / "figures" / "differences.png").exists()


@pytest.mark.parametrize(
    ("dead", "words"),
    [(("mqa",), "all 3 seeds of `mqa` diverged"), (("base",), "all 3 seeds of `base` diverged"), (("base", "mqa"), "")],
)
def test_all_seeds_diverged_is_said(dead: tuple[str, ...], words: str, tmp_path: Path) -> None:
    made = make_study()
    for label in dead:
        for seed in (0, 1, 2):
            made = diverged(made, label, seed)
    text = (write_all(made, tmp_path) / "report.md").read_text()
    assert f"There is no verdict on `mqa` against the control `base` ({words}" in text
    assert ("**There is nothing to compare with.**" in text.split("\n# ")[0]) == ("base" in dead)


def test_a_diverged_seed_is_named_with_its_step() -> None:
    text = text_of(diverged(make_study(), "mqa", 1, step=77))
    results = section(text, "Results")
    assert "`mqa`: seed 1 **diverged** (at step 77; last val bpb" in results
    assert "2 of 3" in results
    assert "**Divergence.** `mqa`: seed 1 diverged." in section(text, "Threats to validity")


def test_a_deleted_seed_is_said() -> None:
    before, after = text_of(make_study()), text_of(without_seed(make_study(), "mqa", 2))
    assert "no run of seed" not in before
    assert "`mqa`: no run of seed 2, which params.yaml asks for; compared on seeds 0 and 1" in after
    assert "with 2 to 3 finished seeds per arm" in answer_of(after)
    # A seed that params.yaml does not ask for is no less in the pairing.
    unasked = text_of(without_seed(make_study(), "mqa", 2, missing=False))
    assert "`mqa`: compared on seeds 0 and 1, which the control finished too." in unasked


def test_one_changed_evaluation_changes_the_report() -> None:
    made = make_study(bpb={"base": BASE, "mqa": [1.53, 1.52, 1.55]})
    other = change_run(made, "mqa", 1, evaluation={"bpb": 1.58})
    before, after = (section(text_of(each), "Results") for each in (made, other))
    for old, new in (("+0.0233", "+0.0433"), ("1.5333", "1.5533")):  # difference, mean
        assert (old in before, new in before) == (True, False)
        assert (old in after, new in after) == (False, True)
    assert "1.5800" in section(text_of(other), "Runs")


def test_the_fallback_stands_in_the_first_line() -> None:
    made = make_study()
    assert text_of(made).splitlines()[0].startswith("> **These results are not on TinyStories.**")
    assert "`dvc repro -f download && dvc repro`" in text_of(made).splitlines()[0]
    page = page_of(made)
    assert page.index('class="notice"') < page.index("<h1>")
    real = text_of(make_study(fallback=False))
    assert real.startswith("# Does sharing")
    assert "not on TinyStories" not in real
    assert "Corpus: TinyStories, revision `f54c09fd2331`" in real


def test_a_broken_budget_stands_in_the_first_lines() -> None:
    made = make_study(fallback=False)
    for seed in (0, 1, 2):
        made = change_run(made, "mqa", seed, evaluation={"flops": 4.4e12})
    text = text_of(made)
    assert text.startswith("> **Compute is not equal.** Against the control, `mqa` with 1.100 times its FLOPs")
    assert "**The budget does not hold** for `mqa`." in text
    assert "equal within" not in text


def test_predictions_after_the_first_run_are_flagged() -> None:
    made = make_study(predictions=[{"arm": "mqa", "direction": "worse", "size": 0.02, "confidence": 0.7}])
    early = {"rev": "abcdef1234", "time": "2025-11-30T10:59:00+01:00"}  # 09:59 in UTC, a minute before the first run
    late = {"rev": "abcdef1234", "time": "2025-11-30T10:01:00+00:00"}
    assert "before the first run started" in text_of(made, predictions_committed=early)
    assert "**after the first run had started**" in text_of(made, predictions_committed=late)
    assert "is not known here" in text_of(made)
    assert "| `mqa` | worse by 0.0200 | 70 % |" in text_of(made)


def test_threats_follow_from_what_is_known() -> None:
    quiet = section(text_of(make_study(seeds=range(6), fallback=False)), "Threats to validity")
    for absent in (
        "Few seeds",
        "Fallback",
        "Duplicates",
        "Code differs",
        "Uncommitted",
        "Runs from elsewhere",
        "Diverg",
        "Budget",
    ):
        assert absent not in quiet
    made = make_study()
    made.duplicates.update({"test_in_train": 3, "test_in_val": 1})
    run = made.arms[1].runs[0]
    assert run.record is not None
    provenance = run.record["provenance"] | {"code_digest": "0ther", "git_rev": "12345678" * 5, "git_dirty": True}
    timing = run.record["timing"] | {"resumed": 1}
    machine = run.record["machine"] | {"precision": "float32"}
    made = change_run(
        made, "mqa", 0, origin="store", record={"provenance": provenance, "timing": timing, "machine": machine}
    )
    threats = section(text_of(made), "Threats to validity")
    for words in (
        "**Few seeds.** 3 per arm",
        "**Fallback corpus.**",
        "4 stories of 300 in test also stand in train or val",
        "**Code differs between runs**: 2 states of it, from revisions `89abcdef` and `12345678`",
        "**Uncommitted changes** in the tree of 1 run",
        "**Different machines or precision**",
        "1 run from the MLflow store was not made in this workspace",
        "**Resumed**: 1 run",
        "**One recipe.**",
    ):
        assert words in threats, words


def test_excluded_runs_stand_with_their_reasons() -> None:
    text = text_of(exclude(make_study(), ("old | new", 3, "another *budget*")))
    assert "| `old ¦ new` | 3 | another \\*budget\\* |" in section(text, "Runs left out")
    assert section(text_of(make_study()), "Runs left out").strip() == "None."


def test_many_arms_left_out_for_one_reason_are_counted() -> None:
    few = [(f"old{i}", seed, "another budget") for i in range(3) for seed in (1, 0)]
    assert section(text_of(exclude(make_study(), *few)), "Runs left out").count("| 0 and 1 | another budget |") == 3
    many = [(f"old{i}", seed, "another budget") for i in range(40) for seed in (0, 1)]
    rows = section(text_of(exclude(make_study(), *many, ("base", 9, "not asked for"))), "Runs left out").splitlines()
    assert "| 40 arms | 80 runs | another budget |" in rows
    assert "| `base` | 9 | not asked for |" in rows
    assert len([row for row in rows if row.startswith("|")]) == 4


def test_committed_evaluations_alone_are_enough(tmp_path: Path) -> None:
    text = (write_all(from_git(from_git(make_study(), "base"), "mqa"), tmp_path) / "report.md").read_text()
    assert "6 runs from evaluations committed to git were not made in this workspace" in text
    assert "not in the store" in text
    assert "Time and MFU cannot be held against a peak" in text
    assert "No run of this workspace has samples." in text


def test_equal_arms_are_said_to_be_the_same() -> None:
    made = make_study()
    made.arms[1].same_as.append("twin")
    assert "`mqa` and `twin` resolve to the same configuration and are counted once." in text_of(made)


def test_the_entropy_floor_or_published_results_but_not_both() -> None:
    texts = {}
    for source in ("grammar", "tinystories", "my/file.txt"):
        study = as_json(make_study(fallback=False, source=source))
        with theme():
            drawing = published(study)
        drawings = {} if drawing is None else {"published": drawing}
        texts[source] = to_markdown(build_report(study, drawings, [], []))
    assert "exact entropy of these stories is 0.8732" in texts["grammar"]
    assert "above floor" in texts["grammar"]
    assert "published" not in texts["grammar"].lower()
    assert "(figures/published.png)" in texts["tinystories"]
    assert "karpathy/llama2.c" in texts["tinystories"]
    assert "entropy" not in texts["tinystories"]
    assert "published" not in texts["my/file.txt"].lower()
    assert "above floor" not in texts["my/file.txt"]


# --- both forms


def test_images_of_the_markdown_exist(busy: Path) -> None:
    links = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (busy / "report.md").read_text())
    assert len(links) >= 6
    assert {f"figures/{path.name}" for path in (busy / "figures").iterdir()} == set(links)
    for link in links:
        assert (busy / link).read_bytes().startswith(b"\x89PNG")


def test_every_run_can_be_traced(busy: Path) -> None:
    for name in ("report.md", "report.html"):
        text = (busy / name).read_text()
        for each in busy_study().arms:
            for run in each.runs:
                assert run.evaluation["run_uid"] in text
                assert f"#/experiments/{run.experiment_id}/runs/{run.run_id}" in text


def test_every_table_row_has_the_columns_of_its_head(busy: Path) -> None:
    lines = (busy / "report.md").read_text().splitlines()
    bars = [len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0 for line in lines]
    for before, now in pairwise(bars):
        assert not (before and now) or before == now
    assert sum(map(bool, bars)) > 50


class Page(HTMLParser):
    """Collects what a page would load, its ids, and whether its elements nest."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("src", "href", "xlink:href", "data", "poster", "srcset", "action"):
                (self.links if tag == "a" else self.loads).append(value or "")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_from_outside(busy: Path) -> None:
    text = (busy / "report.html").read_text()
    page = Page(text)
    assert set(page.loads) <= {"data:,"} | {f"#{name}" for name in page.ids}
    assert not re.search(r"@import|url\((?!#)|<img|<iframe|fetch\(|XMLHttpRequest", text)
    assert all(link.startswith(("#", "http://127.0.0.1:5000/#/experiments/")) for link in page.links)
    assert len(page.ids) == len(set(page.ids)), "ids are unique"
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_colours_of_the_page_are_defined_in_both_schemes(busy: Path) -> None:
    text = (busy / "report.html").read_text()
    light, dark = (set(re.findall(r"--([a-z0-9-]+):", part)) for part in text.split("prefers-color-scheme: dark")[:2])
    assert set(re.findall(r"var\(--([a-z0-9-]+)\)", text)) <= light
    assert dark >= light - {"nothing"}
    assert not re.search(r'style="[^"]*#[0-9a-f]{6}', text), "a figure has a colour that the page cannot change"


def test_the_page_is_small_and_whole(busy: Path) -> None:
    assert (busy / "report.html").stat().st_size < 1_500_000
    assert sum(path.stat().st_size for path in (busy / "figures").iterdir()) < 600_000
    text = (busy / "report.html").read_text()
    assert not re.search(r"\{\{|\{%|\bNone\b(?!\.<)", text)
    assert "nan" not in re.findall(r"[a-z]+", text)


def test_foreign_text_stays_text(tmp_path: Path) -> None:
    made = make_study(question="Is <script>alert(1)</script> | *better* than `x`?")
    write_samples(
        made, tmp_path, text="</p><script>evil()</script> | a **b** <b>c</b> \x1b[31m [x](http://y)\n> quoted"
    )
    study, prompts = as_json(made), made.params.sample.prompts
    report = build_report(study, {}, read_samples(study, tmp_path, prompts), prompts)
    page, text = to_page(report), to_markdown(report)
    Page(page)
    assert page.count("<script>") == 1
    assert "&lt;script&gt;evil()&lt;/script&gt;" in page
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "\x1b" not in text + page
    row = next(line for line in text.splitlines() if "evil" in line)
    assert len(re.findall(r"(?<!\\)\|", row)) == 3
    assert "<br>" in row
    assert "\\[x\\](http://y)" in row


def test_samples_are_of_one_seed_and_of_this_workspace(tmp_path: Path) -> None:
    made = diverged(make_study(), "mqa", 0)
    write_samples(made, tmp_path)
    prompts = made.params.sample.prompts
    samples = read_samples(as_json(made), tmp_path, prompts)
    assert [(each.label, each.seed) for each in samples] == [("base", 1), ("mqa", 1)]
    assert samples[0].continuations[0].startswith(" there was a base named Tim.\n\nTim had 3 red balls.")
    assert samples[0].settings.startswith("temperature 0.8")
    elsewhere = from_git(made, "base")
    assert [each.label for each in read_samples(as_json(elsewhere), tmp_path, prompts)] == ["mqa"]
    assert read_samples(as_json(made), tmp_path, ["another number of prompts"]) == []


def test_the_same_study_gives_the_same_bytes(busy: Path, tmp_path: Path) -> None:
    again = write_all(busy_study(), tmp_path)
    names = sorted(str(path.relative_to(busy)) for path in busy.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(again)) for path in again.rglob("*") if path.is_file())
    for name in names:
        assert (busy / name).read_bytes() == (again / name).read_bytes(), name


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_process(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from studies import make_study; from test_reporting import write_all;"
        "write_all(make_study(), Path(sys.argv[1]))"
    )
    outs = []
    for seed in ("1", "2"):
        path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1] / "src")])
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
        subprocess.run([sys.executable, "-c", program, str(tmp_path / seed)], env=env, check=True)
        outs.append(tmp_path / seed / "out")
    for path in outs[0].rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (outs[1] / path.relative_to(outs[0])).read_bytes(), path.name


def test_the_stage_reads_and_writes_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_study()
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(params_text({"base": {}, "mqa": {"model.n_kv_head": 1}}, [0, 1, 2]))
    folder = Path("reports/kv_heads")
    write_json(folder / "study.json", analyse(made))
    (folder / "curves.csv").write_text(curves_table(made))
    write_samples(made, Path("experiments/samples"))
    (folder / "figures").mkdir()
    (folder / "figures" / "left_over.png").touch()
    stage.main()
    assert (folder / "report.md").read_text().count("](figures/") == len(list((folder / "figures").iterdir()))
    assert not (folder / "figures" / "left_over.png").exists()
    assert "there was a mqa named Tim." in (folder / "report.html").read_text()


@pytest.mark.slow
def test_eight_arms_and_five_seeds_take_seconds(tmp_path: Path) -> None:
    made = make_study(EIGHT, range(5))
    start = time.process_time()
    write_all(made, tmp_path)
    assert time.process_time() - start < 10  # 3 s measured; imports come on top


# --- figures


def test_figures_survive_zero_and_dead_seeds() -> None:
    made = make_study(seeds=[0, 1])
    rows = [dict(row) for row in made.arms[1].runs[0].history]
    rows[0] |= {"flops": 0.0, "tokens": 0, "val/bpb": 8.0, "train/grad_norm": 0.0}
    rows[5] |= {"train/loss": math.nan}
    made = diverged(change_run(made, "mqa", 0, history=rows), "base", 1, step=3)  # dead before its first evaluation
    drawn = draw_figures(as_json(made), table(curves_table(made)))
    assert set(drawn) == {"differences", "final", "speed", "curves", "stability", "positions"}
    for drawing in drawn.values():
        assert "NaN" not in drawing.svg
        assert "inf" not in re.sub(r"[a-z]*inf[a-z]+|[a-z]+inf[a-z]*", "", drawing.svg)


def test_a_study_without_any_history_has_no_curves() -> None:
    made = from_git(from_git(make_study(), "base"), "mqa")
    assert set(draw_figures(as_json(made), table(curves_table(made)))) == {"differences", "final", "positions"}


def test_every_arm_looks_different_and_the_control_is_solid() -> None:
    labels = [f"arm{i}" for i in range(40)]
    styles = arm_styles(labels)
    looks = {(each.colour, str(each.dashes), each.marker) for each in styles.values()}
    assert len(looks) == len(labels)
    assert styles["arm0"].dashes == ""
    assert all(styles[label].dashes and styles[label].width < styles["arm0"].width for label in labels[1:])
    # Without colour the first arms are still told apart by dash and marker.
    assert len({(str(styles[label].dashes), styles[label].marker) for label in labels[:8]}) == 8


def test_the_published_results_are_cited() -> None:
    found = results()
    assert len(found) >= 10
    assert found["source"].str.len().min() > 5
    assert (found["bpb_lo"] <= found["bpb_hi"]).all()
    assert np.all(np.diff(found["flops_6ND"]) >= 0)


def test_drawing_leaves_the_users_settings_alone() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    draw_figures(as_json(make_study(seeds=[0])), pd.DataFrame(columns=list(table(curves_table(make_study(seeds=[0]))))))
    assert dict(mpl.rcParams) == before


# --- words and numbers


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.01234, "+0.0123"), (-0.01234, f"{MINUS}0.0123"), (-0.00001, "0.0000"), (0.0, "0.0000"), (None, "n/a")],
)
def test_differences_carry_their_sign(value: float | None, text: str) -> None:
    assert signed(value) == text


def test_numbers_as_a_reader_says_them() -> None:
    assert interval([-0.001, 0.02]) == f"{MINUS}0.0010 to +0.0200"
    assert [flops(4e12), flops(1.23e9), flops(5e-3)] == ["4.00e12", "1.23e9", "5.00e-03"]
    assert [duration(s) for s in (0.42, 41.3, 380, 300, 11_520)] == ["0.4 s", "41 s", "6 min 20 s", "5 min", "3.2 h"]
    assert [p_value(p) for p in (0.00001, 0.0042, 0.051)] == ["< 0.0001", "0.0042", "0.05"]
    assert [plural(1, "arm"), plural(3, "arm"), plural(2, "story", "stories")] == ["1 arm", "3 arms", "2 stories"]
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
    assert moment("2025-11-30T10:59:30+01:00") == "2025-11-30 09:59 UTC"
    assert percent(0.236, 1) == "23.6 %"
    assert [power(1e12), power(5e11), power(1.5e13)] == ["10¹²", f"5{TIMES}10¹¹", f"1.5{TIMES}10¹³"]
    assert shorten("base · n_kv_head=2, lr=0.001, warmup_steps=10") == "base · n_kv_head=2, lr=0.001, war…"


def test_markup_means_the_same_in_both_forms() -> None:
    assert to_html("**`a`** & [x](#y) \\*z\\*") == ('<strong><code>a</code></strong> &amp; <a href="#y">x</a> *z*')
    foreign = "a*b_c `d` [e](f) <g> | \\ & $h$ ~i~"
    assert to_html(esc(foreign)) == "a*b_c `d` [e](f) &lt;g&gt; | \\ &amp; $h$ ~i~"
    assert to_text(esc(foreign)) == foreign
    assert to_text("**b** `c` [d](e)") == "b c d"
    assert esc("two\nlines\x07") == "two lines�"
    assert code("a`b|c") == f"`a{chr(0x2CB)}b¦c`"


def test_bits_per_byte_at_other_contexts_stand_in_a_table_of_their_own() -> None:
    made = make_study(bpb={"base": BASE, "mqa": [1.4, 1.41, 1.42]})
    assert "By length of context" not in text_of(made)
    for label, offset in (("base", 0.0), ("mqa", 0.5)):
        for seed in range(3):
            entries = [
                {"context": 64, "scaling": "none", "bpb": 1.5 + offset + seed / 10},
                {"context": 512, "scaling": "yarn", "bpb": None if label == "mqa" else 2.0},
            ]
            made = change_run(made, label, seed, evaluation={"bpb_by_context": entries})
    told = section(text_of(made), "By length of context")
    assert re.search(r"`base` \| *\d+ \| 1\.6000 ± 0\.1000 \| 2\.0000 ± 0\.0000", told)
    assert re.search(r"`mqa` \| *\d+ \| 2\.1000 ± 0\.1000 \| n/a", told)
    assert "rotations are stretched by yarn" in told
