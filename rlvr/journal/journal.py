"""`Journal`: what each episode's update consumed, in a run's folder.

    RUN/journal/step-000012/            12 = the episode, counted from 1, as the checkpoint after it is named
      step.json                         weights before and after, KL coefficient, metrics, versions; written last
      experience-RANK.safetensors       the buffer of each process when learning began
      samples-RANK-COLLECT.json.gz      golds, questions and scores of each collect step, in the order of the buffer

With these and a checkpoint from before it, a step can be computed again (`rlvr.replay.repeat`), without sampling and without
reward functions. Everything is kept to the bit. Numbers are stored by byte planes (all first bytes, then all second, ...), whose
high planes hardly vary, and compressed with zlib.
"""

import gzip
import json
import math
import re
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import ConfigDict, Field, TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rewards.combine import Combined
from rewards.outcome import Outcome, Score
from rewards.sample import Sample
from rlvr.config.files import parse_json, read_json, require_file
from rlvr.errors import UserError
from rlvr.experience.experience import Experience
from rlvr.tracking.tracker import replace_text

FOLDER = "journal"
_NAME = re.compile(r"step-(\d{6})$")
_DTYPES = {str(dtype): dtype for dtype in (torch.int64, torch.float32, torch.bfloat16, torch.float16, torch.bool)}
Digests = Mapping[str, str]
"""Role -> digest of its weights."""


@dataclass(frozen=True)
class StepInfo:
    """A step in the journal, but for its tensors and samples.

    Attributes:
        step: the episode, counted from 1.
        processes, replicas: processes of the run, and copies of the model among which samples were divided.
        kl_coef: weight of the divergence in this episode.
        before, after: the weights that the update began and ended with; `after` is None while it has not ended.
        metrics: the episode's row of metrics.
        made_with: versions, machine and precision that computed it.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    step: int
    processes: Annotated[int, Field(ge=1)]
    replicas: Annotated[int, Field(ge=1)]
    kl_coef: float
    before: Digests
    made_with: Mapping[str, str]
    after: Digests | None = None
    metrics: Mapping[str, float | None] | None = None


@dataclass(frozen=True)
class JournalledSample:
    """What a reward function saw of one response besides its tokens, and what it said."""

    gold: str | None
    question: str | None
    columns: Mapping[str, Any]
    finished: bool
    result: Combined


class Journal:
    """The journal in a run's folder; empty where the run keeps none.

    Args:
        run: the run's folder.
    """

    def __init__(self, run: str | Path) -> None:
        self.folder = Path(run) / FOLDER

    def steps(self) -> list[int]:
        """The steps that are whole, in order."""
        return [step for step, path in self._folders() if (path / "step.json").is_file() and self._ended(path)]

    def info(self, step: int) -> StepInfo:
        """What is known of a step.

        Raises:
            UserError: it is not in the journal, or the file is damaged.
        """
        path = self._place(step) / "step.json"
        try:
            return TypeAdapter(StepInfo).validate_python(read_json(path))
        except FileNotFoundError:
            raise UserError(f"{self.folder} has no step {step}; it has {self._described()}") from None
        except (ValueError, OSError) as error:  # pydantic's is a ValueError
            raise UserError(f"{path} can't be read: {error}") from None

    def experience(self, step: int, rank: int) -> tuple[list[Experience], dict[str, Any]]:
        """The buffer of one process when learning began, and the state of its meter.

        Raises:
            UserError: the file is missing or damaged.
        """
        path = self._place(step) / f"experience-{rank}.safetensors"
        with _reading(path):
            return _read_experience(path)

    def samples(self, step: int, rank: int) -> list[list[JournalledSample]]:
        """The samples of one process, one list for each collect step.

        Raises:
            UserError: a file is damaged, or of a run that could not be written as JSON.
        """
        found = []
        for path in sorted(self._place(step).glob(f"samples-{rank}-*.json.gz"), key=_collect_step):
            with _reading(path):
                rows = parse_json(gzip.decompress(path.read_bytes()).decode())
                if not isinstance(rows, list):
                    raise ValueError(f"it holds a {type(rows).__name__} in place of a list of samples")
                found.append([_sample(row) for row in rows])
        return found

    # Writing.

    def write_samples(
        self, step: int, rank: int, collect_step: int, samples: Sequence[Sample], results: Sequence[Combined]
    ) -> None:
        """Keep what was scored in one collect step."""
        rows = [_row(sample, result) for sample, result in zip(samples, results, strict=True)]
        # A column of the data that JSON does not know is kept as its text.
        data = gzip.compress(json.dumps(rows, default=str).encode(), compresslevel=6, mtime=0)
        with self._written(step, f"samples-{rank}-{collect_step}.json.gz") as draft:
            draft.write_bytes(data)

    def write_experience(self, step: int, rank: int, items: Sequence[Experience], meter: Mapping[str, Any]) -> None:
        """Keep a process's buffer, and its meter."""
        with self._written(step, f"experience-{rank}.safetensors") as draft:
            _write_experience(draft, items, meter)

    def write_info(self, info: StepInfo) -> None:
        """Keep the rest; with `after` set, the step is whole."""
        folder = self._place(info.step)
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(folder / "step.json", json.dumps(_jsonable(asdict(info)), indent=1) + "\n")

    def finish(self, step: int, after: Digests, metrics: Mapping[str, float]) -> None:
        """The step has ended. One whose beginning was damaged meanwhile is given up: the run does not depend on it."""
        try:
            info = self.info(step)
        except UserError:
            shutil.rmtree(self._place(step), ignore_errors=True)
            return
        self.write_info(replace(info, after=dict(after), metrics=dict(metrics)))

    def prune(self, keep: int, newest: int) -> None:
        """Delete all but the newest `keep` steps up to `newest`. Later ones stay: a run that went on from an earlier checkpoint
        writes them again."""
        for step, path in self._folders():
            if step <= newest - keep:
                shutil.rmtree(path)

    def bytes_per_token(self) -> float:
        """Bytes on disk for each response token, over all steps that are whole."""
        folders = [self._place(step) for step in self.steps()]
        files = sum(p.stat().st_size for folder in folders for p in folder.iterdir() if p.is_file())
        tokens = sum(_tokens(p) for folder in folders for p in folder.glob("experience-*.safetensors"))
        return files / tokens if tokens else 0.0

    @contextmanager
    def _written(self, step: int, name: str) -> Iterator[Path]:
        """A draft to write, which becomes the file of a step.

        Raises:
            UserError: it can't be written.
        """
        folder = self._place(step)
        draft = folder / f".new-{name}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            yield draft
            draft.replace(folder / name)
        except (OSError, SafetensorError) as error:
            draft.unlink(missing_ok=True)
            raise UserError(f"can't write the journal {folder}: {error}; free space and go on with --resume") from None

    def _place(self, step: int) -> Path:
        return self.folder / f"step-{step:06d}"

    def _folders(self) -> Iterator[tuple[int, Path]]:
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        yield from sorted((int(match[1]), path) for path in found if (match := _NAME.match(path.name)))

    def _ended(self, path: Path) -> bool:
        try:
            return read_json(path / "step.json").get("after") is not None
        except (OSError, ValueError, AttributeError):
            return False

    def _described(self) -> str:
        steps = self.steps()
        return f"{len(steps)} steps, {steps[0]} to {steps[-1]}" if steps else "none (train with --journal)"


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What a damaged file of the journal raises, as one message."""
    try:
        require_file(path)
        yield
    except (
        OSError,
        SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        zlib.error,
        RuntimeError,
    ) as error:
        raise UserError(f"{path} can't be read: {error}") from None


# Tensors.


def _write_experience(path: Path, items: Sequence[Experience], meter: Mapping[str, Any]) -> None:
    """One packed array for each field of all items together, and the lengths that cut it again."""
    columns = {name: [item.tensors()[name] for item in items] for name in items[0].tensors()} if items else {}
    # Of the tokens, and of what is known of those that the policy chose.
    kinds = {name: name for name in columns if name in ("prompt_ids", "response_ids")}
    if "action_mask" in columns:
        kinds["action_ids"] = "logprobs"
    lengths = {f"{kind} lengths": [torch.tensor([len(part) for part in columns[of]])] for kind, of in kinds.items()}
    # Without a divergence the second is the first, and is not kept twice.
    shared = bool(items) and all(_same_bits(item.logprobs, item.ref_logprobs) for item in items)
    if shared:
        del columns["ref_logprobs"]
    packed: dict[str, Tensor] = {}
    dtypes: dict[str, str] = {}
    for name, parts in (columns | lengths).items():
        whole = torch.cat([part.detach().cpu() for part in parts])
        packed[name], dtypes[name] = _pack(whole), f"{whole.dtype} {len(whole)}"
    about = {"rows": len(items), "dtypes": dtypes, "meter": meter, "no_reference": shared}
    save_file(packed, path, metadata={"about": json.dumps(about)})


def _tokens(path: Path) -> int:
    """Response tokens in a file of experience, of which only the head is read."""
    with _reading(path), safe_open(path, framework="pt") as file:
        said = json.loads(file.metadata()["about"])["dtypes"]
    return int(said["response_ids"].split()[1]) if said else 0


def _read_experience(path: Path) -> tuple[list[Experience], dict[str, Any]]:
    with safe_open(path, framework="pt") as file:
        about = json.loads(file.metadata()["about"])
        whole = {name: _unpack(file.get_tensor(name), *said.split()) for name, said in about["dtypes"].items()}
    if not about["rows"]:
        return [], about["meter"]
    if about.get("no_reference"):
        whole["ref_logprobs"] = whole["logprobs"]
    prompts, responses = (whole.pop(f"{kind} lengths").tolist() for kind in ("prompt_ids", "response_ids"))
    actions = whole.pop("action_ids lengths").tolist() if "action_mask" in whole else responses
    lengths = {"prompt_ids": prompts, "response_ids": responses, "action_mask": responses}
    cut = {name: tensor.split(lengths.get(name, actions)) for name, tensor in whole.items()}
    rows = [{name: parts[i].clone() for name, parts in cut.items()} for i in range(about["rows"])]
    return [Experience(**row) for row in rows], about["meter"]


def _same_bits(first: Tensor, second: Tensor) -> bool:
    return first.dtype == second.dtype and torch.equal(first.view(torch.int32), second.view(torch.int32))


def _pack(tensor: Tensor) -> Tensor:
    """[bytes] uint8: the byte planes of a flat tensor, compressed."""
    size = tensor.element_size()
    planes = tensor.contiguous().view(torch.uint8).view(-1, size).T.contiguous()
    data = zlib.compress(planes.numpy().tobytes(), 6)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _unpack(packed: Tensor, dtype: str, count: str) -> Tensor:
    """The flat tensor again. Never more bytes than the file says that there are numbers."""
    kind, numbers = _DTYPES[dtype], int(count)
    size = kind.itemsize
    reader = zlib.decompressobj()
    data = reader.decompress(packed.numpy().tobytes(), max(1, numbers * size))
    if len(data) != numbers * size or reader.unconsumed_tail:
        raise ValueError(f"{len(data)} bytes instead of {numbers * size}")
    if not numbers:
        return torch.empty(0, dtype=kind)
    planes = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(size, numbers)
    return planes.T.contiguous().view(-1).view(kind)


# Samples.


def _row(sample: Sample, result: Combined) -> dict[str, Any]:
    return {
        "gold": sample.gold,
        "question": sample.question,
        "columns": dict(sample.columns),
        "finished": sample.finished,
        "result": asdict(result),
    }


def _sample(row: Mapping[str, Any]) -> JournalledSample:
    said = row["result"]
    scores = {name: _score(score) for name, score in said["scores"].items()}
    result = Combined(said["total"], scores, _outcome(said["outcome"]))
    return JournalledSample(row["gold"], row["question"], row["columns"], row["finished"], result)


def _score(said: Mapping[str, Any]) -> Score:
    return Score(said["value"], _outcome(said["outcome"]), dict(said["components"]))


def _outcome(said: Mapping[str, Any] | None) -> Outcome | None:
    return None if said is None else Outcome(**said)


def _collect_step(path: Path) -> int:
    return int(path.name.removesuffix(".json.gz").rpartition("-")[2])


def _jsonable(value: Any) -> Any:
    """Numbers that JSON does not know become None, as in metrics.jsonl."""
    if isinstance(value, Mapping):
        return {name: _jsonable(held) for name, held in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
