"""Results from a worker are checked; scores are cached for functions that depend on nothing but the response and problem."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards import Outcome, Score, Tags, UserError, grade, resolve
from rewards.outcome import STATUSES
from rewards.pool import RewardPool, grade_many, protocol
from rewards.pool.cache import Cache, is_pure
from rewards.pool.scheduler import CallTimes

from .conftest import samples

numbers = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=20)
outcomes = st.builds(Outcome, st.sampled_from(STATUSES), st.none() | texts, texts, numbers, texts)
scores = st.builds(Score, st.none() | numbers, st.none() | outcomes, st.dictionaries(texts, numbers, max_size=3))


@given(st.lists(st.lists(scores, min_size=1, max_size=3), max_size=4))
def test_scores_survive_the_wire(calls) -> None:
    assert protocol.decode(b"\n".join(map(protocol.encode, calls))) == calls


@pytest.mark.parametrize(
    "rubbish",
    [
        b"x", b"1", b"null", b'"a"', b"[1]", b"[[1]]", b"[[NaN,null,null]]", b"[[Infinity,null,null]]", b"[[true,null,null]]",
        b'[["1",null,null]]', b"[[1,{},null]]", b'[[1,["good","a","",0,""],null]]', b'[[1,["wrong","a","",NaN,""],null]]',
        b'[[1,["wrong",1,"",0,""],null]]', b"[[1,null,[1]]]", b'[[1,null,{"a":"b"}]]', b'{"other":"x"}', b'{"error":1}', b"{}",
        b"[[1,null,null]]]", b"\xff\xfe", b"[[1e999,null,null]]",
    ],
)  # fmt: skip
def test_rubbish_is_refused(rubbish) -> None:
    with pytest.raises((ValueError, TypeError)):
        protocol.decode(rubbish)


def test_a_total_that_is_not_finite_is_refused() -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError):
            protocol.encode([Score(value)])
        with pytest.raises(ValueError):
            protocol.encode([Score(value, Outcome("wrong"))])


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(1, 7))
def test_frames_come_whole_however_they_are_cut(payloads, size) -> None:
    stream, frames, found = b"".join(map(protocol.frame, payloads)), protocol.FrameReader(), []
    for start in range(0, len(stream), size):
        found += frames.feed(stream[start : start + size])
    assert found == payloads
    with pytest.raises(ValueError):
        protocol.FrameReader().feed(b"\xff" * 8)


def test_what_is_pure() -> None:
    for name in ("gsm8k_reward_fn", "math_competition_reward_fn", "format_reward_fn"):
        assert is_pure(resolve(name))
    assert is_pure(resolve(lambda response, gold, answer, tags, question: 0))
    impure = [
        lambda response, prompt: 0, lambda response, finished=True: 0, lambda response, response_ids: 0,
        lambda response, level: 0, lambda response, **more: 0, lambda responses: 0,
    ]  # fmt: skip
    assert not any(is_pure(resolve(f)) for f in impure)


def test_equal_samples_are_scored_once(tmp_path) -> None:
    path = tmp_path / "counted.py"
    path.write_text(
        f"def note(name):\n    with open({str(tmp_path)!r} + '/' + name, 'a') as file:\n        file.write('x')\n"
        "def pure(response, gold, bonus=0):\n    note('pure')\n    if response == 'bad':\n        raise ValueError\n"
        "    return len(response) + bonus\n"
        "def impure(response, prompt):\n    note('impure')\n    return 1\n"
    )

    def calls(name):
        return len((tmp_path / name).read_text())

    with RewardPool([resolve(f"{path}:pure"), resolve(f"{path}:impure")], workers=1) as pool:
        first = pool.score(samples("abc", "abcd"))
        assert pool.score(samples("abcd", "abc")) == [first[0][::-1], first[1][::-1]]
        assert (calls("pure"), calls("impure")) == (2, 4)
        pool.score(samples("abc", question="another"))
        pool.score(samples("abc", columns={"level": 1}))  # nothing that it asks for
        assert calls("pure") == 3
        assert pool.score(samples("abc", columns={"bonus": 5}))[0][0].value == 8.0
        assert pool.score(samples("abc"))[0][0].value == 3.0
        pool.score(samples("bad"))
        pool.score(samples("bad"))
        assert calls("pure") == 6 and pool.failures["pure"].error == 2  # failures are not kept


def test_the_cache_is_bounded() -> None:
    cache = Cache([resolve("gsm8k_reward_fn")], 10)
    for i in range(25):
        key = cache.key(0, samples(str(i))[0])
        cache.put(key, Score(float(i)))
        assert cache.get(cache.key(0, samples("0")[0])) == Score(0.0)  # it is asked for again and again, and stays
    assert len(cache) == 10 and cache.get(cache.key(0, samples("3")[0])) is None
    assert Cache([resolve("gsm8k_reward_fn")], 0).key(0, samples("a")[0]) is None


def test_grade_many_says_what_grade_says() -> None:
    pairs = [(f"<think>a</think><answer>{i % 7}</answer>", str(i % 5)) for i in range(300)] + [("5", ""), ("", "5")]
    for tags in (None, Tags.default()):
        expected = [grade(response, gold, tags=tags) for response, gold in pairs]
        for workers in (0, 2):
            found = grade_many(iter(pairs), tags=tags, workers=workers)
            assert [(o.status, o.answer, o.stage) for o in found] == [(o.status, o.answer, o.stage) for o in expected]
    assert grade_many([]) == [] and grade_many([("5", "5")])[0].correct
    with pytest.raises(UserError, match="workers is -1"):
        grade_many(pairs, workers=-1)


def test_chunks_are_large_for_fast_functions_and_small_at_the_end() -> None:
    times = CallTimes()
    assert times.chunk_size(1000, 2) == 8
    times.record(0.1, 100)
    assert times.chunk_size(1000, 2) == 50 and times.chunk_size(8, 2) == 2 and times.chunk_size(1, 2) == 1
    times.record(100, 10)
    assert times.chunk_size(1000, 2) == 1
