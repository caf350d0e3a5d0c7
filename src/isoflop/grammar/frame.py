"""How every story begins and ends: who it is about, where they live, what they own; the outing, supper, night."""

RULES = """
story:
  <meet> <home> <belongings>|<outing> <scene> <plot>|<supper> <night>

meet:
  Once upon a time, there was [nature.a] {hero.named} who [loved] to {hobby}.
  Once there (was/lived) [nature.a], [mood] {hero.named} who [loved] to {hobby}.
  In [size.a] (town/village/valley/city) lived [nature.a] {hero.called} who [loved] to {hobby}.
  {hero} was [nature.a] {hero.kind} with [hair] hair who [loved] to {hobby}.
  There once lived [nature.a], [mood] {hero.named}. {hero.He} [loved] to {hobby}.
  Long ago, [nature.a] {hero.called} with [hair] hair [loved] to {hobby}.
  This is (the/a) (story/tale) of {hero}, [nature.a] {hero.kind} who [loved] to {hobby}.
  Do you know {hero}? {hero.He} was [nature.a], [mood] {hero.kind} who [loved] to {hobby}.

home:
  {hero.He} lived with {hero.his} [mood] {grown} in {home.a} with {paint.a} {part}.
  {hero.His} [cozy] {home} had {paint.a} {part}. {hero.His} {grown} lived there too.
  {hero} and {hero.his} {grown} lived [near], in {home.a} with {paint.a} {part}.
  In [cozy.a] {home} with {paint.a} {part} lived {hero} and {hero.his} {grown}.
  [near.Word], in {home.a} with {paint.a} {part}, lived {hero} and {hero.his} {grown}.

belongings:
  <pet> <toy> <friend>
  <toy> <friend> <pet>
  <friend> <pet> <toy>
  <toy> <pet> <friend>
  <friend> <toy> <pet>
  <pet> <friend> <toy>

pet:
  {hero.He} had [look.a] {pet} (named/called) {petname} that [habit].
  {hero.His} [look] {pet} {petname} [habit] and [trick].
  (At home/In the yard/By the stove) lived [look.a] {pet} called {petname}.
  {petname}, {hero.his} [look] {pet}, [habit] and [trick].
  [look.A] {pet} (named/called) {petname} lived there. It [habit].

toy:
  {hero.His} [nice] {colour} {toy} was (a gift/a present) from {elder}, the {job}.
  {elder}, the [mood] {job}, had (given/made/bought) {hero.him} {colour.a} {toy}.
  {hero.He} had [nice.a] {colour} {toy} from {elder}, the {job}.
  (Last year/For New Year/For Easter/Once), {hero.he} got {colour.a} {toy} from {elder}, the {job}.
  {elder}, the {job}, once (gave/made/brought) {hero.him} [nice.a] {colour} {toy}.

friend:
  {hero.His} (best/closest/oldest) friend was {friend}, [nature.a] {friend.kind}.
  {friend}, [nature.a] {friend.kind} with [hair] hair, was {hero.his} friend.
  [often.Word], {hero.he} played [game] with {friend}, [nature.a] {friend.kind}.
  (Next door/Nearby/Upstairs) lived {friend}, [nature.a] {friend.kind} who [loved] to [pastime].
  {friend} and {hero} were [good] friends and [loved] to [pastime].

outing:
  [time.Word], {hero} and {friend} [ran] {place.to} to [pastime].
  [time.Word], {friend} and {petname} [ran] {place.to} with {hero}.
  [weather], so {hero} and {friend} [ran] {place.to}.
  [time.Word], {hero} took the {toy} and [snack.a] {place.to}.
  "Let us [pastime] {place.in}!" [said] {friend} [time].
  [time.Word], {hero} and {friend} played [game] {place.in}.

scene:
  [look.A], [fur] [animal] [animal_does] [where].
  [weather]. [look.A] [animal] [animal_does] [where].
  [number.Word] children played [game] [where] and [cheer].
  [person.A] in [colour.a] [wear] was [chore].
  It smelled of [fruit] and [sip] [drink]. [weather].
  [where.Word], [person.a] sold [fruit] and [sip] [drink].
  [number.Word] [fur] [animal.many] [animal_does] [where].
  [person.A] and [animal.a] [animal_does] [where].

plot:
  <lost>
  <share>
  <hurt>
  <afraid>
  <broke>
  <bake>
  <astray>
  <race>
  <newcomer>

supper:
  (Back home/Later/At sunset), {hero.his} {grown} made [tasty] {food} and [drink].
  In the {home} with the {paint} {part}, they ate [tasty] {food}.
  {hero.His} {grown} [smile] and made [tasty] {food} with [fruit].
  They ate [tasty] {food} with [fruit], and {petname} got [snack.a].
  At the {paint} {part}, {hero.his} {grown} (waited/stood) with [tasty] {food}.
  At home, they had [tasty] {food} with [fruit] and [sip] [drink].

night:
  {hero} put the {colour} {toy} [bedside] and dreamed of [dream] and [vision].
  {hero} [hugged] {petname} the {pet} and slept [bedside], [glad] and [light].
  {petname} the {pet} slept by the {colour} {toy} and dreamed of [dream].
  "Tomorrow I will {hobby} with {friend}," [said] {hero} and dreamed of [dream].
  {hero} thought of {elder} and the {place} and [felt] [glad] and [light].
  {hero} hugged the {toy}, {petname} {pet.cry}, and they dreamed of [dream].
"""
