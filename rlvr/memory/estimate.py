"""The memory that a run will take on a device: by role, and at the peak of each phase. `rlvr train --dry_run` prints it.

It counts the tensors of one process at the longest sequences that the settings allow, in two layers: `Footprint` measures
a model's forward pass without its weights, and this file adds what plugins, optimizers and phases hold around it. How far
off the sum is, docs/memory.md says.

Left out on purpose: what the interpreter, CUDA and the allocator take for themselves; experience, which is small beside
the rest; and what libraries keep, such as the code that oneDNN compiles for each shape of a bfloat16 product (a model of
that cache was here: it cost more to understand than it explained).
"""

from dataclasses import dataclass, replace
from functools import partial

from rlvr.boost.frozen import Precision
from rlvr.boost.plugins import GEMINI, SHARDING, precision_of
from rlvr.config import Config, ParallelConfig, RewardTrainingConfig, SFTConfig
from rlvr.core.advantages import get_estimator
from rlvr.core.logprobs import CPU_BLOCK, chunk_size
from rlvr.memory.footprint import BFLOAT16, FLOAT32, Footprint, footprint_of
from rlvr.models import attention
from rlvr.models.actor import CHUNK_TOKENS
from rlvr.models.lora_config import is_adapter
from rlvr.rollout.decode import FIRST_COLUMNS
from rlvr.rollout.kv_cache import GROWTH
from rlvr.validate.lora import lora_settings

DRAWN = 3  # times the logits that drawing a token holds: the logits, their float32 copy, the noise
LOGITS_FORWARD, LOGITS_BACKWARD = 3, 4  # times the logits that `chunked_logprobs` works on at once
ADAM = 2 * FLOAT32
FROZEN = ("reference", "reward model")


@dataclass(frozen=True)
class RoleMemory:
    """Bytes that a model holds on the device, in one process.

    Attributes:
        name: actor, critic, reference or reward model.
        count: weights of its own, but for those in 4 bits.
        parameters: weights in the type that they run in, and those in 4 bits.
        gradients: with what the plugin needs to exchange them.
        optimizer: moments, and float32 weights where the model's own are shorter.
        packed: weights in 4 bits.
    """

    name: str
    count: int
    parameters: int
    gradients: int = 0
    optimizer: int = 0
    packed: int = 0

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer

    def over(self, base: Footprint) -> "RoleMemory":
        """With the base's weights in 4 bits, which no plugin cuts or casts."""
        return replace(self, parameters=self.parameters + base.packed_bytes, packed=base.packed)


@dataclass(frozen=True)
class Phase:
    """Bytes at the peak of one phase: what roles hold meanwhile, and what comes and goes, by name."""

    name: str
    held: int
    passing: dict[str, int]

    @property
    def peak(self) -> int:
        return self.held + sum(self.passing.values())


@dataclass(frozen=True)
class Estimate:
    """Bytes of one process on its device."""

    roles: tuple[RoleMemory, ...]
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
    """The run that is estimated."""

    config: Config
    world_size: int
    on_gpu: bool
    lengths: Lengths

    @property
    def rows(self) -> int:
        """Most sequences that are generated or scored at once."""
        r = self.config.rollout
        return min(r.generation_batch_size, r.experience_batch_size // self.world_size)

    @property
    def responses_of_a_pass(self) -> int:
        """Most response tokens of a pass that learns. Rows that begin alike fill it with little else."""
        t, response = self.config.train, self.lengths.response
        most = micro_batch_rows(self.config, self.world_size, 1) * response
        return most if t.micro_batch_tokens is None else min(most, max(t.micro_batch_tokens, response))

    def chunk(self, tokens: int) -> int:
        """Of so many response tokens, those whose logits exist at once."""
        return chunk_size(tokens, self.config.train.chunk_tokens)


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
    m, run = config.model, precision_of(config.parallel, precision)
    lora, trusts = lora_settings(m), m.trust_remote_code
    make = partial(role_memory, config.parallel, world_size, precision)
    learner = partial(footprint_of, precision=run, trust_remote_code=trusts, lora=lora, load_in_4bit=m.load_in_4bit)
    actor = learner(m.pretrain)
    values = actor.hidden + 1 if m.share_trunk else 0
    roles = [make("actor", actor.parameters + values, actor.learned + values).over(actor)]
    models = {"actor": actor}
    if _has_critic(config):
        critic = actor if m.rm_pretrain in (None, m.pretrain) else learner(str(m.rm_pretrain))
        learned = critic.backbone_learned + critic.hidden + 1
        shared = lora is not None and critic is actor and config.parallel.plugin != "fsdp"  # which cuts each role's
        role = make("critic", learned if shared else critic.backbone_parameters + critic.hidden + 1, learned)
        roles.append(role if critic is actor else role.over(critic))
        models["critic"] = critic
    if config.algo.kl_coef and (lora is None or m.ref_model):
        reference = actor if m.ref_model is None else footprint_of(m.ref_model, run, trusts)
        roles.append(_frozen_memory(config.parallel, world_size, run, "reference", reference.parameters))
    if path := m.rm_checkpoint_path:
        base = m.rm_pretrain or m.pretrain
        reward = footprint_of(base if is_adapter(path) else path, run, trusts)
        count = reward.backbone_parameters + reward.hidden
        roles.append(_frozen_memory(config.parallel, world_size, run, "reward model", count))
        models["reward model"] = reward
    return Estimate(tuple(roles), _phases(case, roles, models))


def _has_critic(config: Config) -> bool:
    """True if there is a critic with a model of its own."""
    return get_estimator(config.algo.estimator).critic and not config.model.share_trunk


# The roles: weights, gradients and optimizer state under each plugin.


def role_memory(
    parallel: ParallelConfig, world_size: int, precision: str, name: str, count: int, learned: int
) -> RoleMemory:
    """Bytes that the plugin holds of a role with `count` weights of its own, of which `learned` learn."""
    plugin = parallel.plugin
    if plugin == "ddp":  # its buckets are a second copy of the gradients
        copies = 2 if _has_buckets(parallel, world_size) else 1
        return RoleMemory(name, count, FLOAT32 * count, copies * FLOAT32 * learned, ADAM * learned)
    working = FLOAT32 if precision == "fp32" else BFLOAT16
    share = learned // world_size
    if plugin == "fsdp":  # whole gradients add up over micro-batches before they are cut
        return RoleMemory(name, count, FLOAT32 * count // world_size, FLOAT32 * (learned + share), ADAM * share)
    if plugin == "3d":
        return _hybrid_memory(parallel, world_size, working, name, count, learned)
    if plugin in GEMINI:
        return RoleMemory(name, count, working * count // world_size, working * share, (ADAM + FLOAT32) * share)
    masters = 0 if working == FLOAT32 and world_size == 1 else FLOAT32 * share
    gradients = FLOAT32 * share
    if plugin == "zero1":  # whole in each process, and where they are shorter than float32, with their sum
        gradients += (working if working == FLOAT32 else working + FLOAT32) * learned
    elif working == FLOAT32:
        gradients += working * share
    offloaded = parallel.zero_cpu_offload or plugin == "zero2_cpu"
    return RoleMemory(name, count, working * count, gradients, 0 if offloaded else ADAM * share + masters)


def _frozen_memory(parallel: ParallelConfig, world_size: int, run: Precision, name: str, count: int) -> RoleMemory:
    """Bytes of a model that only infers."""
    share = world_size if parallel.plugin in SHARDING else 1
    return RoleMemory(name, count, run.weights.itemsize * count // share)


def _hybrid_memory(
    parallel: ParallelConfig, world_size: int, working: int, name: str, count: int, learned: int
) -> RoleMemory:
    """`role_memory` under 3d. Norms, which are whole in each process of tensor parallelism, are too small to matter."""
    cut = parallel.tp * parallel.pp
    own = learned // cut
    kept = own // max(1, world_size // cut) if parallel.zero_stage else own  # ZeRO divides it among the replicas
    masters = FLOAT32 * kept if working < FLOAT32 else 0
    gradients = (working + (FLOAT32 if working < FLOAT32 else 0)) * own
    if _has_buckets(parallel, world_size):
        gradients *= 2
    return RoleMemory(
        name, count, working * count // cut, gradients, 0 if parallel.zero_cpu_offload else ADAM * kept + masters
    )


def _bucket_bytes(role: RoleMemory, parallel: ParallelConfig, world_size: int) -> int:
    """Bytes of DDP's buckets, which stay when the gradients are gone."""
    return role.gradients // 2 if _has_buckets(parallel, world_size) else 0


def _has_buckets(parallel: ParallelConfig, world_size: int) -> bool:
    if parallel.plugin == "ddp":
        return world_size > 1
    return parallel.plugin == "3d" and parallel.pp == 1 and not parallel.zero_stage


# The phases: what comes and goes while one role or another works.


def _phases(case: _Case, roles: list[RoleMemory], models: dict[str, Footprint]) -> tuple[Phase, ...]:
    config = case.config
    frozen = sum(role.total for role in roles if role.name in FROZEN)
    away = case.on_gpu and config.train.offload_inference_models
    elsewhere = 0 if away else frozen
    at_rest = sum(role.parameters + role.optimizer for role in roles if role.name not in FROZEN)
    at_rest += sum(_bucket_bytes(role, config.parallel, case.world_size) for role in roles)
    phases = [
        Phase("rollout", at_rest + elsewhere, _rollout(case, roles[0], models["actor"])),
        Phase("scoring", at_rest + frozen, _scoring(case, roles, models)),
    ]
    for role in roles:
        if role.name not in FROZEN:
            passing = _learning(case, role.name, models[role.name])
            gradients = _gradients_beside(role, passing, case.config, case.world_size)
            held = at_rest - _bucket_bytes(role, config.parallel, case.world_size) + gradients + elsewhere
            phases.append(Phase(f"learning ({role.name})", held, passing))
    return tuple(phases)


def _rollout(case: _Case, role: RoleMemory, model: Footprint) -> dict[str, int]:
    cache = case.rows * cache_columns(case.lengths) * model.cache_elements * model.precision.computes.itemsize
    moved = cache // model.layers  # a layer's old buffer, while it is copied into a longer one
    passing = {
        "KV cache": cache + moved,
        "activations": model.inference_bytes(case.rows, case.lengths.prompt),
        "logits": DRAWN * case.rows * model.vocabulary * FLOAT32,
    }
    if case.config.parallel.plugin in SHARDING:  # which shard weights, and gather them to generate
        passing["whole weights"] = role.count * model.precision.computes.itemsize
    return passing


def cache_columns(lengths: Lengths) -> int:
    """Columns that the `hf` engine's `PreallocatedCache` has in the end."""
    columns = lengths.prompt + min(lengths.response, FIRST_COLUMNS)
    while columns < lengths.total:
        columns = max(columns + 1, int(columns * GROWTH))
    return columns


def _scoring(case: _Case, roles: list[RoleMemory], models: dict[str, Footprint]) -> dict[str, int]:
    actor, rows = models["actor"], case.rows
    logits = case.chunk(rows * case.lengths.response) * actor.vocabulary
    passing = {
        "activations": max(model.inference_bytes(rows, case.lengths.total) for model in models.values()),
        "logits": LOGITS_FORWARD * _logits_at_once(logits, case.on_gpu) * FLOAT32,
    }
    if case.config.parallel.plugin == "3d":  # which gathers actor and critic to score, too
        count = sum(role.count for role in roles if role.name not in FROZEN)
        passing["whole weights"] = count * actor.precision.computes.itemsize
    return passing


def _learning(case: _Case, role: str, model: Footprint) -> dict[str, int]:
    tokens = case.lengths.total
    rows = micro_batch_rows(case.config, case.world_size, tokens)
    passing = _decoder_learning(model, rows, tokens, case.config.model.grad_checkpoint)
    if role == "actor":
        passing |= _head_learning(model, case.chunk(case.responses_of_a_pass), case.on_gpu)
    return passing


def _gradients_beside(role: RoleMemory, passing: dict[str, int], config: "Config | AnyConfig", world_size: int) -> int:
    """Bytes of gradients that exist at the peak of a pass. In the first pass of an optimizer step they come as activations go,
    and where it is the only one, they are never there at once; plugins that cut gradients are taken to hold all."""
    t, buckets = config.train, _bucket_bytes(role, config.parallel, world_size)
    items = -(-t.train_batch_size * t.accumulation_steps * config.parallel.replica_size // world_size)
    rows = (
        micro_batch_rows(config, world_size, row_tokens(config))
        if isinstance(config, Config)
        else rows_of_a_pass(config, world_size)
    )
    if config.parallel.plugin != "ddp" or items > rows:
        return role.gradients
    return buckets + max(0, role.gradients - buckets - passing["activations"])


def micro_batch_rows(config: Config, world_size: int, tokens: int) -> int:
    """Most rows of one forward and backward pass in one process, at this many tokens each."""
    t = config.train
    rows = max(1, t.train_batch_size * config.parallel.replica_size // world_size)
    return rows if t.micro_batch_tokens is None else max(1, min(rows, t.micro_batch_tokens // tokens))


def _decoder_learning(model: Footprint, rows: int, tokens: int, recomputes: bool) -> dict[str, int]:
    """Bytes that a forward and backward pass of the decoder over [rows, tokens] needs besides weights and gradients."""
    saved = model.saved_bytes(rows, tokens)
    layer = saved // model.layers
    if recomputes:  # the inputs of all layers, and all of one
        saved = model.layers * rows * tokens * model.hidden * FLOAT32 + layer
    passing = {"activations": saved, "their gradients": layer // 2}
    return passing | ({"a layer out of 4 bits": model.unpacked_bytes} if model.unpacked_bytes else {})


def _head_learning(model: Footprint, chunk: int, on_gpu: bool) -> dict[str, int]:
    """Bytes that the language-model head needs in the backward pass, `chunk` tokens at a time."""
    size, logits = model.precision.computes.itemsize, chunk * model.vocabulary
    passing = {"logits": logits * size + LOGITS_BACKWARD * _logits_at_once(logits, on_gpu) * FLOAT32}
    if model.learned == model.parameters:
        passing["gradient of the head"] = 2 * model.vocabulary * model.hidden * size
    return passing


def _logits_at_once(logits: int, on_gpu: bool) -> int:
    """Logits that `chunked_logprobs` works on element by element at once: on a CPU, a block that fits the cache."""
    return logits if on_gpu else min(logits, CPU_BLOCK)


# Supervised fine-tuning, and training a reward model: one role and two phases.


AnyConfig = SFTConfig | RewardTrainingConfig


def rows_of_a_pass(config: AnyConfig, world_size: int) -> int:
    """Most rows (pairs, for a reward model) of one forward and backward pass in one process."""
    t = config.train
    rows = max(1, t.train_batch_size // world_size)
    return rows if t.micro_batch_tokens is None else max(1, min(rows, t.micro_batch_tokens // row_tokens(config)))


def row_tokens(config: Config | AnyConfig) -> int:
    """Most tokens of a row, which is never cut: a response with its prompt, an example, or a pair."""
    if isinstance(config, Config):
        return config.rollout.max_length
    return config.data.max_length * _sequences_of_a_row(config)


def _sequences_of_a_row(config: AnyConfig) -> int:
    """A pair holds two."""
    return 1 if isinstance(config, SFTConfig) else 2


def estimate_supervised(config: AnyConfig, world_size: int, precision: str, on_gpu: bool) -> Estimate:
    """Memory of one of `world_size` processes, for rows of `--max_length`.

    Args:
        config: the run's settings.
        world_size: number of processes.
        precision: fp32, bf16 or fp16, as resolved.
        on_gpu: whether the model works on a GPU.
    """
    if not on_gpu:  # as the roles do
        attention.install()
    m, is_sft = config.model, isinstance(config, SFTConfig)
    lora = lora_settings(m, continues=is_sft)
    model = footprint_of(
        m.pretrain, precision_of(config.parallel, precision), m.trust_remote_code, lora, m.load_in_4bit
    )
    head = model.hidden  # of a reward model
    count, learned = (
        (model.parameters, model.learned)
        if is_sft
        else (model.backbone_parameters + head, model.backbone_learned + head)
    )
    name = "actor" if is_sft else "reward model"
    role = role_memory(config.parallel, world_size, precision, name, count, learned).over(model)
    rows, tokens = rows_of_a_pass(config, world_size) * _sequences_of_a_row(config), config.data.max_length
    chunk = chunk_size(rows * tokens, CHUNK_TOKENS)
    evaluating = {"activations": model.inference_bytes(rows, tokens)}
    learning = _decoder_learning(model, rows, tokens, m.grad_checkpoint)
    if is_sft:
        evaluating["logits"] = LOGITS_FORWARD * _logits_at_once(chunk * model.vocabulary, on_gpu) * FLOAT32
        learning |= _head_learning(model, chunk, on_gpu)
    models = role.parameters + role.optimizer
    phases = (
        Phase("evaluating", models + _bucket_bytes(role, config.parallel, world_size), evaluating),
        Phase("learning", models + _gradients_beside(role, learning, config, world_size), learning),
    )
    return Estimate((role,), phases)
