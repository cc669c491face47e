"""vLLM servers by URL: responses of the present weights, whatever servers do. They are stand-ins; `python -m benchmarks.vllm` asks real ones."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from rollout_harness import ids, random_prompts
from tiny_models import tiny_model
from vllm_server import Server, serving

from rlvr.config import base_config
from rlvr.errors import UserError
from rlvr.models.actor import Actor
from rlvr.models.lora import apply_lora
from rlvr.models.lora_config import LoraSettings
from rlvr.models.tiny import build_tiny_tokenizer
from rlvr.rollout.engine import Sampling
from rlvr.rollout.hf import HFEngine
from rlvr.rollout.vllm_servers import ATTEMPTS, VLLMServersEngine, fingerprint
from rlvr.validate.ppo import check_config

TOKENIZER = build_tiny_tokenizer()
GREEDY = Sampling(8, temperature=0.0, stop_ids=(1,))
SAMPLED = Sampling(8, stop_ids=(1,))
PROMPTS = random_prompts(6, 10, groups=2)


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """Two, with other weights than those of `model`."""
    with ExitStack() as stack:
        yield [stack.enter_context(serving(Server(tiny_model(seed=7), TOKENIZER))) for _ in range(2)]


@pytest.fixture
def model() -> Any:
    return sharpened(tiny_model())


def sharpened(model: Any) -> Any:
    """So that rounding decides no token."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4 if parameter.ndim > 1 else 1)
    return model


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def engine(servers, tmp_path, notes) -> Iterator[VLLMServersEngine]:
    made = VLLMServersEngine(TOKENIZER, [s.url for s in servers], tmp_path / "weights", 20.0, notes.append)
    yield made
    made.close()
    assert not (tmp_path / "weights").exists()


def expected(model: Any) -> list[list[int]]:
    return ids(HFEngine(TOKENIZER).generate(model, PROMPTS, GREEDY, (0,)))


def step(model: Any) -> None:
    """Move the weights, as an update does."""
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(3)
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def test_tokens_are_those_of_the_present_weights(engine, servers, model) -> None:
    seen = []
    for _ in range(2):
        assert ids(engine.generate(model, PROMPTS, GREEDY, (0,))) == expected(model)
        seen.append(expected(model))
        step(model)
    assert seen[0] != seen[1]
    assert all(server.answered == len(PROMPTS) for server in servers)  # half of the prompts, twice


def test_weights_go_once_to_each_server(engine, servers, model, tmp_path) -> None:
    for seed in range(3):
        engine.generate(model, PROMPTS, SAMPLED, (seed,))
    assert [len(server.loaded) for server in servers] == [1, 1]
    step(model)
    engine.generate(model, PROMPTS, SAMPLED, (0,))
    assert [len(server.loaded) for server in servers] == [2, 2]
    assert len([path for path in (tmp_path / "weights").iterdir() if path.is_dir()]) == 1  # older ones are deleted


def test_logprobs_are_those_of_the_sampled_tokens(engine, model) -> None:
    for rollout in engine.generate(model, PROMPTS, SAMPLED, (0,)):
        whole = torch.cat([rollout.prompt_ids, rollout.response_ids])
        with torch.no_grad():
            logits = model(whole[None]).logits[0, len(rollout.prompt_ids) - 1 : -1].float()
        own = logits.log_softmax(-1).gather(1, rollout.response_ids[:, None])[:, 0]
        torch.testing.assert_close(rollout.logprobs, own, atol=1e-5, rtol=0)
        assert rollout.finished == (int(rollout.response_ids[-1]) == 1)


def test_truncated_distributions_have_no_logprobs(engine, model) -> None:
    assert all(r.logprobs is None for r in engine.generate(model, PROMPTS, Sampling(4, top_k=3), (0,)))


def test_samples_of_a_prompt_differ_and_can_be_had_again(engine, model) -> None:
    first, again = (ids(engine.generate(model, PROMPTS, SAMPLED, (0,))) for _ in range(2))
    assert first == again and first[0] != first[1]
    assert first != ids(engine.generate(model, PROMPTS, SAMPLED, (1,)))


def test_progress_and_order(engine, model) -> None:
    seen = []
    engine.on_progress = lambda *told: seen.append(told)
    batches = list(engine.stream(model, PROMPTS, SAMPLED, (0,)))
    assert [r.prompt_ids.tolist() for batch in batches for r in batch] == [list(p.ids) for p in PROMPTS]
    assert [finished for finished, _, _ in seen] == list(range(1, len(PROMPTS) + 1))
    assert seen[-1][2] == sum(len(r.response_ids) for batch in batches for r in batch)


def test_no_prompts_ask_nobody(model, tmp_path) -> None:
    assert VLLMServersEngine(TOKENIZER, ["http://127.0.0.1:9"], tmp_path, 1.0).generate(model, [], SAMPLED, (0,)) == []


def test_an_adapter_is_merged(servers, engine) -> None:
    model = sharpened(tiny_model())
    adapted = apply_lora(deepcopy(model), LoraSettings(r=2, target_modules="all-linear"))
    with torch.no_grad():
        torch.manual_seed(0)
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    found = ids(engine.generate(Actor(adapted).model, PROMPTS, GREEDY, (0,)))
    assert found == ids(HFEngine(TOKENIZER).generate(adapted, PROMPTS, GREEDY, (0,))) != expected(model)


def test_a_tied_head_is_sent_by_its_name(tmp_path) -> None:
    """vLLM has it apart on a CPU."""
    model = sharpened(tiny_model("qwen2-tied"))
    apart = tiny_model("qwen2-tied", seed=5)
    apart.lm_head.weight = torch.nn.Parameter(apart.lm_head.weight.detach().clone())
    with serving(Server(apart, TOKENIZER)) as server:
        engine = VLLMServersEngine(TOKENIZER, [server.url], tmp_path / "weights", 20.0)
        assert ids(engine.generate(model, PROMPTS, GREEDY, (0,))) == expected(model)
        step(model)
        assert ids(engine.generate(model, PROMPTS, GREEDY, (0,))) == expected(model)
        engine.close()


def test_in_bfloat16_servers_get_what_is_sampled_from(engine, servers, model) -> None:
    engine.autocast = True
    engine.generate(model, PROMPTS, SAMPLED, (0,))
    own = dict(model.named_parameters())
    for name, weight in servers[0].model.named_parameters():
        assert torch.equal(weight, own[name].bfloat16().float())


def test_a_fingerprint_knows_names_places_and_every_bit() -> None:
    weights = {"a": torch.randn(3, 5), "b": torch.randn(7, dtype=torch.bfloat16)}
    whole = fingerprint(weights.items())
    assert whole == fingerprint({name: w.clone() for name, w in weights.items()}.items())
    moved = {"a": weights["a"].flip(0), "b": weights["b"]}
    nudged = {"a": weights["a"].nextafter(torch.tensor(9.0)), "b": weights["b"]}
    renamed = {"c": weights["a"], "b": weights["b"]}
    swapped = dict(reversed(weights.items()))
    assert len({whole, *(fingerprint(w.items()) for w in (moved, nudged, renamed, swapped))}) == 5


# Servers that fail.


@pytest.mark.parametrize("failure", [0, 500, 503])
def test_what_a_server_drops_others_answer(engine, servers, model, notes, failure) -> None:
    servers[1].failures = [failure] * 2
    assert ids(engine.generate(model, PROMPTS, GREEDY, (0,))) == expected(model)
    assert any(servers[1].url in note and "asked again" in note for note in notes)


def test_a_server_that_has_gone_is_left_out_and_taken_back(tmp_path, model, notes) -> None:
    with serving(Server(tiny_model(seed=7), TOKENIZER)) as stays:
        with serving(Server(tiny_model(seed=8), TOKENIZER)) as goes:
            engine = VLLMServersEngine(TOKENIZER, [stays.url, goes.url], tmp_path / "weights", 20.0, notes.append)
            engine.generate(model, PROMPTS, GREEDY, (0,))
        step(model)
        assert ids(engine.generate(model, PROMPTS, GREEDY, (0,))) == expected(model)
        assert any(goes.url in note and "does not answer" in note for note in notes)
    with pytest.raises(UserError, match=r"does not answer.*rlvr vllm-serve MODEL.*--resume, or take --engine hf"):
        engine.generate(model, PROMPTS, GREEDY, (0,))
    engine.close()


def test_a_server_that_was_started_again_is_given_the_weights(engine, servers, model) -> None:
    engine.generate(model, PROMPTS, GREEDY, (0,))
    servers[0].restart(tiny_model(seed=9))
    assert ids(engine.generate(model, PROMPTS, GREEDY, (0,))) == expected(model)
    assert [len(server.loaded) for server in servers] == [2, 1]


def test_answers_of_other_weights_do_not_count(engine, servers, model, notes) -> None:
    """It is started again between two requests of a batch."""
    engine.generate(model, PROMPTS, GREEDY, (0,))
    times = iter([True])

    def restarts(path: str) -> None:
        if path == "/inference/v1/generate" and next(times, False):
            servers[0].restart(tiny_model(seed=9))

    servers[0].before = restarts
    assert ids(engine.generate(model, PROMPTS, GREEDY, (0,))) == expected(model)
    assert any("other weights" in note for note in notes)


def test_a_server_that_another_run_gives_weights_ends_the_run(engine, servers, model) -> None:
    def changes(path: str) -> None:
        if path == "/inference/v1/generate":
            servers[0].version = servers[1].version = "another"

    servers[0].before = servers[1].before = changes
    with pytest.raises(UserError, match=rf"asked {ATTEMPTS} times; .*or another run gives it some"):
        engine.generate(model, PROMPTS, GREEDY, (0,))


def test_weights_that_do_not_fit_are_refused(engine, servers) -> None:
    with pytest.raises(
        UserError, match=r"(?s)was to load the weights in .*--save_path on a file system.*serve the model"
    ):
        engine.generate(tiny_model("opt"), PROMPTS, GREEDY, (0,))
    assert servers[0].version == "none"  # half of them may be others


def test_a_folder_that_the_server_does_not_see_is_told(engine, servers, model, monkeypatch) -> None:
    elsewhere = Path("/nowhere/at/all")
    monkeypatch.setattr(servers[0], "load", lambda folder, load=servers[0].load: load(elsewhere))
    with pytest.raises(UserError, match=r"Cannot find any model weights.*It must see that folder under the same name"):
        engine.generate(model, PROMPTS, GREEDY, (0,))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"logprobs_mode": "raw_logprobs", "max_model_len": 512}, r"gives raw_logprobs, .*rlvr vllm-serve"),
        (
            {"logprobs_mode": "processed_logprobs", "max_model_len": 9},
            r"takes 9 tokens .* up to 1\d: .*--max-model-len 1\d",
        ),
    ],
)
def test_settings_that_do_not_do_are_refused(engine, servers, model, settings, message) -> None:
    servers[0].settings = settings
    with pytest.raises(UserError, match=message):
        engine.generate(model, PROMPTS, GREEDY, (0,))


class OtherTokenizer:
    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return [1, 2, 3]


def test_another_tokenizer_is_refused(engine, servers, model) -> None:
    servers[1].tokenizer = OtherTokenizer()
    with pytest.raises(
        UserError, match=r"serves served, whose tokenizer is not .* \[1, 2, 3\] there .*Serve the model"
    ):
        engine.generate(model, PROMPTS, GREEDY, (0,))


@pytest.mark.parametrize("path", ["/server_info", "/weight_info", "/inference/v1/generate"])
def test_what_is_no_such_server_is_told(engine, servers, model, path) -> None:
    servers[0].missing = (path,)
    with pytest.raises(
        UserError, match=rf"has no {path}: it is no vLLM server of 0.32 or later .*rlvr vllm-serve MODEL"
    ):
        engine.generate(model, PROMPTS, GREEDY, (0,))


def choice(tokens: list[Any], logprobs: list[Any]) -> dict[str, Any]:
    content = [{"logprob": value} for value in logprobs]
    one = {"token_ids": tokens, "logprobs": {"content": content}, "weight_versions": []}
    return {"choices": [one]}


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/server_info", {"vllm_config": "text"}),
        ("/server_info", []),
        ("/v1/models", {"data": []}),
        ("/tokenize", {"tokens": ["a"]}),
        ("/weight_info", {}),
        ("/inference/v1/generate", {}),
        ("/inference/v1/generate", choice([5, 10**9], [0.0, 0.0])),
        ("/inference/v1/generate", choice([5, -1], [0.0, 0.0])),
        ("/inference/v1/generate", choice([5, 6], [0.0])),
        ("/inference/v1/generate", choice([5] * 99, [0.0] * 99)),
    ],
)
def test_answers_that_are_none_are_told(engine, servers, model, path, answer) -> None:
    servers[0].instead = {path: answer}
    with pytest.raises(UserError, match="otherwise than vLLM 0.32 and later do .*rlvr vllm-serve MODEL"):
        engine.generate(model, PROMPTS, GREEDY, (0,))


def test_the_key_is_sent(monkeypatch, servers, model, tmp_path) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    engine = VLLMServersEngine(TOKENIZER, [servers[0].url], tmp_path / "weights", 20.0)
    engine.generate(model, PROMPTS, GREEDY, (0,))
    engine.close()
    assert servers[0].keys == {"Bearer secret"}


# Settings and runs.


def config(**rollout: Any) -> Any:
    sections: dict[str, Any] = {"reward": {"reward_functions": ["gsm8k_reward_fn"]}, "rollout": rollout}
    return base_config(sections)


@pytest.mark.parametrize(
    ("rollout", "message"),
    [
        (
            {"engine": "hf", "vllm_servers": ["http://a:1"]},
            r"--vllm_servers http://a:1 has no effect without --engine vllm",
        ),
        ({"engine": "vllm", "vllm_servers": ["localhost:8000"]}, r"--vllm_servers localhost:8000: give a URL"),
        ({"engine": "vllm", "vllm_servers": ["http://a:1", "http://a:1"]}, r"names a server twice: http://a:1"),
    ],
)
def test_settings_are_checked(rollout, message) -> None:
    with pytest.raises(UserError, match=message):
        check_config(config(**rollout), [("rollout", "vllm_servers")])


def test_on_ray_they_are_refused() -> None:
    made = config(engine="vllm", vllm_servers=["http://a:1"])
    made.ray.ray = True
    with pytest.raises(UserError, match=r"does not go with --ray, .*--num_rollout_workers"):
        check_config(made)


RUN = """--pretrain tiny --reward_functions gsm8k_reward_fn --num_episodes 3 --experience_batch_size 16 --train_batch_size 16 --max_new_tokens 24
--max_samples 64 --eval_samples 8 --eval_interval 2 --save_interval 0 --lr 1e-2 --engine vllm --no_progress""".split()


@pytest.mark.processes
@pytest.mark.parametrize("plugin", ["ddp", "zero2", "fsdp"])
def test_two_processes_and_two_servers(ranks, tmp_path, tiny_cache, plugin) -> None:
    """Every token of every episode has the probability that the trainer gives it: each was sampled by the weights of its episode."""
    from rlvr.models.loading import load_causal_lm, load_tokenizer

    made, tokenizer = load_causal_lm("tiny"), load_tokenizer("tiny")
    with ExitStack() as stack:
        servers = [stack.enter_context(serving(Server(deepcopy(made), tokenizer))) for _ in range(2)]
        urls = [server.url for server in servers]
        said = ranks.done(
            2, "train", *RUN, "--vllm_servers", *urls, "--plugin", plugin, "--save_path", tmp_path / "run"
        )
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    found = [row["sampler/kl"] for row in rows if "sampler/kl" in row]
    assert len(found) == 3 and max(found) < 1e-6, said
    assert all(server.answered >= 24 for server in servers)
    assert [len(server.loaded) for server in servers] == [
        4,
        4,
    ]  # at the start and after each of the updates, for the evaluation
    assert not (tmp_path / "run" / "weights_for_vllm").exists()
