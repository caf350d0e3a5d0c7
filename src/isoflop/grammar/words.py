"""The words that are drawn anew at each mention, the most probable first.

Where one sentence needs two of a kind, the second comes from a list of its own, so that nobody is "sad and sad".
In any list no form that a template uses may be the beginning of another word's (never both `ball` and `balloon`):
that is what makes a story decodable, and `checks.ambiguities` watches over it.
"""

from __future__ import annotations

from isoflop.grammar.notation import Lexicon, read_words

WORDS: Lexicon = read_words("""
# people
nature: little, kind, brave, clever, curious, gentle, funny, quiet, lively, sweet, young, shy, polite, helpful, bold,
    tough, smart, eager, cautious, strong, silly, stubborn, humble
mood: happy, cheerful, merry, friendly, playful, busy, jolly, chatty, loving, careful, generous, thoughtful, dreamy,
    sensible, witty, modest, nimble, tidy, bubbly
virtue: calm, patient, fair, hopeful, mindful, wise, strong, steady
hair: curly, long, short, red, dark, messy, black, brown, wavy, blond, straight, golden, thick, fluffy
good: good, true, kind, loyal, real, caring, great, dear, trusty, close
sad: sad, upset, worried, lonely, unhappy, sorry, gloomy, miserable, troubled, hopeless, downcast, bitter, glum,
    ashamed, blue, grumpy
low: tired, helpless, empty, cold, small, weak, lost, alone, numb, pale, stiff, restless, dizzy, hollow, tense
glad: happy, glad, proud, joyful, thankful, cheerful, pleased, excited, delighted, lucky, lighthearted, blissful,
    overjoyed, elated, satisfied, merry
light: content, calm, free, strong, grateful, safe, peaceful, at ease, hopeful, brave, rested, warm, loved, sleepy,
    ready
scared: scared, afraid, frightened, nervous, shaky, alarmed, timid, anxious, uneasy, fearful, panicky, spooked,
    startled, jumpy
felt: felt, was, became, looked, seemed, grew
very: very, so, really, quite, rather, truly, terribly, awfully
loved: loved, liked, wanted, wished, hoped, learned, longed
began: began, started, wanted, had
weep: cry, weep, sob, shake, tremble, sniff
said: said, cried, called, shouted, replied, laughed, sang, answered, yelled, cheered, announced, exclaimed, declared,
    chirped, roared, joked, squealed
thought: thought, said, whispered, sang, wrote, murmured, mumbled
fast_too: on and on, out of sight, to its friends, without fear, up and down, on its way
softly: softly, gently, kindly, quietly, slowly, warmly, calmly, sweetly, tenderly, patiently, carefully, politely,
    quickly, nicely, brightly, simply, clearly, mildly
sobbed: cried, sobbed, wailed, sniffed, shouted, said, wept, moaned, gasped, whimpered, stammered
smile: smiled, laughed, giggled, nodded, grinned, blushed, beamed, winked, chuckled, blinked, rejoiced, gasped
cheer: clapped, waved, danced, cheered, hummed, jumped for joy, whistled, sang, spun around, bowed, whooped, hopped,
    leaped, twirled
hugged: hugged, thanked, kissed, squeezed, cuddled, embraced, patted, stroked, greeted, praised, tickled, petted
ran: ran, raced, hurried, rushed, dashed, hopped, skipped, marched, jogged, trotted, walked, went, bounced, sped,
    darted, flew
body: hands, knees, legs, fingers, arms, feet, shoulders, toes, elbows, lips, thumbs, ankles, wrists, ears
throat: throat, head, neck, back, belly, mouth, voice, nose
tears: eyes, cheeks, ears
limb: knee, foot, elbow, hand, leg, arm, ankle, toe, chin, wrist, thumb, heel, finger, hip, shin, rib, thigh
number: three, two, five, four, ten, six, seven, eight, twenty, nine, twelve, eleven, thirty, fifteen

# things
person: man, woman, boy, girl, farmer, nurse, sailor, baker, old lady, student, singer, clown, cook, postman,
    tall lady
animal (many): goose/geese, squirrel/squirrels, cow/cows, crow/crows, sheep/sheep, pigeon/pigeons, hare/hares,
    snake/snakes, mole/moles, frog/frogs, bee/bees, swan/swans, calf/calves, raven/ravens, mule/mules,
    sparrow/sparrows, lizard/lizards
size: small, tiny, pretty, quiet, sleepy, busy, pleasant, faraway, old, snowy, dusty, sunny, windy, famous
cozy: cozy, small, warm, tidy, bright, old, neat, narrow, pretty, lovely, wooden, simple, crooked, cheerful
look: little, small, fat, soft, playful, old, clever, lazy, cheeky, funny, sleepy, gentle, hungry, brave, tame, noisy,
    proud, chubby, tiny, furry, shy, smart, slow, silly
habit: napped in the sun, chased leaves, knew funny tricks, was always hungry, hid under tables, loved mud,
    feared thunder, stole socks, loved to be brushed, drank warm milk, opened doors, danced for food, snored at night,
    followed everyone
trick: dug holes, ate apples, loved the rain, ran in circles, hated baths, played with yarn, guarded the gate,
    rolled in grass, jumped over logs, yawned all day
animal_does: slept, sat, sang, played, rested, ate, hid, drank, danced, jumped, waited, snored, ran around, dug
big: big, huge, tall, giant, strange, mighty, wide, scary, enormous, great, amazing, long
odd: dark, narrow, slippery, old, creaky, windy, wet, dusty, shaky, mossy, crooked, icy
nice: new, pretty, old, lovely, precious, painted, beautiful, rare, favorite, wooden, fine, shiny, cute, elegant,
    dainty, heavy, costly, simple, curious
worn: dusty, muddy, wet, dirty, sandy, sticky, scratched, dented, rusty, bent, old, broken, oily, chewed, crooked,
    moldy, chalky
torn: cold, faded, chipped, smelly, torn, soggy, greasy, stained, scraped, frayed, grimy, singed, cracked, slimy,
    tattered
tasty: warm, hot, fresh, sweet, tasty, yummy, homemade, delicious, steaming, special, buttery, crispy, salty,
    tender, light, mild, thick, fine
sip: cold, warm, hot, fresh, sweet, iced, plain, foamy
drink: milk, tea, cocoa, water, juice, lemonade, cream, cider
fruit: apples, plums, pears, berries, nuts, cherries, grapes, peaches, melons, apricots, tomatoes, oranges, figs, lemons
wear: hat, scarf, coat, shirt, cap, vest, jacket, belt, sweater, cloak, apron, raincoat, dress
snack: treat, carrot, biscuit, snack, piece of bread, bit of cheese, crust, cracker, apple slice, nut, pear,
    bag of oats
junk: shoe, bottle, stick, spoon, sock, can, nest, glove, pebble, coin, umbrella, rag, button, pine cone, acorn,
    feather, fork, hook, brick, sandal, ladle, map, bead, sponge, whisk
stuff: rope, box, key, hat, penny, leaf, comb, wheel, cup, bone, ribbon, marble, egg, newspaper, tire, belt, nail,
    mop, pan, pipe, stamp, candle, bucket, needle, jug

# places and times
near: by a river, near a hill, next to a school, by the sea, near the woods, beside a lake, on a quiet street,
    at the end of a lane, in a green valley, close to a bridge, behind a church, in a big town, under tall trees
time: one day, one morning, after lunch, on Saturday, one afternoon, after breakfast, on a warm day, on Sunday,
    after school, in the summer, last autumn, in spring, on a holiday, at noon, before lunch, at dawn, last week,
    in May, in April, late one day, once, on Monday, on Friday
often: every day, on Sundays, after school, in the evening, each morning, every week, at noon, most days,
    before supper, all summer
then: Then, Soon, Suddenly, Just then, At last, Before long, A moment later, All at once, In the end, Right away,
    After that, Now, Minutes later, Out of the blue, That moment, Shortly after, One minute later
since: Since then, From that day on, Ever since, After that day, From then on, All year long, Later on
weather: The sun was shining, The sky was blue, It was very warm, Birds were singing, A soft wind blew,
    White clouds drifted by, Bees hummed, The grass was wet, Everyone was outside, Snow lay all around,
    Leaves were falling, Roses were blooming, A bell was ringing, The day was young, Dew lay everywhere, It was windy,
    A rainbow shone, It was foggy
later: a while, an hour, a few minutes, some time, a short rest, a long game, two songs, a snack, a nap, three rounds,
    half a day
where: under the slide, in the tall grass, by the gate, between the rocks, along the path, near the well,
    on the steps, around the pond, behind the shed, beside the tent, in the sand, among the flowers, on the bench,
    under a bridge, by the wall, near the pier, on a rock, at the corner, below the trees, in the shade
there: under every bush, in all the bins, behind the kiosk, up in the trees, below the stairs, at the fountain,
    inside the boats, by the swings, beyond the hedge, past the bakery, on the roof, in the puddles, over the fence,
    across the street, on the hill, behind the barn, in a basket, under the carts, near the tower, in the mud
bedside: by the bed, near the stove, in a corner, on the rug, under the window, beside a lamp, on a pillow,
    next to the door, behind a chair, on a blanket
vision: rain, giants, trumpets, snowmen, gold, a big party, wolves, lightning, bells, ships, a fair
dream: dragons, the sea, flying, pirates, ice cream, castles, a big ship, the moon, kings, talking trees, blue whales,
    magic shoes, elves, trains, a gold crown, snow
pastime: play, run, jump, explore, fish, pick flowers, look for shells, have a picnic, ride bikes, fly kites, climb,
    roll around, watch birds, collect leaves, sing, skate, skip, juggle, swim, look around, throw stones, sled,
    whistle, draw, hide
game: tag, hide and seek, catch, pirates, knights, shop, school, leapfrog, chess, cards, soccer, doctor, ring toss,
    bowling, jump rope, dominoes, dress up
play: circus, explorers, marbles, farm, robbers, trains, post office, cowboys, zoo, statues, wizards, sailors,
    monsters, bakery, ninjas, library, detectives, hospital
chore: sweeping leaves, feeding ducks, fixing a chair, reading a paper, carrying milk, mending a net, picking beans,
    painting a sign, watering plants, chopping wood, counting eggs, eating a pear, humming a tune, washing a cart,
    writing letters, making tea, looking around, feeding hens, baking bread, buying fish, planting trees,
    selling eggs, singing, knitting, polishing boots
fast: fast, away, ahead, in circles, around, back and forth, straight on, like the wind, off, forward, home, in loops,
    everywhere

# sayings, without their full stop
comfort: Do not worry, Do not cry, Do not be sad, I will help you, We can do this, It will be all right,
    You are not alone, Let us try again, Take a deep breath, Stay calm, Hold my hand, Be brave, Dry your tears,
    I am here, Cheer up, Wait a bit, Leave it to me, Trust your heart, Think of home, Just smile, I have an idea
hope: There is a way, Things will get better, Tomorrow is a new day, Everyone needs help, I know you can,
    It could be worse, Nothing is lost, Friends help, We have time, Trust me, You are strong, The sun will shine,
    Step by step, It is not far, Better late than never, Never say never
sorry: I am sorry, I was wrong, I feel bad, That was not nice, It was my fault, I did not mean it, I made a mistake,
    I am ashamed, I was unkind
amends: Please forgive me, I will make it good, Let me help you, I will listen now, Let us be friends,
    I will do better
praise: Well done, You are so kind, Thank you, I am proud of you, What a good heart, You did it, That was brave,
    You are wonderful, How thoughtful, You make me smile, Bravo, Good job, Hooray, Very good, Hurrah, Wonderful,
    You are the best, What a surprise, How brave, Very kind, Splendid
sound: a soft cry, a sad squeak, a strange noise, a weak call, a faint rustle, a thin peep, a tiny sob, a low whimper,
    a little cough, an odd growl
noise: a knock, the wind, a splash, an owl, a long sigh, some steps, a crack, a buzz, distant bells, a hiccup
tune: Sunny Day, Row the Boat, The Brave Little Bee, Hop Hop Hooray, Moonlight, My Best Friend, La La La, Ten Ducks,
    Café Waltz
""")
