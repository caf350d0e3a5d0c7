"""Who and what a story chooses once and comes back to, the most probable first."""

from __future__ import annotations

from itertools import chain

from isoflop.grammar.notation import Entry, Lexicon, read_words

_SHE = {"he": "she", "him": "her", "his": "her"}
_HE = {"he": "he", "him": "him", "his": "his"}


def _children(girls: str, boys: str) -> list[Entry]:
    """Girls and boys in turn, with their pronouns and the phrases that introduce them."""

    def child(name: str, kind: str, pronouns: Entry) -> Entry:
        return {
            "word": name,
            "kind": kind,
            "named": f"{kind} named {name}",
            "called": f"{kind} called {name}",
            **pronouns,
        }

    pairs = zip(girls.split(), boys.split(), strict=True)
    return list(chain(*((child(girl, "girl", _SHE), child(boy, "boy", _HE)) for girl, boy in pairs)))


def _place(entry: Entry) -> Entry:
    return {**entry, "to": f"to the {entry['word']}", "in": f"{entry['at']} the {entry['word']}"}


_CHOSEN = read_words("""
grown (he him): mom/she/her, dad/he/him, grandma/she/her, grandpa/he/him, aunt/she/her, uncle/he/him,
    big sister/she/her, big brother/he/him
elder (he him his): Mr. Bell/he/him/his, Mrs. Hill/she/her/her, Mr. Brown/he/him/his, Mrs. Wood/she/her/her,
    Mr. Green/he/him/his, Mrs. Page/she/her/her, Mr. Stone/he/him/his, Mrs. Cook/she/her/her, Mr. Reed/he/him/his,
    Mrs. Rossi/she/her/her, Mr. Grant/he/him/his, Mrs. Chen/she/her/her, Mr. Novak/he/him/his, Mrs. Silva/she/her/her,
    Mr. Olsen/he/him/his, Mrs. Adler/she/her/her, Mr. Lind/he/him/his, Mrs. Doyle/she/her/her
job: baker, farmer, teacher, gardener, doctor, painter, sailor, tailor, miller, shepherd, librarian, carpenter,
    beekeeper, musician, potter
hobby (ing): sing/singing, dance/dancing, paint/painting, read/reading, swim/swimming, draw/drawing,
    climb trees/climbing trees, jump rope/jumping rope, run/running, skip/skipping, whistle/whistling,
    pick berries/picking berries, plant seeds/planting seeds, tell jokes/telling jokes, count stars/counting stars
home: house, cottage, cabin, farmhouse, bungalow, hut, lodge, mill, tower
pet (cry): dog/barked, cat/meowed, puppy/yapped, kitten/mewed, bunny/squeaked, parrot/squawked, duck/quacked,
    goat/bleated, pony/neighed, hen/clucked, piglet/grunted, lamb/baaed, donkey/brayed, goose/honked
petname: Max, Spot, Coco, Buddy, Rusty, Biscuit, Lucky, Patch, Honey, Ginger, Pepper, Snowy, Muffin, Waffle, Tiger,
    Fluffy, Peanut, Button, Noodle, Toffee, Ziggy, Jelly, Smoky, Pip
toy: ball, kite, doll, truck, drum, boat, robot, train, bear, puppet, rocket, hoop, plane, bucket, spade, dragon,
    lantern, flute, tractor, monkey
place (at): park/in, beach/at, meadow/in, playground/at, forest/in, lake/by, garden/in, river/by, hill/on, field/in,
    orchard/in, schoolyard/in, harbor/at, market/at
spot: under an old bench, behind a stone wall, inside a hollow log, beside a mossy rock, under some leaves,
    behind an apple tree, in a dry ditch, under a wooden cart, between two barrels, next to a thorn bush,
    in a patch of clover, near a broken fence, below an oak, on a flat stump
food: soup, pancakes, bread and jam, cookies, noodles, apple pie, rice and beans, porridge, stew, cheese toast,
    dumplings, corn, muffins, plum cake, omelets
critter (part move): bird/wing/fly, rabbit/paw/hop, squirrel/leg/climb, mouse/tail/run, fox/paw/run, turtle/leg/walk,
    owl/wing/fly, frog/leg/jump, hedgehog/paw/walk, robin/wing/fly, deer/leg/leap, swan/wing/swim, beaver/tail/swim,
    sparrow/wing/fly, badger/paw/dig, otter/paw/swim
fur: gray, spotted, fluffy, striped, pale, dark, shiny, speckled, rust-red, snow-white, yellowish, coal-black
vessel: hat, basket, scarf, box, jacket, blanket, bag, wagon, towel, apron
dare (do did): slide/go down/went down, bridge/walk across/walked across, ladder/climb/climbed,
    tunnel/crawl through/crawled through, cave/walk into/walked into, rope swing/ride/rode, wall/climb/climbed,
    log/walk along/walked along, tower/go up/went up, net/climb/climbed, maze/run through/ran through,
    zip line/ride/rode
count: three, ten, five, seven, four, six, eight, twelve, nine, twenty, eleven
comforting: pancakes, the summer sun, an elephant, soft snow, a silly song, fresh bread, the sea, candles, fireflies,
    a dancing bear, ripe plums, the moon
feed: seeds, berries, nuts, bread crumbs, worms, apple slices, oats, clover, corn, warm milk, crickets, fresh grass,
    mushrooms, acorns
cake: cake, pie, tart, pudding, pizza, strudel, quiche, waffle, biscuit, bread roll
topping: berries, nuts, cherries, honey, raisins, apples, plums, pears, lemon cream, mint, figs, sugar stars, vanilla,
    almonds
frail: window, lamp, flower pot, vase, mirror, jar, teapot, clock, plate, birdhouse, bowl, mailbox, snow globe
part: door, roof, gate, fence, porch, chimney, balcony, wall
lure: butterfly, dragonfly, lizard, feather, bumblebee, moth, beetle, leaf, cricket, grasshopper, snail, toad
mark: tree, rock, sign, well, gate, statue, wall, post, bush, log, street lamp, pillar, fountain, boulder
prize: medal, cake, cup, bike, paint box, story book, candy bag, star, ribbon, hat, castle, honey pot, kite, drum,
    pencil set, necklace
skill (ing): juggle/juggling, whistle/whistling, do magic/doing magic, walk on hands/walking on hands,
    fold cranes/folding cranes, play the violin/playing the violin, tie knots/tying knots, speak Greek/speaking Greek,
    draw horses/drawing horses, skip stones/skipping stones, carve wood/carving wood, make puppets/making puppets,
    yodel/yodelling
paint: red, blue, yellow, green, pink, orange, purple, white, brown, silver, golden, black, gray
colour: red, blue, yellow, green, pink, orange, purple, white, brown, silver, golden, black, gray
""")

CAST: Lexicon = {
    **_CHOSEN,
    "hero": _children(
        """Lily Mia Anna Sara Ella Lucy Emma Zoé Ruby Nora Ivy Daisy Molly Hazel Chloé Clara Poppy Fiona Greta Jenny
        Katie Leila Megan Naomi Olive Pearl Rosa Tilly Wendy Heidi""",
        """Tom Ben Tim Sam Leo Jack Noah Finn Owen Hugo André Luke Adam Eric Felix Henry Isaac Jacob Kevin Liam Milo
        Nico Oscar Peter Quinn Ravi Simon Theo Victor Walter""",
    ),
    "friend": _children(
        "Amy Beth Cora Dora Edith Faye Gina Holly Isla June Kira Lola Maya Nina Opal Penny Ruth Sofia Tanya Una",
        "Alex Bob Carl Dan Emil Frank Glen Hank Ian Joe Karl Lenny Mark Ned Otto Paul Ray Seth Ted Umar",
    ),
    "newcomer": _children(
        "Aisha Bella Celia Delia Freya Hana Inés Jade Kim Linh Mei Noor Priya Salma",
        "Ahmed Bruno Diego Enzo Farid Gabe Hiro Ivan José Koji Malik Omar Pablo Samir",
    ),
    "place": [_place(entry) for entry in _CHOSEN["place"]],
}
