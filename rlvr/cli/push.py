"""`rlvr push RUN REPO`: upload a trained model to the Hugging Face hub, with its card.

Here is chosen what goes along; `rlvr/checkpoint/hub.py` uploads. Settings, metrics and samples stay here unless they are asked for:
samples hold prompts of the data.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rlvr.cli.parser import Parser
from rlvr.errors import UserError

if TYPE_CHECKING:
    from rlvr.checkpoint.hub import Part

RUN_FILES = ("config.yaml", "environment.json", "metrics.jsonl", "samples.jsonl")


def push_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="rlvr push",
        description="Upload a trained model to the Hugging Face hub. The token is that of `hf auth login` or HF_TOKEN.",
    )
    parser.add_argument("folder", metavar="RUN", help="folder of a run (--save_path), or of a saved model")
    parser.add_argument("repo", metavar="REPO", help="NAME or OWNER/NAME; made if there is none")
    parser.add_argument("--private", action="store_true", help="make the repository private, if there is none yet")
    parser.add_argument("--revision", metavar="BRANCH", help="branch, made if there is none; else main")
    parser.add_argument("--message", metavar="TEXT", default="Upload from rlvr", help="of the commit")
    parser.add_argument(
        "--with_run", action="store_true", help="settings, metrics and samples, too (these hold prompts of the data)"
    )
    parser.add_argument("--with_checkpoints", action="store_true", help="checkpoints, too, with optimizer states")
    return parser


def push_command(argv: list[str]) -> None:
    """Upload the model, and what else was asked for.

    Raises:
        UserError: there is no model, or the hub can't be reached or refuses.
    """
    a = push_parser().parse_args(argv)
    from rlvr.checkpoint.hub import Target, upload

    with TemporaryDirectory() as scratch:
        parts = _parts(Path(a.folder), Path(scratch), a.with_run, a.with_checkpoints)
        try:
            url = upload(parts, Target(a.repo, a.private, a.revision), a.message)
        except UserError as error:
            raise UserError(f"not uploaded to {error} Nothing in {a.folder} was changed: run this again") from error
    print(f"uploaded: {url}")


def _parts(folder: Path, scratch: Path, with_run: bool, with_checkpoints: bool) -> "list[Part]":
    """The parts of a folder to upload. A card that is missing is written to `scratch`: what was saved stays as it is."""
    from rlvr.checkpoint.hub import Part
    from rlvr.models.saved import trained_model
    from rlvr.report.card import write_card

    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: give a run's (--save_path of training), or a saved model's")
    model = trained_model(folder)
    is_model = any((folder / name).is_file() for name in ("config.json", "adapter_config.json"))
    if model is None and not is_model:
        held = ", ".join(sorted(p.name for p in folder.iterdir())[:5]) or "nothing"
        raise UserError(
            f"{folder} holds no trained model (it holds {held}): a run saves it when it is finished, in actor/modeling"
        )
    if (with_run or with_checkpoints) and not (folder / "metrics.jsonl").is_file():
        raise UserError(f"--with_run and --with_checkpoints: {folder} is no run's folder, which holds them")
    parts = [Part(model or folder)]
    if model is not None and (folder / "metrics.jsonl").is_file() and not (model / "README.md").is_file():
        card = scratch / model.parent.name / model.name  # whose names tell the kind of model
        card.mkdir(parents=True)
        write_card(folder, card)
        parts.append(Part(card))
    if with_run:
        parts.append(Part(folder, "run", RUN_FILES))
    if with_checkpoints:
        if not (folder / "checkpoints").is_dir():
            raise UserError(f"--with_checkpoints: {folder} holds none")
        parts.append(Part(folder / "checkpoints", "checkpoints"))
    return parts
