"""The plugin `3d`: ColossalAI's HybridParallelPlugin for a role of ours, whose transformers model it cuts up inside.

The plugin, and the sharding policy that it chooses. What it refuses to cut up: `rlvr.boost.hybrid_check`. Which process ends
up with which part of the weights: `rlvr.boost.hybrid_layout`.


Tensor parallelism cuts matrices among processes; pipeline parallelism lays the layers out in stages; sequence parallelism
divides the tokens of a sequence. Source: Shoeybi et al., "Megatron-LM", arXiv:1909.08053; Narayanan et al., "PipeDream-2BW",
arXiv:2006.09503 (1F1B); Jacobs et al., "DeepSpeed Ulysses", arXiv:2309.14509 (all_to_all).
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from colossalai.booster.plugin import HybridParallelPlugin
from colossalai.shardformer.layer._operation import gather_forward_split_backward
from colossalai.shardformer.policies.auto_policy import get_autopolicy
from torch import Tensor, nn
from torch.optim import Optimizer

from rlvr.boost.hybrid_check import OTHERWISE, check_role
from rlvr.boost.hybrid_layout import HybridLayout, RaggedSchedule
from rlvr.boost.layout import MetaCopy
from rlvr.config import ParallelConfig
from rlvr.errors import UserError
from rlvr.models.backbone import model_inputs


class HybridRolePlugin(HybridParallelPlugin):
    """HybridParallelPlugin for one role.

    Args:
        parallel: sizes and modes.
        precision: "fp32", "bf16" or "fp16".
        device: of this process.
        grad_clip: norm to which gradients are clipped, 0 = off.
    """

    def __init__(self, parallel: ParallelConfig, precision: str, device: torch.device, grad_clip: float) -> None:
        sequence = parallel.enable_sequence_parallelism
        super().__init__(
            tp_size=parallel.tp,
            pp_size=parallel.pp,
            sp_size=parallel.sp,
            precision=precision,
            zero_stage=parallel.zero_stage,
            cpu_offload=parallel.zero_cpu_offload,
            enable_sequence_parallelism=sequence,
            sequence_parallelism_mode=parallel.sp_mode if sequence else None,
            num_microbatches=parallel.pp if parallel.pp > 1 else None,  # asked for; the schedule is replaced
            max_norm=grad_clip or math.inf,  # not 0, with which the norm is not computed
            broadcast_buffers=False,
            overlap_communication=device.type != "cpu",
            make_vocab_size_divisible_by=1,
            initial_scale=2**16,
        )
        if parallel.pp > 1:
            self.scheduler = RaggedSchedule(self.stage_manager)

    def configure(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        criterion: Callable[..., Any] | None = None,
        dataloader: Any = None,
        lr_scheduler: Any = None,
    ) -> tuple[Any, ...]:
        """Cut up an `Actor` or a `Critic`.

        Raises:
            UserError: it can't be cut up so.
        """
        role: Any = model
        check_role(role, self.tp_size, self.pp_size, self.sp_size)
        meta_copy = MetaCopy(role)
        self.custom_policy = make_policy(role.decoder, role.pretrained)
        role.keep_padding()
        if self.tp_size > 1 and role.pretrained is not role.decoder:
            words = role.pretrained.get_output_embeddings().weight.size(0)
            role.gather_head = partial(_gather_head, self.tp_group, words)
        if self.enable_sequence_parallelism:
            # ColossalAI's attention for it needs the mask that transformers makes for its eager attention.
            role.pretrained.config._attn_implementation = "eager"
        is_last = self.stage_manager is None or self.stage_manager.is_last_stage()
        stage = Stage(role, is_last, self.sp_group.size() if self.enable_sequence_parallelism else 1)
        boosted, *rest = super().configure(stage, optimizer, criterion, dataloader, lr_scheduler)
        boosted.meta_copy_holder = (meta_copy,)  # in a tuple, or the copy would count as a part of the model
        return boosted, *rest

    def make_layout(self, booster: Any, model: Any, optimizer: Any) -> HybridLayout:
        """The layout of a role that this plugin has boosted (`rlvr.boost.boosted.layout_of`)."""
        return HybridLayout(booster, model, optimizer, model.meta_copy_holder[0])


class Stage(nn.Module):
    """A process's part of a role: all of it, or a stage of its pipeline.

    Args:
        role: an `Actor` or a `Critic`, which ColossalAI cuts up inside.
        is_last: true where the role's head is.
        multiple: that the number of columns of a batch is padded to, for sequence parallelism; 1 without.
    """

    def __init__(self, role: Any, is_last: bool, multiple: int) -> None:
        super().__init__()
        self.role, self.is_last, self.multiple = role, is_last, multiple
        if not is_last and hasattr(role, "value_head"):
            role.value_head = None

    def forward(self, batch: Any, *options: Any, hidden_states: Tensor | None = None) -> Any:
        """The role's output; before the last stage, a dictionary with what the next one takes as `hidden_states`."""
        inputs = model_inputs(self.role.decoder, batch)
        if self.multiple > 1:
            missing = -batch.input_ids.size(1) % self.multiple
            inputs = {name: nn.functional.pad(x, (0, missing)) for name, x in inputs.items()}
            # Without a mask from outside, the one that transformers makes has a column too many for ColossalAI.
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        if hidden_states is not None:
            inputs["hidden_states"] = hidden_states
        out = self.role.decoder(**inputs, use_cache=False)
        return self.role.read(out.last_hidden_state, batch, *options) if self.is_last else out


def _gather_head(group: dist.ProcessGroup, words: int, part: Tensor) -> Tensor:
    """The head's rows from all processes of tensor parallelism, without those that pad the vocabulary.

    Each of them computes the whole loss from it, so each has the whole gradient of its own rows.
    """
    return gather_forward_split_backward(part, 0, group)[:words]


def make_policy(decoder: nn.Module, model: Any) -> Any:
    """ColossalAI's sharding policy of a transformers model that is part of ours.

    Args:
        decoder: whose forward pass is called stage by stage.
        model: the causal language model around it, or the decoder again where there is no head of its vocabulary.

    Raises:
        UserError: ColossalAI has no policy for its architecture.
    """
    try:
        policy, inner = get_autopolicy(model), get_autopolicy(decoder)
    except NotImplementedError:
        raise UserError(
            f"--plugin 3d: ColossalAI has no sharding policy for {type(model).__name__}; {OTHERWISE}"
        ) from None
    _aim_at(policy, model)
    if model is not decoder:
        _add_forward_of(policy, inner, decoder)
    return policy


def _aim_at(policy: Any, model: nn.Module) -> None:
    """Have the policy shard this model, whatever wrapper it is handed."""
    set_model = policy.set_model
    policy.set_model = lambda wrapper: set_model(model)


def _add_forward_of(policy: Any, inner: Any, decoder: nn.Module) -> None:
    """Give the decoder the stage-wise forward pass too, that ColossalAI gives the language model around it only."""
    plan = policy.module_policy

    def module_policy() -> dict[Any, Any]:
        planned = plan()
        if policy.pipeline_stage_manager is not None:
            inner.set_model(decoder)
            inner.set_shard_config(policy.shard_config)
            inner.preprocess()
            of_decoder = inner.module_policy()
            # Policies name classes, or their names where transformers has moved some of them.
            key = type(decoder) if type(decoder) in of_decoder else type(decoder).__name__
            policy.append_or_create_method_replacement(of_decoder[key].method_replacement, planned, key)
        return planned

    policy.module_policy = module_policy
