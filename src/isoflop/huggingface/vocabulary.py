"""A tokenizer of this project as the tokenizer.json that `transformers` and `tokenizers` read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from isoflop.tokenizer import EOS_TEXT, BPETokenizer, Tokenizer, byte_of_character

if TYPE_CHECKING:
    import tokenizers


def to_tokenizers(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """The same ids for the same text, with the end-of-story token put before it; ids decode to the same text.

    One difference remains: a literal `<|endoftext|>` in a text becomes the token, where this project reads it as text.
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors

    character_of = {byte: character for character, byte in byte_of_character().items()}
    if isinstance(tokenizer, BPETokenizer):
        tokens = tokenizer.tokens
    else:  # bytes; 0xFF, the id that ends a story, never occurs in a text
        tokens = [bytes([byte]) for byte in range(tokenizer.eos)]

    def printable(token: bytes) -> str:
        return "".join(character_of[byte] for byte in token)

    vocabulary = {printable(token): i for i, token in enumerate(tokens)} | {EOS_TEXT: tokenizer.eos}
    merges = [(printable(left), printable(right)) for left, right in merges_of(tokens)]
    made = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    # GPT-2's rule cuts text into words before merging; without merges there is nothing to cut.
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=bool(merges))
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([EOS_TEXT])
    made.post_processor = processors.TemplateProcessing(
        single=f"{EOS_TEXT} $A", special_tokens=[(EOS_TEXT, tokenizer.eos)]
    )
    return made


def merges_of(tokens: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """The two parts that each token of several bytes was merged from, in order of priority.

    They are what the earlier merges make of its bytes (the order of `tokens` is that of the merges).
    """
    rank = {token: i for i, token in enumerate(tokens)}
    merges = []
    for i, token in enumerate(tokens):
        parts = [token[at : at + 1] for at in range(len(token))]
        while len(parts) > 2:
            ranks = [rank.get(left + right, i) for left, right in pairwise(parts)]
            at = min(range(len(ranks)), key=ranks.__getitem__)
            assert ranks[at] < i, f"{token!r} is not made of earlier tokens"
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        if len(parts) == 2:
            merges.append((parts[0], parts[1]))
    return merges
