"""The tables of names on docs/coming_from.md: our side is what there is here, and theirs where it can be looked up."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from rlvr.compat.aitraining import PARAMETERS
from rlvr.compat.trl import PPOConfig
from rlvr.config import Config, RewardTrainingConfig, SFTConfig
from rlvr.config.catalog import flags_by_spelling, show

PAGE = (Path(__file__).parents[2] / "docs" / "coming_from.md").read_text()
KNOWN = {
    **flags_by_spelling(SFTConfig),
    **flags_by_spelling(RewardTrainingConfig),
    **flags_by_spelling(Config),
}
TORCHRUN = {"nnodes", "nproc_per_node"}


def tables() -> dict[str, list[list[str]]]:
    """Rows by the table's heading."""
    found: dict[str, list[list[str]]] = {}
    heading = None
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else None
        if cells is None:
            heading = None
        elif heading is None:
            heading = cells[0]
            found.setdefault(heading, [])
        elif set(line) - set("|-: "):
            found[heading].append(cells)
    return found


TABLES = tables()


def names(cell: str) -> list[str]:
    """What stands in code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("heading", TABLES)
def test_our_names_are_flags(heading: str) -> None:
    column = 0 if heading == "flag" else 1
    rows = TABLES[heading]
    assert len(rows) > 4
    flags = [flag for row in rows for text in names(row[column]) for flag in re.findall(r"--(\w+)", text)]
    assert [flag for flag in flags if flag not in KNOWN and flag not in TORCHRUN and flag != "disable_loss_mask"] == []


def test_values_that_are_named_are_taken() -> None:
    """`--kl_in loss`: a flag with a value, of a setting with few values, has one of these."""
    for flag, value in re.findall(r"`--(\w+) (\w+)", PAGE):
        if flag in KNOWN and KNOWN[flag].choices:
            assert value in KNOWN[flag].choices, f"--{flag} {value}"


def test_names_that_are_understood_as_they_are_belong_to_the_flag_beside_them() -> None:
    for rows in TABLES.values():
        for row in rows:
            if len(row) > 1 and ", also " in row[1]:
                ours, theirs = row[1].split(", also ")
                places = {KNOWN[re.sub(r"^--", "", flag)].place for flag in names(ours)}
                assert {KNOWN[re.sub(r"^--", "", flag)].place for flag in names(theirs)} == places, row


def test_trl_has_these_names() -> None:
    trl = pytest.importorskip("trl")
    known = {f.name for f in fields(trl.GRPOConfig)}
    assert {name for row in TABLES["TRL's GRPOConfig"] for name in names(row[0])} <= known
    ppo = {f.name for f in fields(PPOConfig)}
    assert {name for row in TABLES["TRL's PPOConfig (1.12)"] for name in names(row[0])} <= ppo


def test_every_name_of_aitraining_is_there_with_what_it_becomes() -> None:
    rows = {name: row for row in TABLES["aitraining"] for name in names(row[0])}
    assert set(rows) == set(PARAMETERS)
    for name, row in PARAMETERS.items():
        if row.field:
            assert f"`--{row.field.split('.')[1]}`" in rows[name][1], name
        trainers = "all" if "sft" in row.trainers else ", ".join(row.trainers)
        assert rows[name][2] == trainers, name


def test_defaults_here_are_those_of_the_source() -> None:
    for row in TABLES["flag"]:
        flag = KNOWN[names(row[0])[0].removeprefix("--")]
        assert names(row[2]) == [show(flag.default)], row
