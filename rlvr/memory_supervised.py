"""What supervised fine-tuning or training a reward model takes of a device's memory; see `rlvr.memory`."""

from rlvr.checks.lora import lora_settings
from rlvr.config import RewardTrainingConfig, SFTConfig
from rlvr.memory import LOGITS_FORWARD, Estimate, Phase, as_run, at_work, buckets, of_decoder, of_head, trained
from rlvr.memory_products import library_bytes
from rlvr.models import attention
from rlvr.models.actor import CHUNK_TOKENS
from rlvr.models.footprint import FLOAT32, Footprint

AnyConfig = SFTConfig | RewardTrainingConfig


def rows_of_a_pass(config: AnyConfig, world_size: int) -> int:
    """Most rows (pairs, for a reward model) of one forward and backward pass in one process."""
    t = config.train
    rows = max(1, t.train_batch_size // world_size)
    longest = config.data.max_length * sequences_of_a_row(config)
    return rows if t.micro_batch_tokens is None else max(1, min(rows, t.micro_batch_tokens // longest))


def sequences_of_a_row(config: AnyConfig) -> int:
    """A pair holds two."""
    return 1 if isinstance(config, SFTConfig) else 2


def estimate(config: AnyConfig, world_size: int, precision: str, on_gpu: bool) -> Estimate:
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
    model = Footprint(m.pretrain, as_run(config.parallel, precision), m.trust_remote_code, lora)
    head = model.hidden  # of a reward model
    count, learned = (
        (model.parameters, model.learned)
        if is_sft
        else (model.backbone_parameters + head, model.backbone_learned + head)
    )
    name = "actor" if is_sft else "reward model"
    role = trained(config.parallel, world_size, precision, name, count, learned)
    rows, tokens = rows_of_a_pass(config, world_size) * sequences_of_a_row(config), config.data.max_length
    chunk = min(CHUNK_TOKENS, rows * tokens)
    evaluating = {"activations": model.inference_bytes(rows, tokens)}
    learning = of_decoder(model, rows, tokens, m.grad_checkpoint)
    if is_sft:
        evaluating["logits"] = LOGITS_FORWARD * at_work(chunk * model.vocabulary, on_gpu) * FLOAT32
        learning |= of_head(model, chunk, on_gpu)
    at_rest = role.parameters + role.optimizer + buckets(role, config.parallel)
    phases = (Phase("evaluating", at_rest, evaluating), Phase("learning", role.total, learning))
    if not on_gpu:
        size = library_bytes(model, precision, passes=1)
        phases = (phases[0].with_libraries(size), phases[1].with_libraries(size))
    return Estimate((role,), phases)
