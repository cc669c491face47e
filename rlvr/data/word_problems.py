"""Word problems of one and two steps, at four levels, with solutions that say what each number is.

    Nora has 12 marbles and finds 7 more. How many marbles does Nora have now?
        Nora now has 12 + 7 = 19 marbles.
    Each of 4 shelves holds 6 books. Omar takes 5 books home. How many books are left?
        The shelves hold 4 * 6 = 24 books. There are 24 - 5 = 19 books left.

They are meant for small pretrained models, beside data sets such as GSM8K and SVAMP, which are harder.
"""

from rlvr.data.patterns import Level, Pattern, Worded

LEVELS = {
    "1": Level(steps=1, operations="+-", amounts=(2, 30), factors=(2, 5), largest=60),
    "2": Level(steps=1, operations="+-*/", amounts=(11, 99), factors=(2, 10), largest=198),
    "3": Level(steps=2, operations="+-*/", amounts=(2, 20), factors=(2, 6), largest=60),
    "4": Level(steps=2, operations="+-*/", amounts=(11, 99), factors=(2, 12), largest=300),
}
"""1: one sum or difference, numbers up to 30. 2: one operation of any kind, two digits. 3: two operations, small numbers. 4: two
operations, two digits."""

NAMES = (
    "Ada", "Ali", "Amy", "Ana", "Ben", "Carl", "Clara", "Dan", "Dora", "Ella", "Emil", "Eva", "Finn", "Gina", "Hana", "Ivan", "Jack",
    "Jana", "Karim", "Kate", "Leo", "Lina", "Luis", "Mara", "Max", "Mia", "Nils", "Nora", "Omar", "Paul", "Pia", "Rosa", "Sam", "Sara",
    "Tim", "Tina", "Uma", "Viktor", "Yara", "Zoe",
)  # fmt: skip
THINGS = (
    "apples", "balls", "balloons", "beads", "books", "bottles", "buttons", "candles", "cards", "coins", "cookies", "cups", "eggs", "flags",
    "flowers", "keys", "lemons", "marbles", "mugs", "muffins", "nuts", "oranges", "pears", "pencils", "pens", "photos", "plums", "postcards",
    "ribbons", "rings", "seeds", "shells", "spoons", "stamps", "stickers", "stones", "tickets", "toys",
)  # fmt: skip
HOLDERS = ("bags", "baskets", "boxes", "crates", "cartons", "jars", "packs", "trays")
PLACES = ("a bakery", "a farm", "a garden shop", "a kiosk", "a library", "a museum", "a school", "a workshop")

GAINS = (
    Pattern(
        "{name} has {a} {things} and finds {b} more. How many {things} does {name} have now?",
        "a + b: {name} now has {} {things}.",
    ),
    Pattern(
        "{name} has {a} {things}. {other} gives {name} {b} {things}. How many {things} does {name} have?",
        "a + b: {name} has {} {things}.",
    ),
    Pattern(
        "{name} has {a} {things} and {other} has {b} {things}. How many {things} do they have together?",
        "a + b: Together they have {} {things}.",
    ),
    Pattern(
        "There are {a} {things} in a box. {name} puts {b} more into it. How many {things} are in the box?",
        "a + b: The box holds {} {things}.",
    ),
    Pattern(
        "On Monday {name} sold {a} {things}, and on Tuesday {b}. How many {things} did {name} sell on both days?",
        "a + b: {name} sold {} {things}.",
    ),
    Pattern(
        "{name} has {a} {things}. {other} has {b} {things} more than {name}. How many {things} does {other} have?",
        "a + b: {other} has {} {things}.",
    ),
    Pattern(
        "After giving away {b} {things}, {name} still has {a}. How many {things} did {name} have at first?",
        "a + b: {name} had {} {things} at first.",
    ),
    Pattern(
        "A bus carries {a} people. At the next stop {b} more get on. How many people are on the bus?",
        "a + b: There are {} people on the bus.",
    ),
    Pattern(
        "How many {things} does {name} have after buying {b} {things}, if there were {a} before?",
        "a + b: {name} has {} {things}.",
    ),
)
LOSSES = (
    Pattern(
        "{name} has {a} {things} and loses {b} of them. How many {things} does {name} have left?",
        "a - b: {name} has {} {things} left.",
    ),
    Pattern(
        "{name} had {a} {things} and gave {b} to {other}. How many {things} does {name} still have?",
        "a - b: {name} still has {} {things}.",
    ),
    Pattern(
        "There are {a} {things} on a table. {name} takes {b} away. How many {things} are left on the table?",
        "a - b: There are {} {things} left.",
    ),
    Pattern(
        "{name} has {a} {things}. {other} has {b} {things} fewer. How many {things} does {other} have?",
        "a - b: {other} has {} {things}.",
    ),
    Pattern(
        "{name} has {a} {things} and {other} has {b}. How many more {things} does {name} have than {other}?",
        "a - b: {name} has {} more {things}.",
    ),
    Pattern(
        "{name} needs {a} {things} and already has {b}. How many {things} are missing?",
        "a - b: There are {} {things} missing.",
    ),
    Pattern(
        "Of the {a} {things} in {place}, {b} were sold. How many {things} remain?", "a - b: There remain {} {things}."
    ),
    Pattern(
        "A train has {a} passengers. {b} of them get off. How many passengers stay on the train?",
        "a - b: {} passengers stay on the train.",
    ),
    Pattern(
        "{name} and {other} have {a} {things} together. {b} of them are {other}'s. How many {things} are {name}'s?",
        "a - b: {name} has {} {things}.",
    ),
)
MULTIPLES = (
    Pattern(
        "{name} has {a} {holders} with {b} {things} each. How many {things} does {name} have?",
        "a * b: {name} has {} {things}.",
    ),
    Pattern(
        "{name} buys {b} {things} on each of {a} days. How many {things} does {name} buy?",
        "a * b: {name} buys {} {things}.",
    ),
    Pattern("A ticket costs {b} dollars. How much do {a} tickets cost?", "a * b: The tickets cost {} dollars."),
    Pattern("There are {a} rows of {b} chairs in {place}. How many chairs are there?", "a * b: There are {} chairs."),
    Pattern(
        "{name} has {b} {things}. {other} has {a} times as many. How many {things} does {other} have?",
        "a * b: {other} has {} {things}.",
    ),
    Pattern(
        "{name} walks {b} miles a day. How many miles does {name} walk in {a} days?", "a * b: {name} walks {} miles."
    ),
)
SHARES = (
    Pattern(
        "{name} shares {a} {things} equally among {b} friends. How many {things} does each friend get?",
        "a / b: Each friend gets {} {things}.",
    ),
    Pattern(
        "{name} packs {a} {things} into {holders} of {b}. How many {holders} does {name} fill?",
        "a / b: {name} fills {} {holders}.",
    ),
    Pattern(
        "{b} {holders} hold {a} {things}, all equally many. How many {things} are in each?",
        "a / b: Each holds {} {things}.",
    ),
    Pattern("{b} tickets cost {a} dollars. How much does one ticket cost?", "a / b: One ticket costs {} dollars."),
    Pattern("{name} reads {b} pages a day. After how many days has {name} read {a} pages?", "a / b: It takes {} days."),
)
TWO_STEPS = (
    Pattern(
        "{name} has {a} {things}, buys {b} more and gives {c} to {other}. How many {things} does {name} have now?",
        "a + b: {name} first has {} {things}.",
        "x - c: Now {name} has {} {things}.",
    ),
    Pattern(
        "{name} has {a} {things} and loses {b}. Then {name} finds {c}. How many {things} does {name} have in the end?",
        "a - b: {name} has {} {things} left.",
        "x + c: In the end {name} has {} {things}.",
    ),
    Pattern(
        "On Monday {name} picks {a} {things}, on Tuesday {b} and on Wednesday {c}. How many {things} is that in all?",
        "a + b: On two days {name} picks {} {things}.",
        "x + c: In all that is {} {things}.",
    ),
    Pattern(
        "There were {a} {things} in {place}. {b} were sold in the morning and {c} in the afternoon. How many {things} are left?",
        "a - b: After the morning there are {} {things}.",
        "x - c: In the end there are {} {things} left.",
    ),
    Pattern(
        "{name} buys {a} {holders} with {b} {things} each and gives {c} {things} to {other}. How many {things} are left?",
        "a * b: {name} buys {} {things}.",
        "x - c: There are {} {things} left.",
    ),
    Pattern(
        "{name} has {c} {things} and buys {a} {holders} of {b} {things}. How many {things} does {name} have then?",
        "a * b: {name} buys {} {things}.",
        "x + c: Then {name} has {} {things}.",
    ),
    Pattern(
        "{name} has {a} {things} and {other} has {b}. They share all of them equally among {c} children. How many {things} does "
        "each child get?",
        "a + b: Together they have {} {things}.",
        "x / c: Each child gets {} {things}.",
    ),
    Pattern(
        "{name} has {a} {things}, keeps {b} and packs the others into {holders} of {c}. How many {holders} are filled?",
        "a - b: {name} packs {} {things}.",
        "x / c: That fills {} {holders}.",
    ),
    Pattern(
        "A ticket costs {b} dollars and a drink {a} dollars. {name} buys both for each of {c} friends. How many dollars is that?",
        "b + a: For one friend it is {} dollars.",
        "x * c: In all it is {} dollars.",
    ),
    Pattern(
        "{name} earns {a} dollars a day and spends {b} of them. How many dollars does {name} save in {c} days?",
        "a - b: In a day {name} saves {} dollars.",
        "x * c: In all {name} saves {} dollars.",
    ),
    Pattern(
        "{name} has {a} {things}. {other} has {b} fewer. How many {things} do they have together?",
        "a - b: {other} has {} {things}.",
        "a + x: Together they have {} {things}.",
    ),
    Pattern(
        "{name} has {a} {things}. {other} has {b} more. How many {things} do they have together?",
        "a + b: {other} has {} {things}.",
        "a + x: Together they have {} {things}.",
    ),
    Pattern(
        "{name} has {b} {things}. {other} has {a} times as many. How many {things} do they have together?",
        "a * b: {other} has {} {things}.",
        "x + b: Together they have {} {things}.",
    ),
    Pattern(
        "{name} shares {a} {things} equally among {b} {holders} and then adds {c} to the first. How many {things} are in the first?",
        "a / b: Each gets {} {things}.",
        "x + c: The first then holds {} {things}.",
    ),
    Pattern(
        "Each of {a} shelves holds {b} books. {name} takes {c} books home. How many books are left?",
        "a * b: The shelves hold {} books.",
        "x - c: There are {} books left.",
    ),
    Pattern(
        "{name} pays for {a} {things} at {b} dollars each and still has {c} dollars. How many dollars did {name} have before?",
        "a * b: The {things} cost {} dollars.",
        "x + c: {name} had {} dollars.",
    ),
    Pattern(
        "A bus has {a} people. {b} get off and {c} get on. How many people are on the bus now?",
        "a - b: {} people stay.",
        "x + c: Now there are {} people.",
    ),
    Pattern(
        "{a} {things} and {b} {things} lie on two tables. {name} takes {c} of them. How many {things} are left?",
        "a + b: There are {} {things}.",
        "x - c: There are {} {things} left.",
    ),
    Pattern(
        "{name} packs {a} {holders} of {b} {things} each day. How many {things} are packed in {c} days?",
        "a * b: In a day {name} packs {} {things}.",
        "x * c: In all there are {} {things}.",
    ),
    Pattern(
        "How many {things} does {name} still need for {c} guests, if each guest gets {b} and {name} has {a}?",
        "c * b: The guests get {} {things}.",
        "x - a: {name} still needs {} {things}.",
    ),
)

WORD_PROBLEMS = Worded(
    name="word_problems",
    patterns=[*GAINS, *LOSSES, *MULTIPLES, *SHARES, *TWO_STEPS],
    levels=LEVELS,
    words={"name": NAMES, "other": NAMES, "things": THINGS, "holders": HOLDERS, "place": PLACES},
)
