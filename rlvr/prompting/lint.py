"""The template linter: `require_template` before training, `check_template` for `rlvr template check NAME --tokenizer T`.

Every check is a small proof on real renderings and encodings, not a look at the settings. A template can be well formed
and yet never stop, lose its tags in decoding, or pay nothing for a right answer; training then runs and learns nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rlvr.errors import UserError, listed
from rlvr.prompting.conversation import Conversation

# Texts that no template contains and that tokenize without surprises.
QUESTION = "Alpha has 30 pens and buys 42 more. How many pens are there?"
CONTENT = "There are seventytwo pens"
THOUGHT, ANSWER = "30 + 42 = 72", "72"
REWARD = "gsm8k_reward_fn"

TRUNCATION = "prompt truncation keeps the generation header"
# A model can still learn with these unmet.
HARMLESS = ("the prompt tells the model of the format", "the prompt begins with at most one start token")
# They matter only to rewards that read the tags.
OF_TAGS = (
    HARMLESS[0],
    "a response in the format ends once, at its end",
    "the tags survive tokenisation",
    "a right answer in the format scores 1",
)


@dataclass(frozen=True)
class Check:
    """One property of a template with a tokenizer: `ok` where it holds, and what was seen."""

    name: str
    ok: bool
    detail: str


def check_template(conversation: Conversation) -> list[Check]:
    """All checks of a template bound to a tokenizer, in the order of a conversation."""
    checks: list[tuple[str, Callable[[Conversation], tuple[bool, str]]]] = [
        (HARMLESS[0], _system_message),
        (HARMLESS[1], _start_token),
        ("the prompt ends where the assistant's turn begins", _generation_header),
        (TRUNCATION, _truncation),
        ("the stop ids end the assistant's turn", _stop),
        (OF_TAGS[1], _single_stop),
        (OF_TAGS[2], _tags),
        (OF_TAGS[3], _reward),
    ]
    return [Check(name, *check(conversation)) for name, check in checks]


def require_template(
    conversation: Conversation, name: str, *, stop: bool = True, truncates: bool = False, reads_tags: bool = True
) -> list[str]:
    """Check a template before training with it. Returns the faults that still let a model learn.

    Args:
        conversation: the template, bound to the tokenizer.
        name: of the template, for messages.
        stop: raise if training would learn nothing; otherwise such faults are returned, too.
        truncates: prompts may be cut; otherwise truncation is not checked.
        reads_tags: a reward reads the tags of responses; otherwise they are not checked.

    Raises:
        UserError: responses would never end, lose their tags, or not be paid when right.
    """
    failed = [check for check in check_template(conversation) if not check.ok]
    failed = [check for check in failed if truncates or check.name != TRUNCATION]
    failed = [check for check in failed if reads_tags or check.name not in OF_TAGS]
    ruinous = [check for check in failed if stop and check.name not in HARMLESS]
    if ruinous:
        what = "; ".join(f"{check.name}: no, {check.detail}" for check in ruinous)
        raise UserError(
            f"conversation template {name!r} does not fit the model's tokenizer, and training would learn nothing. {what}. "
            "Take another (`rlvr template list`), mend it (`rlvr template check`), or go on all the same with "
            "--template_check warn"
        )
    unread = conversation.template.unread
    noted = [f"template {name!r}: the keys {listed(unread)} are not read"] if unread else []
    return noted + [f"template {name!r}: {check.name}: no, {check.detail}" for check in failed]


def _system_message(conversation: Conversation) -> tuple[bool, str]:
    system = conversation.template.system_message
    if not system:
        return True, "there is no system message: the model must know the format already"
    if system.strip() not in conversation.prompt_text(QUESTION):
        return False, "the system message is missing from the prompt"
    t = conversation.tags
    tags = [tag.text for tag in (t.think_start, t.think_end, t.answer_start, t.answer_end) if tag.num_occur]
    if absent := [tag for tag in tags if tag not in system]:
        return False, f"the system message says nothing of {', '.join(absent)}"
    place = "at the start of the user's turn" if conversation.system_in_user else "in a turn of its own"
    return True, f"the system message names every tag and stands {place}"


def _start_token(conversation: Conversation) -> tuple[bool, str]:
    start = conversation.tokenizer.bos_token_id
    ids = conversation.encode_prompt(QUESTION)
    if start is None:
        return True, "the tokenizer has no start token"
    if ids[:2] == [start, start]:
        return False, f"the prompt begins with the start token {start} twice"
    return True, f"the prompt begins with the token {ids[0]}; the start token is {start}"


def _generation_header(conversation: Conversation) -> tuple[bool, str]:
    prompt = conversation.prompt_text(QUESTION)
    if QUESTION not in prompt:
        return False, f"the question is missing from the prompt {prompt!r}"
    header = prompt[prompt.rfind(QUESTION) + len(QUESTION) :]
    start = conversation.tags.think_start
    if start.num_occur and start.text in header:
        return False, (
            f"the prompt already ends in {header!r}, so that responses will lack {start.text!r}; set num_occur of "
            "think_start to 0"
        )
    whole = _whole(conversation)
    if CONTENT not in whole:
        return False, f"the response is missing from the whole conversation {whole!r}"
    between = whole[whole.rfind(QUESTION) + len(QUESTION) : whole.rfind(CONTENT)]
    if _without_thinking(conversation, header) != _without_thinking(conversation, between):
        return False, (
            f"the prompt goes on with {header!r} after the question, but a whole conversation with {between!r}: the chat "
            "template must honour add_generation_prompt"
        )
    return True, f"after the question comes {header!r}"


def _without_thinking(conversation: Conversation, text: str) -> str:
    """Without white space and think tags: reasoning models' templates open or close the thinking by themselves."""
    for tag in (conversation.tags.think_start, conversation.tags.think_end):
        text = text.replace(tag.text, "")
    return text.strip()


def _truncation(conversation: Conversation) -> tuple[bool, str]:
    # Tokens that every prompt begins and ends with, whatever the question.
    probes = [conversation.encode_prompt(question) for question in (QUESTION, "x = 1;", "Why is it so, then?")]
    head, tail = _common_prefix(probes), _common_prefix([ids[::-1] for ids in probes])[::-1]
    shortest = len(conversation.encode_prompt(""))
    question = " ".join([QUESTION] * 4)
    whole = len(conversation.encode_prompt(question))
    for limit in sorted({shortest, shortest + 1, (shortest + whole) // 2, whole - 1, whole}):
        ids = conversation.truncate_prompt(question, limit)
        if ids is None or len(ids) > limit:
            return False, f"cut to {limit} tokens, there are {len(ids) if ids else 'none'}"
        if limit > shortest and (ids[: len(head)] != head or ids[len(ids) - len(tail) :] != tail):
            return False, f"cut to {limit} tokens, the prompt is {conversation.tokenizer.decode(ids)!r}"
    if conversation.truncate_prompt(question, shortest - 1) is not None:
        return False, f"cut to {shortest - 1} tokens, there should be nothing: the template alone takes {shortest}"
    return True, f"{len(head)} tokens before the question and {len(tail)} after it stay"


def _stop(conversation: Conversation) -> tuple[bool, str]:
    whole = _whole(conversation)
    if CONTENT not in whole:
        return False, f"the response is missing from the whole conversation {whole!r}"
    after = whole[whole.rfind(CONTENT) + len(CONTENT) :]
    ids = conversation.encode(after.lstrip())
    if ids and ids[0] in conversation.stop_ids:
        return True, f"after the response comes {after[:40]!r}, which begins with the stop id {ids[0]}"
    if any(after.lstrip().startswith(text) for text in conversation.stop_strings):
        return True, f"after the response comes {after[:40]!r}, which begins with a stop string"
    response = conversation.format_response(THOUGHT, ANSWER)
    if closing := [text for text in conversation.stop_strings if response.endswith(text)]:
        return True, f"a response in the format ends in the stop string {closing[0]!r}"
    stops = [conversation.tokenizer.decode([i]) for i in conversation.stop_ids] + list(conversation.stop_strings)
    return False, f"after the response comes {after[:40]!r}, but generation stops at {', '.join(map(repr, stops))}"


def _single_stop(conversation: Conversation) -> tuple[bool, str]:
    response = conversation.format_response(THOUGHT, ANSWER)
    if early := [text for text in conversation.stop_strings if 0 <= response.find(text) < len(response) - len(text)]:
        return False, f"the stop string {early[0]!r} stands inside a response in the format"
    if not conversation.end_of_assistant:
        return True, "stop strings alone end a response"
    ids = conversation.encode_response(response)
    places = [place for place, token in enumerate(ids, start=1) if token in conversation.stop_ids]
    if places != [len(ids)]:
        where = f"stop ids stand at {places}" if places else "there is no stop id"
        return False, f"a response with {conversation.end_of_assistant!r} after it has {len(ids)} tokens, and {where}"
    return True, f"the last of its {len(ids)} tokens is the stop id {ids[-1]}, and no other is one"


def _tags(conversation: Conversation) -> tuple[bool, str]:
    t = conversation.tags
    for layout in (("", ""), ("\n", "\n"), (" ", " ")):
        response = conversation.format_response(THOUGHT.join(layout), ANSWER.join(layout))
        text = conversation.decode_response(conversation.encode_response(response))
        for tag in (t.think_start, t.think_end, t.answer_start, t.answer_end):
            if text.count(tag.text) != tag.num_occur:
                special = tag.text in conversation.tokenizer.all_special_tokens
                why = "it is a special token, which decoding leaves out" if special else "the tokenizer changes it"
                return False, f"{tag.text!r} comes back {text.count(tag.text)} times in {text!r}: {why}"
        if t.answer_of(text) != ANSWER:
            return False, f"the answer {ANSWER!r} comes back as {t.answer_of(text)!r} in {text!r}"
    tokens = len(conversation.encode(conversation.format_response("", "")))
    return True, f"encoded and decoded again, tags and answer are unchanged; the tags take {tokens} tokens"


def _reward(conversation: Conversation) -> tuple[bool, str]:
    from rewards import RewardSet, Sample, resolve

    ids = conversation.encode_response(conversation.format_response(THOUGHT, ANSWER))
    text = conversation.decode_response(ids)
    sample = Sample(
        response=text,
        gold=ANSWER,
        prompt=conversation.prompt_text(QUESTION),
        question=QUESTION,
        tags=conversation.tags,
        response_ids=ids,
    )
    try:
        total = RewardSet([resolve(REWARD)])([sample])[0].total
    except UserError as error:
        return False, str(error)
    return total == 1.0, f"{REWARD} gives {total} for {text!r}"


def _whole(conversation: Conversation) -> str:
    """A conversation with the assistant's turn, as the chat template writes it."""
    return conversation.render(conversation.messages(QUESTION, CONTENT), add_generation_prompt=False)


def _common_prefix(sequences: list[list[int]]) -> list[int]:
    first = min(sequences, key=len)
    size = next((i for i in range(len(first)) if any(s[i] != first[i] for s in sequences)), len(first))
    return first[:size]
