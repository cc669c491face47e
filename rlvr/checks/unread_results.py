"""When each setting of uploads and trackers is read; the same in every kind of run."""

from typing import Any

from rlvr.checks.unread import Rule


def _tracks(c: Any) -> bool:
    return bool(c.log.use_wandb or c.log.use_mlflow or c.log.use_trackio)


RESULTS = (
    Rule(
        "ckpt",
        ("hub_private", "hub_revision"),
        lambda c: c.ckpt.push_to_hub is not None,
        lambda c: " without --push_to_hub",
        lambda c: "Leave it out, or name the repository",
        off=(False,),
    ),
    Rule(
        "log",
        ("tracker_project", "tracker_run"),
        _tracks,
        lambda c: " without a tracker that has such names",
        lambda c: "Leave it out, or give --use_wandb, --use_mlflow or --use_trackio",
    ),
)
