"""sample@ARM-SEED: text of a finished run under the prompts of params.yaml."""

from __future__ import annotations

import sys

from isoflop import paths
from isoflop.config import SampleConfig
from isoflop.files import write_text
from isoflop.machine import default_device
from isoflop.params import load_params
from isoflop.runs import FinishedRun, open_run
from isoflop.sampling import clean_text, generate
from isoflop.stages import run
from isoflop.tokenizer import load


def main() -> None:
    arm, seed = sys.argv[1], int(sys.argv[2])
    config = load_params(paths.PARAMS).sample
    finished = open_run(paths.RUNS / f"{arm}-{seed}", default_device())
    write_text(paths.SAMPLES / f"{finished.name}.md", as_markdown(finished, config, texts(finished, config)))


def texts(finished: FinishedRun, config: SampleConfig) -> list[str] | None:
    """The continuation of each prompt, without the prompt; None where the run diverged."""
    if finished.model is None:
        return None
    tokenizer = load(paths.TOKENS / finished.plan.tokenizer)
    prompts = [[tokenizer.eos, *tokenizer.encode(prompt.encode())] for prompt in config.prompts]
    return [clean_text(tokenizer.decode(ids)) for ids in generate(finished.model, prompts, config, tokenizer.eos)]


def as_markdown(finished: FinishedRun, config: SampleConfig, continuations: list[str] | None) -> str:
    """One section per prompt; the prompt in bold, then what the model wrote, as quoted text."""
    limits = ", ".join(f"{key} {value}" for key in ("top_k", "top_p") if (value := getattr(config, key)) is not None)
    settings = f"temperature {config.temperature:g}" + (f", {limits}" if limits else "") + f", seed {config.seed}"
    lines = [f"# {finished.name}", "", f"{settings}, at most {config.n_tokens} tokens", ""]
    if continuations is None:
        return "\n".join([*lines, "The run diverged: there is no model to sample from.", ""])
    for i, (prompt, text) in enumerate(zip(config.prompts, continuations, strict=True), start=1):
        quoted = (f"**{prompt}**" if prompt else "") + text
        lines += [f"## Prompt {i}", "", *(f"> {line}".rstrip() for line in quoted.splitlines() or [""]), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    run(main)
