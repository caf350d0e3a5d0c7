"""`tokenize`: the stories as token files, one folder per tokenizer."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from isoflop import paths
from isoflop.config import TokenizerSpec
from isoflop.errors import IsoflopError
from isoflop.params import load_params
from isoflop.stages import run
from isoflop.tokenizing import write_tokens
from isoflop.tokens import TokenMeta


def main() -> None:
    """Write data/tokens/<tokenizer>/ from data/raw/ and say what is in it."""
    parser = argparse.ArgumentParser(prog="python -m isoflop.stages.tokenize", description=__doc__)
    parser.add_argument("tokenizer", help="a name under `tokenizers` in params.yaml")
    name = parser.parse_args().tokenizer
    params = load_params(paths.PARAMS)
    spec = chosen(params.tokenizers, name)
    print(summary(write_tokens(paths.RAW, paths.TOKENS / name, spec, params.data)))


def chosen(specs: Mapping[str, TokenizerSpec], name: str) -> TokenizerSpec:
    """`tokenizers.<name>`; raises IsoflopError naming those that there are."""
    if name not in specs:
        raise IsoflopError(f"params.yaml: tokenizers.{name} does not exist; known: {', '.join(sorted(specs))}")
    return specs[name]


def summary(meta: TokenMeta) -> str:
    """What was written, for the terminal."""
    lines = [f"{meta.name}: {meta.kind}, vocabulary {meta.vocab_size:,}, {meta.dtype}"]
    for name, split in meta.splits.items():
        ratio = split.bytes / (split.tokens - split.stories)
        lines.append(
            f"  {name:5} {split.stories:>10,} stories {split.bytes:>14,} bytes {split.tokens:>13,} tokens "
            f"({ratio:.2f} bytes per token, ends of story aside)"
        )
    n = {name: f"{count:,}" for name, count in meta.duplicates.items()}
    lines.append(
        f"  exact duplicates: {n['within_train']} within train; of val {n['val_in_train']} in train; "
        f"of test {n['test_in_train']} in train, {n['test_in_val']} in val; "
        f"dropped {n['dropped_val']} from val, {n['dropped_test']} from test"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    run(main)
