"""What a run will take of a device's memory: by role, and at the peak of each phase. An estimate; docs/memory.md says how good.

It counts tensors of one process at the longest sequences that the settings allow. Left out: what the interpreter, CUDA and
the allocator take for themselves, and experience, which is small beside the rest.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch

from rlvr.boost.plugins import GEMINI
from rlvr.checks.lora import lora_settings
from rlvr.config import Config, ParallelConfig
from rlvr.core.advantages import get_estimator
from rlvr.core.logprobs import CPU_BLOCK
from rlvr.memory_products import library_bytes
from rlvr.models import attention
from rlvr.models.adapter import is_adapter
from rlvr.models.footprint import BFLOAT16, FLOAT32, Footprint, Precision
from rlvr.rollout.cache import GROWTH
from rlvr.rollout.decode import FIRST_COLUMNS

DRAWN = 3  # times the logits that drawing a token holds: the logits, their float32 copy, the noise
LOGITS_FORWARD, LOGITS_BACKWARD = 3, 4  # times the logits that `chunked_logprobs` works on at once
ADAM = 2 * FLOAT32
FROZEN = ("reference", "reward model")


@dataclass(frozen=True)
class Role:
    """Bytes that a model holds on the device, in one process.

    Attributes:
        parameters: weights in the type that they run in.
        gradients: with what the plugin needs to exchange them.
        optimizer: moments, and float32 weights where the model's own are shorter.
    """

    name: str
    count: int
    parameters: int
    gradients: int = 0
    optimizer: int = 0

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer


@dataclass(frozen=True)
class Phase:
    """The peak of one phase: what roles hold meanwhile, and what comes and goes, by name."""

    name: str
    held: int
    passing: dict[str, int]

    @property
    def peak(self) -> int:
        return self.held + sum(self.passing.values())

    def with_libraries(self, size: int) -> "Phase":
        """With so many bytes that libraries take in all phases."""
        return replace(self, passing=self.passing | {"libraries": size})


@dataclass(frozen=True)
class Estimate:
    """Bytes of one process on its device."""

    roles: tuple[Role, ...]
    phases: tuple[Phase, ...]

    @property
    def peak(self) -> int:
        return max(phase.peak for phase in self.phases)


@dataclass(frozen=True)
class Lengths:
    """Tokens of the longest prompt and response."""

    prompt: int
    response: int

    @property
    def total(self) -> int:
        return self.prompt + self.response


@dataclass(frozen=True)
class _Case:
    """What everything below depends on."""

    config: Config
    world_size: int
    on_gpu: bool
    lengths: Lengths

    @property
    def rows(self) -> int:
        """Most sequences that are generated or scored at once."""
        r = self.config.rollout
        return min(r.generation_batch_size, r.experience_batch_size // self.world_size)

    def chunk(self, rows: int) -> int:
        """Response tokens that are projected at once."""
        return min(self.config.train.chunk_tokens, rows * self.lengths.response)


def estimate(config: Config, world_size: int, precision: str, on_gpu: bool, lengths: Lengths | None = None) -> Estimate:
    """Memory of one of `world_size` processes.

    Args:
        config: the run's settings.
        world_size: number of processes.
        precision: fp32, bf16 or fp16, as resolved.
        on_gpu: whether models work on a GPU: there the reference leaves it while others learn.
        lengths: by default the longest that the settings allow.
    """
    r = config.rollout
    lengths = lengths or Lengths(r.max_length - r.max_new_tokens, r.max_new_tokens)
    if not on_gpu:  # as actors and critics do
        attention.install()
    case = _Case(config, world_size, on_gpu, lengths)
    m, run = config.model, as_run(config.parallel, precision)
    lora, trusts = lora_settings(m), m.trust_remote_code
    make = partial(trained, config.parallel, world_size, precision)
    actor = Footprint(m.pretrain, run, trusts, lora)
    values = actor.hidden + 1 if m.share_trunk else 0
    roles = [make("actor", actor.parameters + values, actor.learned + values)]
    models = {"actor": actor}
    if has_critic(config):
        critic = actor if m.rm_pretrain in (None, m.pretrain) else Footprint(str(m.rm_pretrain), run, trusts, lora)
        learned = critic.backbone_learned + critic.hidden + 1
        shared = lora is not None and critic is actor and config.parallel.plugin != "fsdp"  # which cuts each role's
        roles.append(make("critic", learned if shared else critic.backbone_parameters + critic.hidden + 1, learned))
        models["critic"] = critic
    if config.algo.kl_coef and (lora is None or m.ref_model):
        reference = actor if m.ref_model is None else Footprint(m.ref_model, run, trusts)
        roles.append(Role("reference", reference.parameters, FLOAT32 * reference.parameters))
    if path := m.rm_checkpoint_path:
        base = m.rm_pretrain or m.pretrain
        reward = Footprint(base if is_adapter(path) else path, run, trusts)
        count = reward.backbone_parameters + reward.hidden
        roles.append(Role("reward model", count, FLOAT32 * count))
        models["reward model"] = reward
    phases = _phases(case, roles, models)
    if not on_gpu:  # prefill, scoring and learning differ in shape, and each new token from the last
        size = library_bytes(actor, precision, passes=3, new_tokens=lengths.response)
        phases = tuple(phase.with_libraries(size) for phase in phases)
    return Estimate(tuple(roles), phases)


def trained(parallel: ParallelConfig, world_size: int, precision: str, name: str, count: int, learned: int) -> Role:
    """What ColossalAI's plugins hold of a role with `count` weights of its own, of which `learned` learn."""
    plugin = parallel.plugin
    if plugin == "ddp":  # its buckets are a second copy of the gradients
        return Role(name, count, FLOAT32 * count, 2 * FLOAT32 * learned, ADAM * learned)
    working = FLOAT32 if precision == "fp32" else BFLOAT16
    share = learned // world_size
    if plugin == "fsdp":  # whole gradients add up over micro-batches before they are cut
        return Role(name, count, FLOAT32 * count // world_size, FLOAT32 * (learned + share), ADAM * share)
    if plugin == "3d":
        return _cut_up(parallel, world_size, working, name, count, learned)
    if plugin in GEMINI:
        return Role(name, count, working * count // world_size, working * share, (ADAM + FLOAT32) * share)
    masters = 0 if working == FLOAT32 and world_size == 1 else FLOAT32 * share
    gradients = working * (learned if plugin == "zero1" else share) + FLOAT32 * share
    offloaded = parallel.zero_cpu_offload or plugin == "zero2_cpu"
    return Role(name, count, working * count, gradients, 0 if offloaded else ADAM * share + masters)


def _cut_up(parallel: ParallelConfig, world_size: int, working: int, name: str, count: int, learned: int) -> Role:
    """Of a role under 3d. Norms, which are whole in each process of tensor parallelism, are too small to matter."""
    cut = parallel.tp * parallel.pp
    own = learned // cut
    kept = own // max(1, world_size // cut) if parallel.zero_stage else own  # ZeRO divides it among the others
    masters = FLOAT32 * kept if working < FLOAT32 else 0
    gradients = (working + (FLOAT32 if working < FLOAT32 else 0)) * own
    if _has_buckets(parallel):
        gradients *= 2
    return Role(
        name, count, working * count // cut, gradients, 0 if parallel.zero_cpu_offload else ADAM * kept + masters
    )


def _phases(case: _Case, roles: list[Role], models: dict[str, Footprint]) -> tuple[Phase, ...]:
    config = case.config
    frozen = sum(role.total for role in roles if role.name in FROZEN)
    away = case.on_gpu and config.train.offload_inference_models
    elsewhere = 0 if away else frozen
    at_rest = sum(role.parameters + role.optimizer for role in roles if role.name not in FROZEN)
    at_rest += sum(buckets(role, config.parallel) for role in roles)
    phases = [
        Phase(
            "rollout",
            at_rest + elsewhere,
            _of_rollout(case, models["actor"]) | _whole_actor(case, roles[0], models["actor"]),
        ),
        Phase("scoring", at_rest + frozen, _of_scoring(case, models) | _whole_roles(case, roles, models["actor"])),
    ]
    for role in roles:
        if role.name not in FROZEN:
            held = at_rest - buckets(role, config.parallel) + role.gradients + elsewhere
            phases.append(Phase(f"learning ({role.name})", held, _of_learning(case, role.name, models[role.name])))
    return tuple(phases)


def _whole_actor(case: _Case, actor: Role, model: Footprint) -> dict[str, int]:
    """Where weights are sharded, they are gathered to generate."""
    if case.config.parallel.plugin not in ("fsdp", "3d", *GEMINI):
        return {}
    return {"whole weights": actor.count * model.precision.computes.itemsize}


def _whole_roles(case: _Case, roles: list[Role], model: Footprint) -> dict[str, int]:
    """Under 3d actor and critic are gathered to score, too."""
    if case.config.parallel.plugin != "3d":
        return {}
    count = sum(role.count for role in roles if role.name not in FROZEN)
    return {"whole weights": count * model.precision.computes.itemsize}


def buckets(role: Role, parallel: ParallelConfig) -> int:
    """DDP's buckets stay when gradients are gone."""
    return role.gradients // 2 if _has_buckets(parallel) else 0


def _has_buckets(parallel: ParallelConfig) -> bool:
    return parallel.plugin == "ddp" or (parallel.plugin == "3d" and parallel.pp == 1 and not parallel.zero_stage)


def as_run(parallel: ParallelConfig, precision: str) -> Precision:
    """How models that learn run under the plugin."""
    if precision == "fp32":
        return Precision()
    short = torch.bfloat16 if precision == "bf16" else torch.float16
    return Precision(autocast=short) if parallel.plugin == "ddp" else Precision(weights=short)


def _of_rollout(case: _Case, model: Footprint) -> dict[str, int]:
    cache = case.rows * cache_columns(case.lengths) * model.cache_elements * model.precision.computes.itemsize
    moved = cache // model.layers  # a layer's old buffer, while it is copied into a longer one
    return {
        "KV cache": cache + moved,
        "activations": model.inference_bytes(case.rows, case.lengths.prompt),
        "logits": DRAWN * case.rows * model.vocabulary * FLOAT32,
    }


def cache_columns(lengths: Lengths) -> int:
    """Columns that the cache of the `hf` engine has in the end (`rlvr.rollout.cache`)."""
    columns = lengths.prompt + min(lengths.response, FIRST_COLUMNS)
    while columns < lengths.total:
        columns = max(columns + 1, int(columns * GROWTH))
    return columns


def _of_scoring(case: _Case, models: dict[str, Footprint]) -> dict[str, int]:
    actor, rows = models["actor"], case.rows
    return {
        "activations": max(model.inference_bytes(rows, case.lengths.total) for model in models.values()),
        "logits": LOGITS_FORWARD * at_work(case.chunk(rows) * actor.vocabulary, case.on_gpu) * FLOAT32,
    }


def has_critic(config: Config) -> bool:
    """Whether there is a critic with a model of its own."""
    return get_estimator(config.algo.estimator).critic and not config.model.share_trunk


def micro_batch_rows(config: Config, world_size: int, tokens: int) -> int:
    """Most rows of one forward and backward pass in one process, at this many tokens each."""
    t = config.train
    rows = max(1, t.train_batch_size * config.parallel.replica_size // world_size)
    return rows if t.micro_batch_tokens is None else max(1, min(rows, t.micro_batch_tokens // tokens))


def _of_learning(case: _Case, role: str, model: Footprint) -> dict[str, int]:
    tokens = case.lengths.total
    rows = micro_batch_rows(case.config, case.world_size, tokens)
    passing = of_decoder(model, rows, tokens, case.config.model.grad_checkpoint)
    return passing | (of_head(model, case.chunk(rows), case.on_gpu) if role == "actor" else {})


def of_decoder(model: Footprint, rows: int, tokens: int, recomputes: bool) -> dict[str, int]:
    """What a forward and backward pass of the decoder over [rows, tokens] needs besides weights and gradients."""
    saved = model.saved_bytes(rows, tokens)
    layer = saved // model.layers
    if recomputes:  # the inputs of all layers, and all of one
        saved = model.layers * rows * tokens * model.hidden * FLOAT32 + layer
    return {"activations": saved, "their gradients": layer // 2}


def of_head(model: Footprint, chunk: int, on_gpu: bool) -> dict[str, int]:
    """What the language-model head needs on the way back, `chunk` tokens being projected at once."""
    size, logits = model.precision.computes.itemsize, chunk * model.vocabulary
    passing = {"logits": logits * size + LOGITS_BACKWARD * at_work(logits, on_gpu) * FLOAT32}
    if model.learned == model.parameters:
        passing["gradient of the head"] = 2 * model.vocabulary * model.hidden * size
    return passing


def at_work(logits: int, on_gpu: bool) -> int:
    """Logits, of so many, that element-wise operations go over at once."""
    return logits if on_gpu else min(logits, CPU_BLOCK)
