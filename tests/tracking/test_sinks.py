"""Each tracker gets the same names, settings and tables, goes on in the same place, and says what it lacks."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tracker_stand_ins import Recorder, install, mlflow, trackio, wandb
from trainer_harness import make_trainer

from rlvr.cli.main import main
from rlvr.config import LogConfig
from rlvr.errors import UserError
from rlvr.tracking.samples import COLUMNS, TrackedSample
from rlvr.tracking.sinks import PACKAGES, RunInfo, TensorBoardSink, allowed, check_trackers, literal, sink_factories
from rlvr.tracking.tracker import Sink

CONFIG = {"train": {"lr": 0.1, "names": ["a", "b"]}, "log": {"use_wandb": True}}
SAMPLE = TrackedSample("2+3=?", "<think>a</think><answer>5</answer>", "a", "5", "5", "correct", 1.0)


def make(wanted: LogConfig, about: RunInfo) -> Sink:
    (one,) = sink_factories(wanted, about)
    return one()


def test_wandb_gets_all_and_goes_on_under_its_id(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("WANDB_DIR", raising=False)
    said = Recorder()
    install(monkeypatch, wandb(said))
    about = RunInfo(folder=tmp_path / "mine", project="p", config=CONFIG)
    sink = make(LogConfig(use_wandb=True), about)
    (begun,) = said.of("init")
    assert begun | {"config": 0} == {
        "project": "p", "name": "mine", "config": 0, "dir": str(tmp_path / "mine"), "id": None, "resume": None,
    }  # fmt: skip
    assert begun["config"] == CONFIG and sink.has_through == -1
    sink.log(1, {"objective/scores": 0.5})
    sink.log_samples(1, [SAMPLE])
    sink.close(False)
    row, table = said.of("log")
    assert row == {"data": {"objective/scores": 0.5}, "step": 1} and table["step"] == 1
    assert table["data"]["samples"].columns == list(COLUMNS)
    assert table["data"]["samples"].data == [[1, *vars(SAMPLE).values()]]
    assert said.of("finish") == [{"exit_code": 0}]
    again = make(LogConfig(use_wandb=True), RunInfo(folder=tmp_path / "mine", resumed_at=1, has_through=3))
    assert said.of("init")[1]["id"] == "new-id" and said.of("init")[1]["resume"] == "allow" and again.has_through == 3


def test_mlflow_gets_all_and_goes_on_under_its_id(tmp_path: Path, monkeypatch) -> None:
    for variable in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"):
        monkeypatch.setenv(variable, "1")
    module = install(monkeypatch, mlflow())
    many = {"data": {f"n{i}": i for i in range(150)}, "train": {"long": "x" * 10_000}}
    sink = make(LogConfig(use_mlflow=True), RunInfo(folder=tmp_path / "mine", project="p", config=many))
    (run,) = module.MlflowClient.runs.values()
    assert run["experiment"] == "experiment-p" and run["name"] == "mine"
    assert len(run["params"]) == 151 and run["params"]["data.n3"] == "3" and len(run["params"]["train.long"]) == 500
    sink.log(2, {"objective/scores": 0.5, "reward/my fn(x)": 1.0})
    sink.log_samples(2, [SAMPLE, SAMPLE])
    sink.close(True)
    assert run["metrics"] == [("objective/scores", 0.5, 2), ("reward/my fn_x_", 1.0, 2)] and run["status"] == "FAILED"
    ((name, table),) = run["tables"]
    assert name == "samples.json" and list(table) == list(COLUMNS) and table["verdict"] == ["correct"] * 2
    again = make(LogConfig(use_mlflow=True), RunInfo(folder=tmp_path / "mine", project="p", config=many, has_through=2))
    assert run["status"] == "RUNNING" and again.has_through == 2 and len(module.MlflowClient.runs) == 1
    again.close(False)
    assert run["status"] == "FINISHED"
    other = make(LogConfig(use_mlflow=True), RunInfo(folder=tmp_path / "other", project="p"))
    assert len(module.MlflowClient.experiments) == 1 and other.has_through == -1


def test_trackio_gets_all_and_goes_on_under_its_name(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.delenv("TRACKIO_SPACE_ID", raising=False)
    said = Recorder()
    install(monkeypatch, trackio(said))
    sink = make(
        LogConfig(use_trackio=True), RunInfo(folder=tmp_path / "mine", project="p", name="first", config=CONFIG)
    )
    want = {"project": "p", "name": "first", "config": CONFIG, "resume": "never", "space_id": None}
    assert said.of("init") == [want]
    sink.log(1, {"x": 0.5})
    sink.log_samples(1, [SAMPLE])
    sink.close(False)
    row, table = said.of("log")
    assert row == {"data": {"x": 0.5}, "step": 1}
    frame = table["data"]["samples"].dataframe
    assert list(frame.columns) == list(COLUMNS) and frame["answer"].tolist() == ["5"]
    make(LogConfig(use_trackio=True), RunInfo(folder=tmp_path / "mine", project="p", name="second"))
    assert said.of("init")[1]["name"] == "first" and said.of("init")[1]["resume"] == "allow"


def scalars(folder: Path) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return [(event.step, event.value) for event in events.Scalars("x")]


def texts(folder: Path, tag: str) -> list[str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    return [event.tensor_proto.string_val[0].decode() for event in events.Tensors(f"{tag}/text_summary")]


def test_tensorboard_shows_settings_and_texts_and_forgets_what_comes_again(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    sink = TensorBoardSink(str(tmp_path), RunInfo(config=CONFIG))
    for step in range(5):
        sink.log(step, {"x": float(step)})
    hostile = TrackedSample("<b>p</b>\n# x", "r", "", "", "|g|", "wrong", None)
    sink.log_samples(4, [SAMPLE, hostile])
    sink.close(False)
    assert "lr: 0.1" in texts(tmp_path, "config")[0]
    (shown,) = texts(tmp_path, "samples")
    assert "**correct**, reward 1" in shown and "**think**\n\n    a" in shown
    assert "    <b>p</b>\n    # x" in shown and "\n    |g|" in shown
    again = TensorBoardSink(str(tmp_path), RunInfo(config=CONFIG, resumed_at=2, has_through=4))
    assert again.has_through == -1
    for step in (3, 4):
        again.log(step, {"x": 10.0 + step})
    again.close(False)
    assert scalars(tmp_path) == [(0, 0), (1, 1), (2, 2), (3, 13), (4, 14)]
    assert len(texts(tmp_path, "config")) == 1
    assert literal("a\n\nb") == "    a\n    \n    b"


@pytest.mark.parametrize(
    ("name", "taken"),
    [("reward/a b", "reward/a b"), ("pass@8", "pass_8"), ("a//b", "a/_/b"), ("../x", "_/x"), ("é", "_"), ("/", "_/_")],
)
def test_names_that_mlflow_does_not_take_are_changed(name: str, taken: str) -> None:
    assert allowed(name) == taken


def test_ids_of_several_trackers_lie_side_by_side(tmp_path: Path) -> None:
    about = RunInfo(folder=tmp_path)
    assert about.id_of("wandb") is None
    about.keep_id("wandb", "a")
    about.keep_id("mlflow", "b")
    assert (about.id_of("wandb"), about.id_of("mlflow"), about.id_of("trackio")) == ("a", "b", None)
    (tmp_path / "trackers.json").write_text("[]")
    with pytest.raises(UserError, match=r"trackers.json is no JSON object: delete it"):
        about.id_of("wandb")
    (tmp_path / "trackers.json").write_text('{"wandb": 3}')
    assert about.id_of("wandb") is None
    RunInfo().keep_id("wandb", "a")  # a trainer without a folder keeps none
    assert RunInfo().title is None and RunInfo(folder=Path("runs/x")).title == "x"


def test_one_that_can_not_be_started_says_what_to_do(tmp_path: Path, monkeypatch) -> None:
    module = install(monkeypatch, wandb(Recorder()))

    def init(**_: Any) -> None:
        raise module.errors.Error("api_key not configured (no-tty)\nmore")

    module.init = init
    with pytest.raises(
        UserError, match=r"Weights & Biases can't be started: Error: api_key .* `wandb login`, or set WANDB"
    ):
        make(LogConfig(use_wandb=True), RunInfo(folder=tmp_path))
    mlf = install(monkeypatch, mlflow())

    def without_driver(self) -> None:
        raise ModuleNotFoundError("No module named 'sqlalchemy'")

    mlf.MlflowClient.__init__ = without_driver
    with pytest.raises(UserError, match=r"MLflow can't be started: .*sqlalchemy.*pip install 'rlvr\[mlflow\]'"):
        make(LogConfig(use_mlflow=True), RunInfo(folder=tmp_path))
    module.init = lambda **_: 1 / 0  # a mistake of ours stays one
    with pytest.raises(ZeroDivisionError):
        make(LogConfig(use_wandb=True), RunInfo(folder=tmp_path))


def test_a_resumed_run_goes_on_without_one_that_can_not_be_reached(process, tmp_path: Path, monkeypatch) -> None:
    module = install(monkeypatch, wandb(Recorder()))
    install(monkeypatch, mlflow())

    def init(**_: Any) -> None:
        raise module.errors.Error("no network")

    module.init = init
    trainer, said = make_trainer(), list[str]()
    monkeypatch.setattr(trainer, "warn", said.append)
    with pytest.raises(UserError, match="no network"):
        trainer.track(LogConfig(use_wandb=True, use_mlflow=True))
    monkeypatch.setattr(trainer, "_run_info", RunInfo(folder=tmp_path, resumed_at=3, has_through=4))
    trainer.track(LogConfig(use_wandb=True, use_mlflow=True))
    assert [sink.name for sink in trainer.tracker.sinks] == ["MLflow"]
    assert len(said) == 1 and "no network" in said[0] and said[0].endswith("This session goes on without it")


def test_only_rank_0_writes(process, monkeypatch) -> None:
    install(monkeypatch, mlflow())
    trainer = make_trainer(coordinator=SimpleNamespace(is_master=lambda: False))
    trainer.track(LogConfig(use_mlflow=True))
    assert trainer.tracker.sinks == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.module)
def test_a_missing_package_is_named_with_its_command(package, monkeypatch) -> None:
    asked = {p.flag: None if p.flag == "log_dir" else False for p in PACKAGES}
    check_trackers(SimpleNamespace(**asked))
    asked[package.flag] = "logs" if package.flag == "log_dir" else True
    monkeypatch.setitem(sys.modules, package.module, None)
    with pytest.raises(
        UserError, match=rf"--{package.flag}.* needs {package.title}: pip install 'rlvr\[{package.module}\]'"
    ):
        check_trackers(SimpleNamespace(**asked))


@pytest.mark.parametrize("command", ["train --reward_functions gsm8k_reward_fn", "sft", "reward-model"])
def test_the_command_finds_it_before_torch_is_loaded(command: str, clean_env) -> None:
    code = (
        "import sys; sys.modules['mlflow'] = None; from rlvr.cli.main import main; "
        f"status = main({[*command.split(), '--use_mlflow']!r}); "
        "print(status, sorted({'torch', 'transformers', 'colossalai', 'wandb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean_env)
    assert done.stdout == "2 []\n" and done.stderr == "error: --use_mlflow needs MLflow: pip install 'rlvr[mlflow]'\n"


RUN = "--prompt_dataset builtin --max_samples 16 --reward_functions gsm8k_reward_fn --experience_batch_size 8 " \
    "--train_batch_size 8 --num_update_steps 1 --num_collect_steps 1 --max_new_tokens 6 --max_length 160 --eval_samples 4 " \
    "--num_sample_generations 4 --save_interval 2"  # fmt: skip


def train(model: str, folder: Path, *flags: str) -> int:
    words = ["train", "--pretrain", model, *RUN.split(), "--save_path", str(folder), *flags]
    return main(words)


def test_a_run_that_loses_its_tracker_and_is_resumed(process, micro_model, tmp_path: Path, monkeypatch, capsys) -> None:
    """W&B goes away in the second episode of a run that stops in the fourth; the resumed run is back at it."""
    from rlvr.trainer.base import Interrupted
    from rlvr.trainer.online import OnlineTrainer

    said = Recorder()
    module = install(monkeypatch, wandb(said))
    mlf = install(monkeypatch, mlflow())
    ended = OnlineTrainer._end_episode

    def end_episode(self: OnlineTrainer) -> None:
        ended(self)
        if self.progress.episode == 1:
            module.runs[0].gone = ConnectionResetError("the service died")
        if self.progress.episode == 3 and len(module.runs) == 1:
            raise Interrupted(15, None)

    monkeypatch.setattr(OnlineTrainer, "_end_episode", end_episode)
    folder, trackers = tmp_path / "run", ("--use_wandb", "--use_mlflow", "--tracker_project", "mine")
    with pytest.raises(SystemExit):
        train(micro_model, folder, "--num_episodes", "4", *trackers)
    told = capsys.readouterr().out
    assert told.count("Weights & Biases failed") == 1 and "the service died" in told
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert json.loads((folder / "trackers.json").read_text()) == {"wandb": "new-id", "mlflow": "run-0"}
    (run,) = mlf.MlflowClient.runs.values()
    assert {step for _, _, step in run["metrics"]} == {0, 1, 2, 3} and run["status"] == "FAILED"
    assert train(micro_model, folder, "--num_episodes", "4", "--resume", *trackers) == 0
    names = {name for name, _, step in run["metrics"] if step == 4}
    assert [step for name, _, step in run["metrics"] if name == "objective/scores"] == [1, 2, 3, 4]
    assert run["status"] == "FINISHED" and run["params"]["log.tracker_project"] == "mine"
    logged = [row for row in said.of("log") if "samples" not in row["data"]]
    assert [row["step"] for row in logged] == [0, 1, 4] and set(logged[-1]["data"]) == names
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert set(last) == names | {"step"}
    tables = [row["data"]["samples"] for row in said.of("log") if "samples" in row["data"]]
    kept = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    assert tables and tables[-1].data[0][0] == 4 and tables[-1].data[0][2] == kept[-8]["response"]
