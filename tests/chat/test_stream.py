"""Tokens become text piece by piece, with nothing lost, doubled or torn; tags are found however they are cut."""

import pytest
from family_tokenizers import family
from hypothesis import given
from hypothesis import strategies as st

from rewards import Tags
from rlvr.chat.stream import TagSplitter, TextStream

TAGS = Tags.default()
TEXTS = [
    "<think>2+3=5</think><answer>5</answer>",
    "Der Größte, 中文字, 👩‍🔬 and ½ of  two   spaces\n\n\ttabs",
    " leading and trailing ",
    "a",
]


@pytest.mark.parametrize("name", ["tiny", "qwen2.5", "llama3", "gemma3", "smollm2"])
@pytest.mark.parametrize("text", TEXTS)
def test_the_pieces_add_up_to_the_whole(name: str, text: str) -> None:
    tokenizer = family(name)
    ids = tokenizer.encode(text, add_special_tokens=False)

    def decode(some):
        return tokenizer.decode(list(some), skip_special_tokens=True)

    stream = TextStream(decode)
    pieces = [stream.feed(token) for token in ids]
    pieces.append(stream.rest(decode(ids)))
    assert "".join(pieces) == decode(ids) == stream.text
    assert sum(map(bool, pieces)) >= min(3, len(ids) // 4)  # it does come in pieces


def bytewise(ids) -> str:
    return bytes(ids).decode("utf-8", errors="replace")


@given(st.text(alphabet="ab é中👩‍🔬\ufffd\n", max_size=40))
def test_characters_of_several_tokens_come_whole(text: str) -> None:
    data = text.encode("utf-8", errors="replace")
    stream = TextStream(bytewise)
    pieces = [stream.feed(byte) for byte in data]
    pieces.append(stream.rest(bytewise(data)))
    assert "".join(pieces) == bytewise(data)
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in bytewise(data)


def test_bytes_that_are_no_text_still_arrive() -> None:
    data = b"a\xff\xfe b"
    stream = TextStream(bytewise)
    assert "".join([*(stream.feed(byte) for byte in data), stream.rest(bytewise(data))]) == "a\ufffd\ufffd b"


def test_nothing_follows_a_stop_string() -> None:
    stream = TextStream(bytewise, ["</answer>", "\n\n"])
    text = b"4</answer> and more\n\n5"
    assert "".join(stream.feed(byte) for byte in text) == "4</answer>" == stream.text
    assert stream.rest("4</answer> a") == " a"  # what the cut response has beyond it: the token's end
    assert stream.rest("something else") == ""


def parts(marker: TagSplitter, pieces) -> list[tuple[str, str]]:
    """The parts, those of a kind that follow each other joined."""
    found = [part for piece in pieces for part in marker.feed(piece)] + marker.feed("", last=True)
    joined: list[tuple[str, str]] = []
    for kind, text in found:
        if joined and joined[-1][0] == kind != "tag":
            joined[-1] = (kind, joined[-1][1] + text)
        else:
            joined.append((kind, text))
    return joined


WHOLE = "a < b <think>c</thin</think> d <answer>7</answer><answ"
WANT = [
    ("other", "a < b "), ("tag", "<think>"), ("think", "c</thin"), ("tag", "</think>"), ("other", " d "),
    ("tag", "<answer>"), ("answer", "7"), ("tag", "</answer>"), ("other", "<answ"),
]  # fmt: skip


@given(st.sets(st.integers(min_value=1, max_value=len(WHOLE) - 1)))
def test_tags_are_found_however_they_are_cut(cuts: set[int]) -> None:
    ends = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[a:b] for a, b in zip(ends, ends[1:], strict=False)]
    assert parts(TagSplitter(TAGS), pieces) == WANT


def test_a_prompt_may_have_opened_the_thinking() -> None:
    assert parts(TagSplitter(TAGS, thinking=True), ["c</th", "ink>d"]) == [
        ("think", "c"), ("tag", "</think>"), ("other", "d"),
    ]  # fmt: skip


def test_text_that_can_be_no_tag_is_not_held_back() -> None:
    marker = TagSplitter(TAGS)
    assert marker.feed("1 <") == [("other", "1 ")]
    assert marker.feed(" 2") == [("other", "< 2")]
