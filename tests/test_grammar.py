from __future__ import annotations

import hashlib
import random
import re
from collections import Counter, defaultdict
from itertools import chain, pairwise
from math import fsum, log2, prod, sqrt
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy import stats

from isoflop import grammar
from isoflop.errors import IsoflopError
from isoflop.grammar import frame, kindnesses, troubles
from isoflop.grammar.cast import CAST
from isoflop.grammar.checks import ambiguities, measure, points
from isoflop.grammar.compiled import Branch, Draw, Op, Recall, zipf
from isoflop.grammar.engine import Choice, Grammar
from isoflop.grammar.notation import Inline, Mention, read_rules, read_words
from isoflop.grammar.words import WORDS

LEXICON = {**CAST, **WORDS}
RULES = read_rules(frame.RULES, troubles.RULES, kindnesses.RULES)
TEMPLATES = [template for alternatives in RULES.values() for template in alternatives]

# A grammar small enough to list: slots, forms, fresh words, inline words, a nested rule.
TOY = """
story:
  {pet.A} (sat/ran). <end>
  [sound.Word]! <end>
end:
  The {pet} [sound].
  {pet.Word}s [sound] at {toy.a}, not at {toy.a}.
  Every {toy} is for {pet}s.
"""
TOY_WORDS = "pet: ox, dog\nsound: hums, barks, é\ntoy: ball, urn"


def toy(rules: str, words: str = TOY_WORDS) -> Grammar:
    return Grammar(read_rules(rules), read_words(words))


def enumerate_stories(ops: tuple[Op, ...], held: dict[str, int]) -> list[tuple[str, float]]:
    """Every (text, probability) of a sequence, written out: what the engine and the checks are held against."""
    if not ops:
        return [("", 1.0)]
    head, rest = ops[0], ops[1:]
    if isinstance(head, str):
        options: list[tuple[str, float, tuple[Op, ...], dict[str, int]]] = [(head, 1.0, rest, held)]
    elif isinstance(head, Recall):
        options = [(head.texts[held[head.slot]], 1.0, rest, held)]
    else:
        weights = [1 / (rank + 3) for rank in range(len(head))]
        shares = [weight / sum(weights) for weight in weights]
        if isinstance(head, Branch):
            options = [("", share, path + rest, held) for share, path in zip(shares, head.paths, strict=True)]
        else:
            assert isinstance(head, Draw)
            slot = head.slot
            options = [
                (text, shares[rank], rest, held if slot is None else {**held, slot: rank})
                for rank, text in enumerate(head.texts)
            ]
    return [
        (text + tail, p * q) for text, p, following, now in options for tail, q in enumerate_stories(following, now)
    ]


@pytest.fixture(scope="module")
def sample() -> list[tuple[bytes, float]]:
    return list(grammar.generate(seed=7, n_bytes=2_600_000))


@pytest.fixture(scope="module")
def parsed(sample: list[tuple[bytes, float]]) -> list[tuple[str, list[Choice]]]:
    return [(story.decode(), grammar.parse(story)) for story, _ in sample]


def slots_of(choices: list[Choice]) -> dict[str, dict[str, str]]:
    """What the story chose for good: slot -> entry. Fresh lists have other names."""
    drawn = [(choice.point.strip("{}"), choice.rank) for choice in choices if choice.point.startswith("{")]
    return {slot: dict(CAST[slot][rank]) for slot, rank in drawn}


# One derivation


def test_every_story_has_exactly_one_derivation_and_the_generators_bits(sample):
    for story, bits in sample[:300]:
        derivations, _ = grammar.stories().derivations(story)
        assert len(derivations) == 1
        assert grammar.story_bits(story) == bits
        assert bits == pytest.approx(-log2(prod(2**-choice.bits for choice in derivations[0])), abs=1e-9)


def test_no_alternative_begins_another_at_any_choice_point_of_the_grammar():
    root = grammar.stories().root
    assert len(list(points(root))) > 200
    assert ambiguities(root) == []


@pytest.mark.parametrize(
    ("rules", "words", "ambiguous_story"),
    [
        ("story:\n  I see [a].", "a: ball, balloon", None),  # decodable thanks to the full stop, yet refused
        ("story:\n  I see [a][b].", "a: ball, balloon\nb: oons, s", b"I see balloons."),
        ("story:\n  A cat.\n  A cat.", "a: x", b"A cat."),
        ("story:\n  {a} sat.\n  Ox sat.", "a: Cow, Ox", b"Ox sat."),
        ("story:\n  <x> sat.\nx:\n  A cat\n  A cat sat. It", "a: x", None),
        ("story:\n  <x>e sat.\nx:\n  On\n  One", "a: x", None),
        ("story:\n  {a} and [a].\n  [a] and {a}.", "a: x, y", b"x and y."),
        ("story:\n  A <x>.\n  A <y>.\nx:\n  dog\n  cat\ny:\n  cow\n  cat", "a: x", b"A cat."),
    ],
)
def test_the_check_finds_a_broken_grammar(rules, words, ambiguous_story):
    broken = toy(rules, words)
    assert ambiguities(broken.root) != []
    if ambiguous_story is not None:
        assert len(broken.derivations(ambiguous_story)[0]) == 2
        with pytest.raises(AssertionError, match="2 derivations"):
            broken.parse(ambiguous_story)


def test_the_check_does_not_take_a_slot_for_the_same_word_where_the_sides_have_bound_it_apart():
    # "a-b: go down!" has two derivations: slot x is b on one side and a on the other, and `do` tells them apart late.
    rules = "story:\n  [x]-{x}: {x.do}!\n  {x}-[x]: {x.do} down!"
    words = "x (do): a/go, b/go down"
    broken = toy(rules, words)
    assert len(broken.derivations(b"a-b: go down!")[0]) == 2
    assert ambiguities(broken.root) != []


def test_the_check_accepts_a_sound_grammar_whose_alternatives_begin_alike():
    assert ambiguities(toy(TOY).root) == []
    assert ambiguities(toy("story:\n  {pet} sat on {toy.a}.\n  {pet} sat on {toy.a}!").root) == []


# Probabilities


def test_the_probabilities_of_every_choice_sum_to_one_and_fall_with_rank():
    for point in points(grammar.stories().root):
        assert fsum(point.probabilities) == pytest.approx(1, abs=1e-12)
        assert point.cumulative[-1] == 1
        assert all(a > b > 0 for a, b in pairwise(point.probabilities))
        assert point.bits == pytest.approx([-log2(p) for p in point.probabilities])
    assert zipf(2) == pytest.approx([4 / 7, 3 / 7], abs=1e-15)


def test_toy_stories_written_out_one_by_one_have_the_probabilities_that_parsing_gives():
    grammar_of_toys = toy(TOY)
    listed = enumerate_stories((grammar_of_toys.root,), {})
    # First alternative: 2 pets x 2 verbs x (3 sounds + 3 sounds x 2 toys + 2 toys); second: 3 sounds, the pet open.
    assert len(listed) == 2 * 2 * (3 + 3 * 2 + 2) + 3 * (2 * 3 + 2 * 3 * 2 + 2 * 2)
    assert len({text for text, _ in listed}) == len(listed)
    assert fsum(p for _, p in listed) == pytest.approx(1, abs=1e-12)
    for text, p in listed:
        assert grammar_of_toys.story_bits(text.encode()) == pytest.approx(-log2(p), abs=1e-12)


def test_measures_of_the_toy_grammar_equal_those_of_its_stories_written_out():
    root = toy(TOY).root
    listed = enumerate_stories((root,), {})
    sizes = [len(text.encode()) for text, _ in listed]
    size = measure(root)
    # Bounds may be loose, but never on the wrong side.
    assert min(sizes) - 2 <= size.least <= min(sizes)
    assert max(sizes) <= size.most <= max(sizes) + 2
    assert size.bytes == pytest.approx(fsum(n * p for n, (_, p) in zip(sizes, listed, strict=True)), abs=1e-12)
    assert size.bits == pytest.approx(fsum(-p * log2(p) for _, p in listed), abs=1e-12)


def chi_square(counts: Counter[int], expected: list[float]) -> tuple[float, int]:
    observed = np.array([counts[rank] for rank in range(len(expected))], dtype=float)
    return float(((observed - expected) ** 2 / expected).sum()), len(expected) - 1


def test_choices_come_as_often_as_their_probabilities_say(parsed):
    total, freedom, worst, tested = 0.0, 0, 1.0, 0
    uniform_total, uniform_freedom = 0.0, 0
    sizes = {point.name: len(point) for point in points(grammar.stories().root)}
    count: dict[str, Counter[int]] = defaultdict(Counter)
    for choice in chain(*(choices for _, choices in parsed)):
        count[choice.point][choice.rank] += 1
    for name, counts in count.items():
        size, n = sizes[name], counts.total()
        weights = np.array([1 / (rank + 3) for rank in range(size)])
        expected = n * weights / weights.sum()
        if size < 2 or expected.min() < 5:
            continue
        statistic, degrees = chi_square(counts, expected.tolist())
        total, freedom, tested = total + statistic, freedom + degrees, tested + 1
        worst = min(worst, float(stats.chi2.sf(statistic, degrees)))
        uniform, _ = chi_square(counts, [n / size] * size)
        uniform_total, uniform_freedom = uniform_total + uniform, uniform_freedom + degrees
    assert tested > 150
    assert worst * tested > 0.01  # Bonferroni over the choice points
    assert 0.005 < stats.chi2.sf(total, freedom) < 0.995
    # The same test refuses probabilities that are wrong.
    assert stats.chi2.sf(uniform_total, uniform_freedom) < 1e-100


@pytest.mark.parametrize(
    ("one", "other"),
    [("{hero}", "{friend}"), ("{colour}", "{paint}"), ("{toy}", "{pet}"), ("<plot>", "{colour}"), ("{toy}", "<night>")],
)
def test_choices_are_independent_of_each_other(parsed, one, other):
    table = np.zeros((4, 4))
    for _, choices in parsed:
        ranks = {choice.point: choice.rank for choice in choices}
        table[ranks[one] % 4, ranks[other] % 4] += 1
    assert stats.chi2_contingency(table).pvalue > 0.002


def test_mean_bits_and_bytes_meet_their_exact_expectations(sample):
    expected = measure(grammar.stories().root)
    for values, exact in (
        ([bits for _, bits in sample], expected.bits),
        ([float(len(story)) for story, _ in sample], expected.bytes),
    ):
        assert abs(fmean(values) - exact) < 4 * stdev(values) / sqrt(len(values))
    assert 0.25 < grammar.expected_bits_per_byte() < 0.5
    assert grammar.expected_bits_per_byte() == expected.bits / expected.bytes


# The same stories everywhere


def test_the_first_hundred_stories_of_seed_0_are_pinned():
    stories = [story for _, (story, _) in zip(range(100), grammar.generate(0, 10**9), strict=False)]
    digest = hashlib.sha256(b"\n".join(stories)).hexdigest()
    assert digest == "1e46ffa1d40776f23306ba2a1a822d32c02536e11c0662a2c3239fa149df3ea4"


def test_a_smaller_corpus_is_the_beginning_of_a_larger_one_and_seeds_differ():
    small, large = list(grammar.generate(3, 20_000)), list(grammar.generate(3, 60_000))
    assert large[: len(small)] == small
    assert sum(len(story) for story, _ in small) >= 20_000 > sum(len(story) for story, _ in small[:-1])
    assert list(grammar.generate(3, 0)) == []
    assert not {story for story, _ in small} & {story for story, _ in grammar.generate(4, 20_000)}


def test_a_negative_seed_is_refused_at_once():
    with pytest.raises(IsoflopError, match=r"grammar seed -1 must not be negative: choose 0 or more"):
        grammar.generate(-1, 1000)


# What the stories are like


def test_every_possible_story_has_500_to_1200_bytes(sample):
    bounds = measure(grammar.stories().root)
    assert bounds.least >= 500
    assert bounds.most <= 1200
    assert all(bounds.least <= len(story) <= bounds.most for story, _ in sample)


def test_stories_are_framed_by_nothing_and_hold_no_separator(sample):
    for story, _ in sample:
        assert story == story.strip()
        assert b"<|" not in story
        assert b"\r" not in story
        assert [len(part) > 0 for part in story.split(b"\n")] == [True] * 4
    assert any(len(story) > len(story.decode()) for story, _ in sample)


def test_spelling_is_that_of_english(sample):
    wrong = re.compile(
        r"\b[Aa] [aeiou]|\b[Aa]n (?!hour)[^aeiou]"  # articles
        r"|  | [.,!?]|[.,!?][.,]|\bundefined\b"  # spacing and punctuation
        r"|[.!?] [a-z]"  # a sentence begins with a capital
    )
    for story, _ in sample:
        text = story.decode()
        spoken = re.sub(r"\b(Mr|Mrs)\.", r"\1", text)
        spoken = re.sub(r'[!?]" [a-z]', '"', spoken)  # "Look!" said Tom.
        assert wrong.search(spoken) is None, wrong.search(spoken)
        for paragraph in text.split("\n"):
            assert paragraph[0].isupper() or paragraph[0] == '"'
            assert paragraph[-1] in '.!?"'
            assert paragraph.count('"') % 2 == 0
            assert paragraph.count("“") == paragraph.count("”")


def test_articles_are_chosen_by_sound_where_letters_mislead():
    # "a" and "an" go by the first letter: no word that takes an article may sound unlike its spelling.
    named = {e.name for e in chain(*TEMPLATES) if isinstance(e, Mention) and e.form.lower() == "a"}
    words = [entry["word"] for name in named for entry in LEXICON[name]]
    assert len(words) > 300
    assert [word for word in words if re.match(r"hon[^e]|hour|heir|uni|use|usu|eu|one|once", word)] == []


def test_nobody_is_sad_and_sad():
    # Two fresh words that stand side by side come from lists that share no word.
    for template in TEMPLATES:
        for left, link, right in zip(template, template[1:], template[2:], strict=False):
            mentions = isinstance(left, Mention) and isinstance(right, Mention)
            if mentions and not (left.is_slot or right.is_slot) and link in (" and ", ", ", " and then "):
                shared = {e["word"] for e in LEXICON[left.name]} & {e["word"] for e in LEXICON[right.name]}
                assert not shared, (left.name, right.name, shared)


def test_names_and_pronouns_stay_those_of_the_people_introduced(parsed):
    roles = ["hero", "friend", "newcomer", "petname"]
    names = {entry["word"] for role in roles for entry in CAST[role]}
    assert len(names) == sum(len(CAST[role]) for role in roles)
    for text, choices in parsed:
        slots = slots_of(choices)
        present = set(re.findall(r"\w+", text)) & names
        assert present == {slots[role]["word"] for role in roles if role in slots}
        assert set(re.findall(r"Mrs?\. \w+", text)) == {slots["elder"]["word"]}
        hero = slots["hero"]
        other = "his" if hero["his"] == "her" else "her"
        assert f"{other} {slots['grown']['word']}" not in text.lower()


def test_what_is_introduced_early_comes_back_late(parsed):
    late: Counter[str] = Counter()
    for text, choices in parsed:
        slots = slots_of(choices)
        beginning, _, _, end = text.split("\n")
        for slot in ("hero", "friend", "pet", "petname", "colour", "toy", "elder", "hobby", "grown", "paint", "part"):
            assert slots[slot]["word"] in beginning
            late[slot] += bool(re.search(rf"\b{slots[slot]['word']}", end))
        # The toy keeps its colour, the house its door.
        assert set(re.findall(rf"(\w+) {slots['toy']['word']}\b", end)) <= {slots["colour"]["word"], "the"}
        assert set(re.findall(rf"(\w+) {slots['part']['word']}\b", end)) <= {slots["paint"]["word"], "the"}
    assert all(late[slot] > len(parsed) / 20 for slot in late)
    assert late["hero"] > len(parsed) / 2


def test_every_rule_and_every_word_list_is_used():
    mentioned = {e.name for e in chain(*TEMPLATES) if isinstance(e, Mention)}
    assert mentioned == set(LEXICON)
    used = {point.name.strip("<>") for point in points(grammar.stories().root)}
    assert {name for name, alternatives in RULES.items() if len(alternatives) > 1} <= used
    assert len({entry["word"] for entries in LEXICON.values() for entry in entries}) > 1000


@pytest.mark.slow
def test_twelve_megabytes_hold_hardly_a_story_twice():
    stories = list(grammar.generate(0, 12_000_000))
    assert len({story for story, _ in stories}) > 0.999 * len(stories)
    bits_per_byte = fsum(bits for _, bits in stories) / sum(len(story) for story, _ in stories)
    assert bits_per_byte == pytest.approx(grammar.expected_bits_per_byte(), rel=0.005)


# What is not a story


def test_an_edited_story_is_refused(sample):
    story, _ = sample[0]
    text = story.decode()
    hero = slots_of(grammar.parse(story))["hero"]["word"]
    last = text.rindex(hero)
    other = "Ella" if hero != "Ella" else "Lucy"
    sentences = text.split(". ")
    random.Random(0).shuffle(sentences)
    for edited in (
        text[:last] + other + text[last + len(hero) :],  # the hero changes name at the end
        ". ".join(sentences),
        text[:-1],
        text + " The end.",
        text + "\n",
        text.replace("\n", "\r\n"),
        "",
    ):
        with pytest.raises(IsoflopError, match="not a story of the embedded grammar"):
            grammar.parse(edited.encode())


def test_the_error_says_where_the_story_leaves_the_grammar(sample):
    text = sample[0][0].decode()
    cut = text.index("\n") + 1
    with pytest.raises(IsoflopError, match=rf"nothing fits at character {cut}, 'zzz'"):
        grammar.story_bits((text[:cut] + "zzz").encode())
    with pytest.raises(IsoflopError, match="not a story of the embedded grammar: 'utf-8' codec"):
        grammar.parse(b"Once \xff")


# The notation


def test_the_notation_reads_slots_forms_fresh_words_and_line_breaks():
    (template,) = read_rules("# a comment\nstory:\n  {pet.He} saw (one/two)|[look.a].\n")["story"]
    assert template == [
        Mention("pet", "He", True),
        " saw ",
        Inline(("one", "two")),
        "\n",
        Mention("look", "a", False),
        ".",
    ]
    assert read_words("pet (cry): dog/barked,\n    wild cat/hissed\n") == {
        "pet": [{"word": "dog", "cry": "barked"}, {"word": "wild cat", "cry": "hissed"}]
    }


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("story:\n  {pet} <x>\nx:\n  {toy}\n  none\nx:\n  y", "rule x is defined twice"),
        ("story:\n  <x>\nx:", "rule x has no alternative"),
        ("story:\n  a [b", r"stray \['\['\]"),
        ("story:\n  <x>", "story: rule x is not defined"),
        ("story:\n  {lion}", "story: word list lion is not defined"),
        ("story:\n  {pet.cry}", "story: 'ox' has no form 'cry'"),
        ("story:\n  <x> {toy}\nx:\n  the {toy}\n  none", "story: slot toy may or may not be bound where it is used"),
    ],
)
def test_mistakes_in_a_grammar_are_named(rules, message):
    with pytest.raises(ValueError, match=message):
        toy(rules)


def test_word_lists_with_a_form_too_few_or_twice_the_name_are_refused():
    with pytest.raises(ValueError, match="zip"):
        read_words("pet (cry): dog/barked, cat")
    with pytest.raises(ValueError, match="word list pet is defined twice"):
        read_words("pet: dog\npet: cat")


def test_the_toy_generator_writes_every_story_it_can():
    grammar_of_toys = toy(TOY)
    listed = {text for text, _ in enumerate_stories((grammar_of_toys.root,), {})}
    written = {story.decode() for story, _ in grammar_of_toys.generate(0, 200_000)}
    assert written == listed
