"""Sums, differences and products of numbers of one and two digits, asked in many wordings, at four levels.

    What is twelve plus seven?                        12 + 7 = 19
    Multiply 4 by 23.                                 4 * 23 = 92
    Add 12 and 7, then multiply by 3.                 12 + 7 = 19. 19 * 3 = 57

They are meant for small pretrained models, which know what a sum is and make slips.
"""

from rlvr.data.patterns import Level, Pattern, Worded

LEVELS = {
    "1": Level(steps=1, operations="+-", amounts=(2, 30), factors=(2, 9), largest=60),
    "2": Level(steps=1, operations="+-", amounts=(11, 99), factors=(2, 9), largest=198),
    "3": Level(steps=1, operations="*/", amounts=(2, 20), factors=(2, 20), largest=200),
    "4": Level(steps=2, operations="+-*", amounts=(2, 50), factors=(2, 9), largest=200),
}
"""1: sums and differences of numbers up to 30. 2: of two digits. 3: products and quotients. 4: two operations."""

SUMS = (
    "What is {a} plus {b}?",
    "{a} + {b} = ?",
    "What is the sum of {a} and {b}?",
    "Add {a} and {b}.",
    "Work out {a} + {b}.",
    "How much is {a} and {b} together?",
    "Which number is {b} more than {a}?",
    "Calculate the total of {a} and {b}.",
    "I have {a} and get {b} more. How much is that?",
    "Increase {a} by {b}. What do you get?",
)
DIFFERENCES = (
    "What is {a} minus {b}?",
    "{a} - {b} = ?",
    "What is the difference between {a} and {b}?",
    "Subtract {b} from {a}.",
    "Work out {a} - {b}.",
    "Take {b} away from {a}. What is left?",
    "Which number is {b} less than {a}?",
    "How much is {a} reduced by {b}?",
    "What must be added to {b} to make {a}?",
    "By how much is {a} greater than {b}?",
)
PRODUCTS = (
    "What is {a} times {b}?",
    "{a} * {b} = ?",
    "What is the product of {a} and {b}?",
    "Multiply {a} by {b}.",
    "Work out {a} * {b}.",
    "How much is {a} multiplied by {b}?",
    "What are {a} groups of {b}?",
    "Which number is {a} times as large as {b}?",
)
QUOTIENTS = (
    "What is {a} divided by {b}?",
    "{a} / {b} = ?",
    "Divide {a} by {b}.",
    "How many times does {b} go into {a}?",
    "Work out {a} / {b}.",
    "Which number multiplied by {b} gives {a}?",
)
TWO_OPERATIONS = (
    Pattern("({a} + {b}) * {c} = ?", "a + b: {}.", "x * c: {}."),
    Pattern("({a} - {b}) * {c} = ?", "a - b: {}.", "x * c: {}."),
    Pattern("{a} * {b} + {c} = ?", "a * b: {}.", "x + c: {}."),
    Pattern("{a} * {b} - {c} = ?", "a * b: {}.", "x - c: {}."),
    Pattern("{a} + {b} - {c} = ?", "a + b: {}.", "x - c: {}."),
    Pattern("{a} - {b} + {c} = ?", "a - b: {}.", "x + c: {}."),
    Pattern("Add {a} and {b}, then multiply by {c}.", "a + b: {}.", "x * c: {}."),
    Pattern("Subtract {b} from {a}, then multiply by {c}.", "a - b: {}.", "x * c: {}."),
    Pattern("Multiply {a} by {b}, then add {c}.", "a * b: {}.", "x + c: {}."),
    Pattern("Multiply {a} by {b}, then subtract {c}.", "a * b: {}.", "x - c: {}."),
    Pattern("Add {a} and {b}, then take away {c}.", "a + b: {}.", "x - c: {}."),
    Pattern("What is {a} plus {b} plus {c}?", "a + b: {}.", "x + c: {}."),
    Pattern("What is {c} more than the product of {a} and {b}?", "a * b: {}.", "x + c: {}."),
    Pattern("What is {c} times the sum of {a} and {b}?", "a + b: {}.", "x * c: {}."),
    Pattern("What is {c} less than the sum of {a} and {b}?", "a + b: {}.", "x - c: {}."),
)


def _one_step(texts: tuple[str, ...], step: str) -> list[Pattern]:
    return [Pattern(text, f"{step}: {{}}.") for text in texts]


ARITHMETIC = Worded(
    name="arithmetic",
    patterns=[
        *_one_step(SUMS, "a + b"),
        *_one_step(DIFFERENCES, "a - b"),
        *_one_step(PRODUCTS, "a * b"),
        *_one_step(QUOTIENTS, "a / b"),
        *TWO_OPERATIONS,
    ],
    levels=LEVELS,
    words={},
    spelled_share=0.25,
)
