"""YAML of strangers: settings as plain values of bounded size."""

import pytest

from rlvr.config.tree import load_yaml, parse_yaml
from rlvr.errors import UserError

BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(24)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [(BOMB, "more than 100,000 values"), ("a: &a [*a]", "more than 100,000 values"), ("[" * 3000, "too deeply"), ("a: 2020-13-45", "month")],
)  # fmt: skip
def test_yaml_that_would_hang_is_refused(text, reason, tmp_path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=f"--config .*not valid YAML.*{reason}"):
        load_yaml(str(path))


def test_aliases_may_stand() -> None:
    assert parse_yaml("a: &a {x: 1}\nb: {<<: *a, y: 2}") == {"a": {"x": 1}, "b": {"x": 1, "y": 2}}
    assert parse_yaml("") is None
