"""Models to and from folders of Hugging Face: `python -m isoflop.convert`.

    export RUN-FOLDER TARGET            a finished run as a folder that `transformers` loads: LlamaForCausalLM;
                                        Qwen3ForCausalLM (for models with QK-norm) with `--as qwen3`, GPT2LMHeadModel
                                        with `--as gpt2`
    import {llama,qwen3,gpt2} SOURCE TARGET
                                        a folder with config.json and weights (model.safetensors, or pytorch_model.bin;
                                        one file or shards) as a folder of this project: model.yaml (the configuration)
                                        and model.safetensors, which `read_imported` makes a model of

An imported folder is no run: it has no plan, data or history. `python -m isoflop.inspect TARGET` reads it too.
"""

from __future__ import annotations

import argparse
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from isoflop import paths, tokenizer
from isoflop.config import ModelConfig
from isoflop.errors import IsoflopError
from isoflop.files import atomic_path, read_json, write_json, write_text
from isoflop.huggingface.configs import from_config, to_config
from isoflop.huggingface.families import FAMILIES, Family, obstacles
from isoflop.huggingface.vocabulary import to_tokenizers
from isoflop.huggingface.weights import from_family, to_family
from isoflop.model.gpt import GPT
from isoflop.plan import Plan
from isoflop.runs import FinishedRun, open_run
from isoflop.schema import UNFIT, Problem, build, plain
from isoflop.stages import run
from isoflop.tokens import read_meta

CONFIG, WEIGHTS = "model.yaml", "model.safetensors"


# --- to Hugging Face --------------------------------------------------------------------------------


def export(source: Path, target: Path, family: Family) -> None:
    """Write the run in `source` as a folder of `family`.

    Raises IsoflopError where there is no finished run, `family` cannot express it, or `target` is in use.
    """
    finished = open_run(source, torch.device("cpu"))
    if finished.model is None:
        raise IsoflopError(f"{source}: the run diverged, there are no weights to export; choose another seed or arm")
    config = finished.model.config
    if reasons := obstacles(config, family):
        other = [f"`--as {name}` can" for name, option in FAMILIES.items() if not obstacles(config, option)]
        way_out = other[0] if other else "export an arm without these settings"
        raise IsoflopError(f"{source}: {family.title} cannot express this model: {'; '.join(reasons)}. {way_out}")
    _claim(target)
    eos = config.vocab_size - 1  # every tokenizer of this project ends a story with its last id
    _write_weights(target, to_family(finished.model.state_dict(), config, family))
    write_json(target / "config.json", to_config(config, family, eos))
    write_json(
        target / "generation_config.json",
        {"bos_token_id": eos, "eos_token_id": eos, "do_sample": False, "max_length": config.block_size},
    )
    about_tokens = _write_tokenizer(target, finished.plan)
    write_text(target / "README.md", _note(finished, family, about_tokens))
    print(f"{target}: {family.architecture} of {finished.name}; {about_tokens}")


def _write_tokenizer(target: Path, plan: Plan) -> str:
    """Write tokenizer.json where the run's tokenizer can be had; a sentence that says what was done."""
    try:
        made = to_tokenizers(_tokenizer(plan))
    except IsoflopError as error:
        return f"no tokenizer.json was written: {error}"
    write_text(target / "tokenizer.json", made.to_str())
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": plan.model.block_size}
    settings |= {"bos_token": tokenizer.EOS_TEXT, "eos_token": tokenizer.EOS_TEXT}
    write_json(target / "tokenizer_config.json", settings | {"clean_up_tokenization_spaces": False})
    return f"tokenizer.json is the run's tokenizer, {plan.tokenizer}, and puts {tokenizer.EOS_TEXT} before each text"


def _tokenizer(plan: Plan) -> tokenizer.Tokenizer:
    if plan.tokenizer_spec.kind == "byte":
        return tokenizer.ByteTokenizer()
    if plan.tokenizer_spec.kind == "gpt2":
        return tokenizer.gpt2()
    folder = paths.TOKENS / plan.tokenizer
    found = read_meta(folder).tokens_digest
    if found != plan.tokens_digest:  # a BPE trained anew has other tokens under the same name
        raise IsoflopError(
            f"{folder / 'meta.json'}: tokens_digest {found} is not the run's, {plan.tokens_digest}; "
            "`dvc checkout` brings the run's tokens back"
        )
    return tokenizer.load(folder)


def _note(finished: FinishedRun, family: Family, about_tokens: str) -> str:
    config = finished.plan.model
    left_out = " The module that predicts a second token (mtp) is left out." if config.mtp else ""
    return f"""# {finished.name} as {family.title}

Arm {finished.plan.arm}, seed {finished.seed}, configuration {finished.plan.config_hash}, trained by isoflop on
{finished.plan.corpus.source}.{left_out}

A text begins and ends with {tokenizer.EOS_TEXT}, id {config.vocab_size - 1}; {about_tokens}.
The model was trained on {config.block_size} tokens at a time: beyond that, prompt included, its text is not to be
trusted.

```python
from transformers import AutoTokenizer, {family.architecture}

tokenizer, model = AutoTokenizer.from_pretrained("."), {family.architecture}.from_pretrained(".")
ids = model.generate(**tokenizer("Once upon a time", return_tensors="pt"))
print(tokenizer.decode(ids[0], skip_special_tokens=True))
```
"""


# --- from Hugging Face ------------------------------------------------------------------------------


def import_folder(source: Path, target: Path, family: Family) -> GPT:
    """Write the model of a Hugging Face folder as model.yaml and model.safetensors; return it.

    Raises IsoflopError where files are missing, the configuration says what this model does not do, or weights do
    not fit it.
    """
    path = source / "config.json"
    if not path.is_file():
        raise IsoflopError(f"{path}: no such file; give the folder of a model saved by transformers")
    try:
        values = read_json(path)
    except ValueError as error:
        raise IsoflopError(f"{path}: is not JSON ({error}); fetch it again") from None
    config = from_config(values, family, str(path))
    model = _model_of(config, from_family(_read_weights(source), config, family), source)
    _claim(target)
    _write_weights(target, model.state_dict())
    head = f"# {family.title} weights; isoflop.convert.read_imported makes a model of this folder\n"
    write_text(target / CONFIG, head + yaml.safe_dump(plain(config), sort_keys=False))
    print(f"{target}: {sum(p.numel() for p in model.parameters()):,} parameters in {WEIGHTS}, shape in {CONFIG}")
    return model


def read_imported(folder: Path) -> GPT:
    """The model of a folder that `import_folder` wrote, on the CPU, in evaluation mode."""
    problems: list[Problem] = []
    config: Any = build(ModelConfig, yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8")), "", problems)
    if problems or config is UNFIT:
        found = "; ".join(f"{key} {rule}" for key, rule in problems)
        raise IsoflopError(f"{folder / CONFIG}: {found}; `python -m isoflop.convert import` writes it anew")
    return _model_of(config, _read_weights(folder), folder)


def _model_of(config: ModelConfig, state: Mapping[str, Tensor], folder: Path) -> GPT:
    model = GPT(config)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise IsoflopError(f"{folder}: the weights are not those of its configuration: {error}") from None
    return model.eval()


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of model.safetensors or its shards, else of pytorch_model.bin or its shards."""
    files = _weight_files(folder, "model", "safetensors") or _weight_files(folder, "pytorch_model", "bin")
    if not files:
        raise IsoflopError(f"{folder}: has neither model.safetensors nor pytorch_model.bin")
    state: dict[str, Tensor] = {}
    for path in files:
        try:
            # weights_only: nothing in a pickle is run.
            safe = path.suffix == ".safetensors"
            state |= load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, TypeError, SafetensorError, pickle.UnpicklingError) as error:
            raise IsoflopError(f"{path}: damaged, or holds more than tensors ({error}); fetch it again") from None
    return state


def _weight_files(folder: Path, stem: str, suffix: str) -> list[Path]:
    """The one file, or the shards: those of the index, where there is one. Raises IsoflopError where a shard lacks."""
    if (whole := folder / f"{stem}.{suffix}").is_file():
        return [whole]
    shards = sorted(folder.glob(f"{stem}-*-of-*.{suffix}"))
    index = folder / f"{stem}.{suffix}.index.json"
    if not index.is_file():
        return shards
    try:
        shards = [folder / name for name in sorted(set(read_json(index)["weight_map"].values()))]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise IsoflopError(f"{index}: holds no weight_map of names and files ({error}); fetch it again") from None
    if missing := [path.name for path in shards if not path.is_file()]:
        raise IsoflopError(f"{index}: names {', '.join(missing)}, which the folder lacks; fetch what is missing")
    return shards


def _write_weights(folder: Path, state: Mapping[str, Tensor]) -> None:
    with atomic_path(folder / WEIGHTS) as temporary:
        save_file(dict(state), temporary, metadata={"format": "pt"})


def _claim(target: Path) -> None:
    """Make `target`, which must not hold anything: what stands there may be the user's."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise IsoflopError(f"{target}: is not an empty folder; give one that is empty or does not exist")
    target.mkdir(parents=True, exist_ok=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m isoflop.convert", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    to = commands.add_parser("export", help="a finished run as a Hugging Face folder")
    to.add_argument("source", type=Path, metavar="RUN-FOLDER")
    to.add_argument("target", type=Path)
    to.add_argument("--as", dest="family", choices=list(FAMILIES), default="llama")
    back = commands.add_parser("import", help="a Hugging Face folder as a model of this project")
    back.add_argument("family", choices=list(FAMILIES))
    back.add_argument("source", type=Path)
    back.add_argument("target", type=Path)
    given = parser.parse_args(arguments)
    make = export if given.command == "export" else import_folder
    make(given.source, given.target, FAMILIES[given.family])


if __name__ == "__main__":
    run(main)
