"""Finding the answer in a response: boxes, ####, what the text says, the last number; never in the thinking, never by wavering."""

import pytest
from processor_time import seconds

from rewards import Tags, grade
from rewards.extract import MAX_RESPONSE_CHARACTERS, boxed, extract, unbox

TAGS = Tags.default()

BOXES = [
    (r"so \boxed{5}.", "5"), (r"\boxed{1} then \boxed{2}", "2"), (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\fbox{5}", "5"), (r"\boxed 5", "5"), (r"\boxed{x = \{1, 2\}}", r"x = \{1, 2\}"),
    (r"\boxed{\boxed{5}}", r"\boxed{5}"),
    (r"\boxed{2}, \boxed{3}", "2, 3"), (r"$\boxed{2}$ and $\boxed{3}$", "2, 3"), (r"\boxed{2} or \boxed{3}", "2, 3"),
    (r"\boxed{2}" + "\n" + r"\boxed{2}", "2"), (r"\boxed{}", None), (r"\boxed{ } but 5", None),
    (r"\boxed{5", r"\boxed{5"), (r"\boxed{1} or rather \boxed{2", "1"),
    (r"\boxed{5} The answer is 6", "5"), (r"\boxed{5} The final answer is 6.", "6"),
    (r"The final answer is 6: \boxed{5}", "5"),
]  # fmt: skip
HASHES = [
    ("2 + 3 = 5\n#### 5", "5"), ("####5", "5"), ("#### 1\n#### 2", "2"), ("####\n5", "5"), ("#### **5**", "**5**"),
    ("#### 5</s>", "5"), ("#### 5<|im_end|>\n", "5"), ("#### Step 2\nThe answer is 5.", "5"),
    ("#### Final Answer\n$5$", "5"), ("#### Conclusion: done\n= 5", "5"),
]  # fmt: skip
SAID = [
    ("The answer is 5.", "5"), ("The answer is 5 apples.", "5 apples"),
    ("the final answer is: $5$. I hope it is correct.", "5"), ("**Answer:** 5", "5"),
    ("Answer: $x = 5$ because", "x = 5"), ("The answer is (C).", "(C)"), ("The correct option is C.", "C"),
    ("The answer is .5", ".5"),
    ("The answer is $1,234.50.", "$1,234.50"), ("The answer is $2$ and $3$.", "$2$ and $3$"),
    ("The answer is 50%.", "50%"), ("The answer is $50$ percent.", "50%"), ("The answer is 3 1/2.", "3 1/2"),
    ("The answer is 5:30 PM.", "5:30 PM"), ("The answer is:\n\\[\n\\frac12\n\\]", r"\frac12"),
    ("The answer is 1. Check: the answer is 2.", "2"), ("The answer is 5 (since 7 - 2 = 5).", "5"), ("答案是5", "5"),
    ("La réponse est 5.", "5"), ("La respuesta es 5.", "5"), ("Die Antwort ist 5.", "5"), ("Ответ: 5", "5"),
    ("The answer is not 17, it is 18.", "18"), ("Answer = 5", "5"),
]  # fmt: skip
LAST = [
    ("He has 12 - 7 = 5 apples.", "5"), ("first 3, then 12", "12"), ("It costs $18 a day.", "$18"),
    ("so $x = 5$.", "x = 5"), ("so $2 + 3 = 5$", "5"), (r"The area is $25\pi$ square units.", r"25\pi"),
    ("The area is 25π.", "25π"), ("The ratio is 3:2.", "3:2"), ("about 1.5 × 10^3", "1.5 × 10^3"),
    ("There are 3 1/2 cups.", "3 1/2 cups"), (r"The chance is \(\frac{1}{2}\).", r"\frac{1}{2}"), ("5", "5"),
    ("x = 5", "x = 5"), ("$5$", "5"), ("1,234 in all", "1,234"), ("down to -5 degrees", "-5 degrees"), ("no number", None),
    ("", None), ("It cannot be 5.", None),
]  # fmt: skip


@pytest.mark.parametrize(("response", "answer"), BOXES + HASHES + SAID + LAST)
def test_without_tags(response, answer) -> None:
    found = extract(response)
    assert (found and found.strip("$ ")) == (answer and answer.strip("$ "))


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<think>5</think>", None), ("<think>5", None), (r"<think>\boxed{5}</think> I give up", None),
        ("<think>4</think> 5", "5"), (r"x \boxed{4}</think> \boxed{5}", "5"), ("The answer is 4</think> 5", "5"),
        (r"<THINK>\boxed{5}</THINK>", None),
        ("<think>a</think><think>5</think>", None), ("<think>#### 5</think>", None),
    ],
)  # fmt: skip
def test_thinking_never_counts(response, answer) -> None:
    assert extract(response) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<think>4</think><answer>5</answer>", "5"), (r"<think>a</think><answer>\boxed{5}</answer>", "5"),
        (r"<think>a</think><answer>so \boxed{5}, \boxed{6}</answer>", "5, 6"),
        ("<think>a</think><answer> </answer>", None), (r"<think>a</think><answer>\boxed{}</answer>", None),
        (r"<think>a</think> \boxed{5}", None), ("<answer>5</answer>", "5"),
        ("<think><answer>5</answer></think>", None), ("<think>a</think><answer>5</answer><answer>6</answer>", None),
        ("<think>a</think><answer>5", None),
        ("<think>a</think><answer>5</answer><|im_end|>", "5"),
    ],
)  # fmt: skip
def test_with_tags_only_the_answer_tags_count(response, answer) -> None:
    assert extract(response, TAGS) == answer


HEDGES = [
    "The answer is 5 or 6.", "The answer is either 5 or 6.", "The answer is 6 or 5.",
    "The answer is between 5 and 6.", "The answer is more than 5.", "The answer is at least 5.",
    "The answer is not 5.", "The answer isn't 5.", "The answer is negative 5.", "The answer is minus 5.",
    "The answer is 5? No, 6.", "The answer is 5. No wait, it is 6.",
    "The answer is 5. Actually, 6.", "The answer cannot be 5.", r"\boxed{5} or \boxed{6}", r"\boxed{5 \text{ or } 6}",
    r"\boxed{5}, \boxed{6}", r"\boxed{4}\boxed{5}", r"\boxed{4, 5, 6}", "The answer is $5$, $6$.",
    "The answer is $5$ or $6$.", r"\boxed{\text{not } 5}", r"\boxed{5 = 6}", r"\boxed{[0, 10]}", "I don't know.",
    "#### 5 or 6", "#### 5\nNo:\n#### 6",
    "<think>The answer is 5</think>", r"\boxed{5\text{ maybe}}", r"x = \boxed{5}, y = \boxed{6}", "Is it 5? It is 6.",
    "The answer is -$5$", "The answer is 1/$5$", "The answer is $5$/2", "The answer is $5$ thousand", "The answer is never $5$",
    "The answer is more than $5$", r"The answer is $\frac12$ of $5$", "Thus $2x = 5$", "Thus 2x = 5", "so x^2 = 5", "not 5",
    "I cannot solve this. It is certainly not 5, though.", "The total is 5 million.", "It is less than 5.", "5 is not the answer",
    "We get -$5$", "so 1/$5$", "The answer is $5$ doubled", "x/2 = 5",
    "The answer is 5, 6.", r"\boxed{5 \to 6}", "5 is wrong, it is 6",
]  # fmt: skip


@pytest.mark.parametrize("response", HEDGES)
def test_wavering_earns_nothing(response) -> None:
    assert not grade(response, "5").correct


ENDINGS = [
    ("#### 36 red jelly beans", "36"), ("Each child got 5 books.", "5"), ("He is 25% more likely to win.", "25"),
    ("The answer is $42$ miles per hour.", "42"), ("Thus $x = 42$", "42"), ("6 x 7 = 42", "42"), ("6x7=42", "42"), ("f(2) = 42", "42"),
    ("The answer is $42$ because $6*7=42$.", "42"), (r"$\text{Total} = 6 \times 7 = 42$", "42"), ("It is 5 meters long", "5 meters"),
    ("#### $42 per week", "42"), ("#### 5 books each", "5"), ("So $2+40=42$", "42"), ("The total is 42 thousand.", "42,000"),
]  # fmt: skip


@pytest.mark.parametrize(("response", "gold"), ENDINGS)
def test_endings_that_people_write(response, gold) -> None:
    assert grade(response, gold).correct


def test_a_unit_behind_the_last_number_is_part_of_it() -> None:
    assert not grade("It is 5 feet long", "5 meters").correct and not grade("It costs 5 cents", "5 dollars").correct


def test_boxes_and_their_places() -> None:
    text = r"a \boxed{1} b \boxed{\{2\}} c"
    assert [(content, text[start:end]) for content, start, end in boxed(text)] == [
        ("1", r"\boxed{1}"),
        (r"\{2\}", r"\boxed{\{2\}}"),
    ]
    assert (
        unbox("no box") == "no box" and unbox(r"\boxed{1}\boxed{1}") == "1" and unbox(r"\boxed{1}\boxed{2}") == "1, 2"
    )


def test_the_end_of_a_long_response_counts() -> None:
    assert extract("5 " * MAX_RESPONSE_CHARACTERS + r"\boxed{7}") == "7"
    assert extract(r"\boxed{7}" + " " * (MAX_RESPONSE_CHARACTERS + 1) + "x") is None


@pytest.mark.parametrize(
    "piece",
    ["<think>", "</think>", r"\boxed{", r"\boxed{5}", "#### ", "the answer is ", "answer:", "$", r"\(", r"\[", "1,", "1 ", "1:", "1/", " ", "\n", "final answer ", "<|a|>", "</s>", "not ", "{", "}", "\\", "****", "5.", "x^", "10^{"]
)  # fmt: skip
def test_long_responses_take_no_time(piece) -> None:
    text = piece * (MAX_RESPONSE_CHARACTERS // len(piece))
    assert seconds(lambda: (extract(text), extract(text + " 5")), limit_s=1.0) < 1.0


@pytest.mark.parametrize("text", ["The area is 42 cm ²", "so 42 in all, see note ②", "it comes to 42 (as in ³)"])
def test_a_digit_that_is_no_number_hides_none(text: str) -> None:
    assert (extract(text) or "").split()[0] == "42"
