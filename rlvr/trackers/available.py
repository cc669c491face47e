"""Which trackers a run asks for, and whether their packages are there. Light: settings are checked with it."""

import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from rlvr.errors import UserError


@dataclass(frozen=True)
class Package:
    """A tracker's flag, package (which is also the name of our extra) and proper name."""

    flag: str
    module: str
    title: str


PACKAGES = (
    Package("log_dir", "tensorboard", "TensorBoard"),
    Package("use_wandb", "wandb", "Weights & Biases"),
    Package("use_mlflow", "mlflow", "MLflow"),
    Package("use_trackio", "trackio", "trackio"),
)


def check_trackers(log: Any) -> None:
    """Refuse trackers whose package is missing.

    Args:
        log: the settings' section `log`.

    Raises:
        UserError: says how to install the package.
    """
    for package in PACKAGES:
        value = getattr(log, package.flag)
        if value and not _is_there(package.module):
            given = f"--{package.flag}" if value is True else f"--{package.flag} {value}"
            raise UserError(f"{given} needs {package.title}: pip install 'rlvr[{package.module}]'")


def _is_there(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    return find_spec(module) is not None
