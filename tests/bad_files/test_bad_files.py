"""Some of the bad files of every kind; 300 of them: `python -m tests.bad_files`."""

from collections import Counter

import pytest

from .kinds import all_of_them, draw
from .refused import give
from .workshop import Workshop

pytestmark = pytest.mark.usefixtures("process")
COUNT, SEED = 14, 1


@pytest.fixture(scope="module")
def shop(process, tmp_path_factory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("workshop"))


def test_each_is_refused_with_one_message_that_names_it(shop) -> None:
    wrong = {}
    for bad in draw(all_of_them(shop), COUNT, SEED):
        refusal = give(bad, shop)
        if refusal.wrong:
            wrong[f"{bad.kind}, {bad.title}"] = f"{refusal.wrong}: {refusal.said[-500:]}"
    assert not wrong


def test_there_are_many_of_each_kind_and_each_has_its_title(shop) -> None:
    every = all_of_them(shop)
    counts = Counter(bad.kind for bad in every)
    assert set(counts) == {
        "data",
        "template",
        "config",
        "study",
        "model",
        "checkpoint",
        "run folder",
        "journal",
        "plugin",
    }
    assert min(counts.values()) >= 40
    titles = Counter((bad.kind, bad.title) for bad in every)
    assert [title for title, count in titles.items() if count > 1] == []


def test_what_is_whole_is_not_refused(shop, tmp_path) -> None:
    """Else the refusals above would say nothing."""
    from rlvr.cli.main import main

    shop.copy("run", tmp_path / "run")
    flags = ["--num_episodes", "2", "--save_interval", "1", "--journal", "2", "--eval_samples", "2"]
    assert main(["replay", str(tmp_path / "run"), "--step", "1"]) == 0
    assert main(shop.words(*flags, "--save_path", str(tmp_path / "run"), "--resume")) == 0
    evaluation = str(shop.whole("evaluation"))
    assert main(["compare", evaluation, evaluation]) == 0
