"""Plots in which someone needs a kindness: a toy to share, a hurt animal, a birthday, a race, a new child."""

RULES = """
share:
  <share_ask> <share_hurt>|<share_sorry> <share_play> <share_lesson>

share_ask:
  "(May/Can) I have the {toy}?" asked {friend} [softly]. "(No/Never)!" [said] {hero}.
  {friend} wanted the {colour} {toy}, but {hero} [ran] away and hid it [where].
  [then], {friend} asked for the {colour} {toy}. "It is mine!" [said] {hero}.
  {friend} had [worn.a] [junk], but {hero} did not want to share the {toy}.
  {hero} played with the {toy} [where]. "Not you!" {hero.he} told {friend} [softly].

share_hurt:
  {friend} [felt] [sad] and [low]. {friend.He} sat down {spot}.
  {friend.His} [tears] turned red, and {friend.he} sat {spot}, [very] [sad].
  "Are we not [good] friends?" {friend} [sobbed] and sat {spot}.
  Without a (word/sound/smile), {friend} sat {spot}, [sad] and [low].
  {friend} hid {spot} and [began] to [weep], [sad] and [low].

share_sorry:
  {hero} [ran] to {friend}. "[sorry]. (Here/Please), take the {toy}."
  "[sorry]," {hero} [softly] said to {friend} {spot}. "[amends]."
  {hero} found {friend} {spot} and [softly] said, "[sorry]."
  "[hope]," said {elder}, who was [chore]. "[sorry]," [sobbed] {hero}.
  All alone, {hero} [felt] [sad]. "[sorry]. [amends]," {hero.he} [sobbed].

share_play:
  [then], they took turns and played [game] and [play] [where].
  {friend} [smile]. [then], they played [game] [there].
  They played a game called “[tune]” [number] times and [smile].
  {petname} {pet.cry} and joined in, and all played [game] [where].
  "[praise]!" [said] {friend}, and they played [game] [where].

share_lesson:
  {hero} (learned/saw/found) that sharing {toy.a} makes you [glad] and [light].
  [since], {hero} shared the {toy} with every [mood], [good] friend.
  {hero} [felt] [glad], for [good.a], [mood] friend is better than {toy.a}.
  "What I share, I have twice," {hero} [thought], [very] [glad].

hurt:
  <hurt_see> <hurt_carry>|<hurt_feed> <hurt_free> <hurt_lesson>

hurt_see:
  {spot.Word} lay [look.a], {fur} {critter} with a (hurt/broken) {critter.part}.
  [then], they heard [sound]. {fur.A} {critter} lay {spot}.
  {petname} {pet.cry}. {fur.A} {critter} lay {spot}, [sad] and [low].
  They saw [look.a], {fur} {critter} {spot}. Its {critter.part} was hurt.
  {friend} found [look.a], {fur} {critter} {spot}. It [felt] [sad].

hurt_carry:
  "[comfort]," {hero} said, and put it into [worn.a] {vessel} [softly].
  {friend} found [nice.a] {vessel}, and they [ran] to {elder} with it.
  With [nice.a] {vessel}, they brought it to {elder}, who stopped [chore].
  They put it in [nice.a] {vessel}, and {elder} washed its {critter.part} [softly].
  {hero} made it a bed in [worn.a] {vessel}. "[comfort]," {hero.he} said [softly].

hurt_feed:
  [often.Word], {hero} brought it {feed} and [softly] sang “[tune]”.
  {hero} fed it {feed}, and it slept in the {vessel} [bedside].
  {friend} came with {feed} [often] and sang “[tune]” to it.
  For [number] days, it ate {feed} in its {vessel} [bedside].

hurt_free:
  [then], the {fur} {critter} could {critter.move} [fast] again. {friend} [smile].
  "Look, it can {critter.move}!" [said] {hero}. It went [fast] and [fast_too].
  After [number] days, it could {critter.move} [fast] and left [stuff.a] [where].
  "(Goodbye/Farewell), [look] {critter}!" [said] {hero}, and it went [fast].
  "[praise]!" [said] {elder}, when it could {critter.move} [where] again.

hurt_lesson:
  {hero} (learned/saw/found) that helping {critter.a} makes you [glad] and [light].
  [since], {hero} was [mood] and [virtue] with every {critter}.
  "I can help, and that makes me [glad]," {hero} [thought] [softly].
  The {fur} {critter} came back [often] to eat {feed}.

bake:
  <bake_plan> <bake_mess>|<bake_cheer> <bake_gift> <bake_lesson>

bake_plan:
  They (wanted/planned/wished) to make [tasty.a] {cake} with {topping} for {elder}.
  "Let us make {cake.a} with {topping} for {elder}!" [said] {friend} [softly].
  {elder} was [sad]. "{cake.A} with {topping} will help," [said] {hero}.
  They found {topping} and [ran] home to (make/bake) {cake.a} for {elder}.

bake_mess:
  But {petname} the [look] {pet} jumped up, and the {cake} fell [bedside].
  But they played [game], and the {cake} burned. {hero} [felt] [sad].
  But {hero} slipped on [worn.a] [junk], and the {cake} fell [bedside].
  "Oh no, I put in (salt/sand/soap/pepper)!" {hero} [sobbed], [very] [sad].
  But it (burned/fell). "I can only {hobby}!" {hero} [sobbed], [sad] and [low].

bake_cheer:
  "[comfort]," [softly] said {hero.his} {grown}. "We still have {topping}."
  {hero.His} {grown} [hugged] {hero.him} and said, "[comfort]. [hope]."
  "[comfort]," said {friend} [softly], and mixed [number] eggs with [sip] [drink].
  {hero.His} {grown} [smile]. "I once burned [number] of them. [hope]."
  So they (quickly/carefully/slowly) took [number] eggs, [drink] and [nice.a] bowl.

bake_gift:
  They took it to {elder}, who was [chore]. "[praise]!" {elder.he} [said].
  {elder} ate the {cake}, stopped [chore] and [smile]. "[praise]."
  "For me?" [said] {elder}, who was [chore]. {elder.He} [felt] [very] [glad].
  The {job} ate [number] pieces with {topping}, [smile] and [hugged] {hero}.
  {elder} put more {topping} on it, [smile] and [cheer]. "[praise]."

bake_lesson:
  {hero} (learned/saw/found) that you can try again, even when you are [sad].
  [since], {hero} stayed [mood] and [virtue] when things went wrong.
  "The second {cake} is always [tasty]," {hero} [thought], [very] [glad].
  {hero} [felt] [glad] and [light], for being [virtue] had made the {cake} [tasty].

race:
  <race_call> <race_fall>|<race_help> <race_line> <race_lesson>

race_call:
  {elder}, the {job}, (held/planned/began) a (big/short/long/funny/merry/wild) race. The prize was {prize.a}.
  "Who wants [nice.a] {prize}?" [said] {elder}. [number.Word] children [ran] fast.
  There was a (big/short/long/funny/merry/wild) race {place.in}, and the prize was {prize.a}.
  The {job} had {prize.a} for the (fastest/quickest), so {hero} [ran] [fast].

race_fall:
  [then], {friend} fell over [worn.a] [junk] and hurt {friend.his} [limb].
  But {friend} slipped [where] and hurt {friend.his} [limb] and {friend.his} [body].
  Behind {hero.him}, {friend} fell [where] and [sobbed]. {friend.His} [limb] (hurt/bled).
  There was [sound]. {friend} had hurt {friend.his} [limb] [where].

race_help:
  {hero} [softly] took {friend.his} hand. "[comfort]," {hero.he} said.
  {hero} saw the {prize}, but [ran] back to {friend}. "[comfort]."
  "[comfort]," said {hero}, and put [worn.a] scarf on {friend.his} [limb].
  "Go on and win!" {friend} [sobbed], but {hero} [felt] [sad] and stopped.
  {hero} [felt] [sad], stopped and [hugged] {friend}. "[hope]."

race_line:
  They came in last, but {petname} {pet.cry}, and {elder} [smile] and [cheer].
  They [softly] walked to the end and sang “[tune]”. {elder} [smile].
  They crossed the line last, [worn] and [torn], but {friend} [smile].
  "[praise]," said {elder}, and gave them both [nice.a] {prize}.
  "[praise]," said {elder} and [smile]. "You have [good.a] heart."

race_lesson:
  {hero} (learned/saw/found) that [good.a], [mood] friend is better than {prize.a}.
  [since], {hero} never ran ahead when someone [felt] [sad] or [low].
  "The last place can be [glad] too," {hero} [thought] and [smile].
  {hero} [felt] [glad] and [light]. What is {prize.a} without [good.a] friend?

newcomer:
  <new_see> <new_greet>|<new_skill> <new_play> <new_lesson>

new_see:
  [nature.A] {newcomer.named} with [hair] hair sat {spot}, [sad] and [low].
  There was [nature.a] {newcomer.called}, new in town, who sat {spot} and [felt] [sad].
  {elder} was [chore] with [nature.a], [mood] {newcomer.named}.
  Alone {spot} sat [nature.a] {newcomer.called} with [hair] hair.

new_greet:
  {hero} [ran] over. "Do you (want/like/know how) to play [game] with my {toy}?"
  "(Hello/Hi), {newcomer}! Do you like to {hobby}?" asked {hero} [softly].
  {hero} showed {newcomer.him} the {colour} {toy} and [junk.a]. "[comfort]."
  "This is my [look] {pet}," {hero} told {newcomer} [softly]. {petname} {pet.cry}.
  "[comfort]," said {hero}. "I am [mood], and {friend} is [virtue]."

new_skill:
  [then], {newcomer} showed that {newcomer.he} could {skill}. {elder} [smile].
  "I can {skill}," [softly] said {newcomer}, and {petname} {pet.cry}.
  {newcomer} [felt] [scared] and [low], but {newcomer.he} could {skill}!
  {newcomer} could {skill} and [pastime]. "[praise]!" [said] {friend}.

new_play:
  [then], they tried {skill.ing} [where] and [smile].
  They learned {skill.ing}, and {newcomer} learned to [pastime].
  They played [game] and [play], until the bells rang [number] times.
  "(Teach/Show) us!" [said] {hero}, and {skill.ing} was better than [game].
  {newcomer} [hugged] {petname} and {friend} and [felt] [glad] and [light].

new_lesson:
  {hero} (learned/saw/found) that a stranger can become [good.a], [mood] friend.
  [since], {hero}, {friend} and {newcomer} were [good], [mood] friends.
  "[praise]," {newcomer} told {hero}, no longer [sad] and [low].
  {hero} [felt] [very] [glad], for you can find [good.a] friend [where].
"""
