"""Plots in which something goes wrong: a lost toy, a dare, a broken thing, a child astray."""

RULES = """
lost:
  <lost_gone> <lost_search>|<lost_clue> <lost_found> <lost_lesson>

lost_gone:
  But when they (stopped/began) playing [game], the {colour} {toy} was gone.
  After [later], {hero} saw that the {colour} {toy} was (missing/gone/lost).
  "Where is my {colour} {toy}?" {hero} [sobbed], [very] [sad].
  They played [game] and [play], until the {toy} was (missing/gone/lost).
  [then], the {colour} {toy} was (missing/gone/lost), and {hero} [felt] [very] [sad].
  But {hero} lost the {colour} {toy} and [began] to [weep].

lost_search:
  They (looked/searched) [where] and [there], but only found [stuff.a].
  "[comfort]," said {friend}, and looked [there] and [where].
  They found [worn.a] [junk] [where] and [stuff.a], but no {toy}.
  [where.Word] lay [worn.a] [junk], and [there] lay [stuff.a].
  "[comfort]," said {elder}, who was [chore]. "Look [there]."
  {hero} [felt] [sad] and [low]. "[comfort]," {friend} [said].

lost_clue:
  [then], {petname} {pet.cry} and [ran] [fast]. The {pet} dug {spot}.
  {petname} sniffed at [junk.a], {pet.cry} [softly] and dug {spot}.
  "Look!" [said] {friend}. {petname} was (digging/jumping/waiting) {spot}.
  [then], they heard {petname}. The {pet} {pet.cry} [softly] {spot}.
  {petname} found [worn.a] [junk], then {pet.cry} [softly] {spot}.

lost_found:
  There was the {toy}, [worn] and [torn] but not broken! {hero} [smile].
  It was the {toy}, [very] [worn], but {hero} [smile] and [cheer].
  "My {toy}!" [said] {hero}. It was [worn], but {hero.he} [smile].
  {hero} [hugged] the {toy}, {friend} [smile], and the {pet} got [snack.a].
  "[praise], {petname}!" [said] {friend}. The {toy} was [worn] and [torn].

lost_lesson:
  {hero} (learned/promised) to take care of {hero.his} {toy} and to be [virtue].
  [since], {hero} never left {toy.a} [where] again.
  "[good.A] friend is better than {toy.a}," {hero} [thought], [very] [glad].
  {hero} [felt] [glad], for you find things if you are [virtue] and [mood].

afraid:
  <afraid_see> <afraid_body>|<afraid_advice> <afraid_do> <afraid_lesson>

afraid_see:
  There was [big.a], [odd] {dare} [where], and {hero} [felt] [scared].
  [then], they came to [big.a], [odd] {dare} [where].
  "Look, [odd.a] {dare}!" [said] {friend}. {hero} [felt] [very] [scared].
  [where.Word] stood [big.a] {dare}. [number.Word] children (stood/waited/sat) there.
  By [big.a] tree, {hero} saw [odd.a] {dare} and [felt] [scared].

afraid_body:
  But {hero.his} [body] shook, and {hero.his} [throat] felt [low].
  {hero} [felt] [sad] and [scared] and hid [where] with [junk.a].
  "I cannot do it," {hero} [sobbed]. "I am [very] [scared]."
  "You go. I will play [game]," {hero} said [softly], [very] [sad].
  "What if I (fall/slip/cry)?" {hero.he} [sobbed]. {hero.He} [felt] [sad] and [low].

afraid_advice:
  "[comfort]," said {friend}. "Count to {count} and think of {comforting}."
  {elder} [smile]. "Think of {comforting} and count to {count}," {elder.he} said.
  "[comfort]," said {elder}. "Think of {comforting} and count to {count}."
  "[hope]," [said] {friend}. "Count to {count} and think of {comforting}."

afraid_do:
  {hero} thought of {comforting} and {dare.did} the {dare}. {friend} [smile].
  So {hero.he} counted [softly] to {count} and {dare.did} the [odd] {dare}.
  [then], {hero.he} counted to {count} and {dare.did} the {dare}. {elder} [smile].
  "{comforting.Word}," {hero} [thought], and [softly] {dare.did} the {dare}.
  At "{count}", {hero} {dare.did} the [odd] {dare}, and {petname} {pet.cry}.
  {hero.He} {dare.did} the [odd] {dare}, [smile] and [cheer].

afraid_lesson:
  {hero} (learned/saw/found) that brave {hero.kind}s are [scared] too, but they try.
  [since], {hero} was not [scared] any more, only [glad] and [light].
  [since], {hero} counts to {count} when {hero.he} is [scared] or [sad].
  "[praise]!" [said] {elder}, and {hero} [felt] [glad] and [light].

broke:
  <broke_crash> <broke_hide>|<broke_truth> <broke_answer> <broke_lesson>

broke_crash:
  They played [game], and the {toy} (hit/broke/struck) {elder}'s [nice] {frail}.
  The {toy} (slipped/flew/jumped) [fast] and broke {elder}'s [nice] {frail}.
  [then], {petname} jumped up, and the {toy} broke {elder}'s {frail}.
  (Crack/Crash/Bang/Oh no)! {hero} had dropped the {toy} on {elder}'s [nice] {frail}.
  When they played [game], {hero} dropped {elder}'s [nice] {frail}.

broke_hide:
  "[hope]," said {friend} [softly]. "Let us hide {spot}."
  They (were/felt/grew/looked) [very] [scared] and [ran] away to hide {spot}.
  {hero} [felt] [scared] and [low] and [ran] to hide {spot}.
  "(Quick/Come/Hurry)!" [sobbed] {friend}, and they hid {spot}, [very] [scared].
  {elder} was [chore] and did not see them hide {spot}.

broke_truth:
  {hero} came out [softly]. "[sorry]," {hero.he} [sobbed]. "[amends]."
  {hero} stood up {spot} and said [softly], "[sorry]."
  "I broke the {frail}," {hero} [sobbed]. "[sorry]. [amends]."
  {elder} stopped [chore] and [felt] [sad]. "[sorry]," {hero} [sobbed].
  "Who did this?" [sobbed] the {job}. "[sorry]," [softly] said {hero}.

broke_answer:
  {elder} [smile]. "[praise]. It is (hard/good/right) to tell the truth."
  "It is only {frail.a}," said {elder} [softly]. "[praise]."
  "[praise]," said {elder}, and [hugged] {hero} and [cheer].
  {hero} fixed the {frail} with glue and [stuff.a], and {elder} [smile].
  "[hope]," said {elder}, and painted the [nice] {frail} [colour].

broke_lesson:
  {hero} (learned/saw/found) that the truth makes you [glad] and [light].
  [since], {hero} always told the truth, even when {hero.he} was [scared].
  "The truth is like [good.a], [mood] friend," {hero} [thought], [very] [glad].
  {hero} [felt] [glad]. It is better to be [virtue] than to hide {spot}.

astray:
  <astray_lure> <astray_alone>|<astray_think> <astray_found> <astray_lesson>

astray_lure:
  [then], {hero} saw [look.a], {fur} {lure} and [ran] after it.
  {fur.A} {lure} (passed/appeared/moved) [where], and {hero} [ran] after it.
  While {friend} played [game], {hero} followed [look.a], {fur} {lure}.
  "What [look.a], {fur} {lure}!" [said] {hero}, and followed it [fast].
  {hero} [ran] after [look.a], {fur} {lure} that (hid/rested) [where].

astray_alone:
  [then], the {lure} was gone, and {hero} [felt] [scared] and [sad].
  It was (dark/late/cold/foggy), and {hero} was alone with [junk.a] [where].
  "{friend}! {petname}!" {hero.he} [sobbed], but heard [sound] [where].
  {hero} called [number] times, but only heard [sound] and [noise].
  {hero.His} [body] shook. There was [sound] [where]. {hero.He} [felt] [scared].

astray_think:
  "If you get lost, sing by [big.a] {mark}," {hero.his} {grown} always said.
  {hero} sat by [big.a], [odd] {mark} and [softly] sang “[tune]”.
  "[comfort]," {hero} told {hero.his} [body], and sang by [odd.a] {mark}.
  By [big.a], [odd] {mark}, {hero} [softly] sang “[tune]”.
  {hero} found [odd.a] {mark} and sang “[tune]” [number] times.

astray_found:
  [then], {petname} {pet.cry}. {elder} came with [worn.a] lamp and [smile].
  {petname} heard it, {pet.cry} and [softly] led {elder} to the {mark}.
  [then], {elder} came to the {mark} and [softly] [hugged] {hero}.
  "[praise]," said {elder}, and came to the {mark}. {friend} [smile].
  "[comfort]," said {friend}, [ran] to the {mark} and [hugged] {hero}.
  {friend} [ran] to the {mark} and [hugged] {hero}. {elder} [smile] and [cheer].

astray_lesson:
  {hero} (learned/promised) not to chase {lure.a} without [good.a] friend.
  [since], {hero} (stayed/kept) close to {hero.his} [good], [mood] friends.
  "The next {lure} may go [fast]," {hero} [thought], [very] [glad].
  "[sorry]. [amends]," {hero} told {friend}, [glad] and [light].
"""
