"""The picture of a step is what its command draws, and the names in it are names of the source."""

import re
from importlib import import_module
from xml.etree import ElementTree

import pytest

from docs.generate.step_picture import BOX_WIDTH, LEFT, OUT, STEP, WIDTH, draw
from rlvr.config import Config
from rlvr.config.catalog import flags_by_spelling

BOXES = [box for group in STEP for box in group.boxes]


def test_the_file_is_what_the_command_draws() -> None:
    assert OUT.read_text(encoding="utf-8") == draw()


@pytest.mark.parametrize("place", [place for box in BOXES for place in box.where])
def test_what_it_names_is_there(place: str) -> None:
    module, name = place.split(":")
    assert hasattr(import_module(module), name)


def test_its_flags_are_flags() -> None:
    words = " ".join([group.title for group in STEP] + [box.text for box in BOXES])
    known = flags_by_spelling(Config)
    flags = re.findall(r"--(\w+)", words)
    assert flags and all(flag in known or flag == "resume" for flag in flags)


def test_texts_stay_in_their_boxes() -> None:
    """By the width of an average letter in a wide font; how it looks was looked at."""
    ElementTree.fromstring(draw())
    assert LEFT + BOX_WIDTH < WIDTH
    room = BOX_WIDTH - 28
    for box in BOXES:
        names = " · ".join(place.removeprefix("rlvr.") for place in box.where)
        pills = sum(7.2 * len(role) + 24 for role in box.roles)
        assert len(box.text) * 8.1 < room, box.text
        assert len(names) * 7.3 + 84 * bool(box.phase) < room, names
        assert len(box.title) * 10.5 + pills < room, box.title
