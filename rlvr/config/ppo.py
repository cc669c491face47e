"""`Config`: every setting of a run of PPO and its relatives, in sections whose fields are flags. Every setting is spelled once:
here, in `rlvr.config.shared` (what supervised training has too) or in `rlvr.config.supervised`.

A field's name is its flag (`Config.train.lr` is `--lr`), so names are unique over the whole tree. The names follow
ColossalChat's `train_ppo.py` where it has the setting; the names of other toolkits are aliases of the same field.
Defaults are the reference's, which suit real language models; some models bring their own (`rlvr.config.models`).

To add a setting, write its field, the code that reads it, and a test that it has an effect:

    entropy_target: Annotated[float | None, alias("ent_target"), above(0), read_when(run.has_entropy_bonus)] = None
    "Entropy of a token, in nats, that the coefficient adapts to. Default: it is fixed."

The type, the default and the text beneath make the flag, its line in `--help`, its entry in the docs and its completion.
The notes beside the type (`rlvr.config.fields`) make the checks: values out of range are refused, and so is the flag in a
run that would not read it; such conditions have names in `rlvr.config.conditions`. Only a rule about several settings is
a function in `rlvr.validate`. Nothing else lists settings.

Left out on purpose: anything that can be read off the model, the plugin or the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from rewards.errors import UserError
from rlvr.config import conditions as run
from rlvr.config.catalog import catalog
from rlvr.config.fields import (
    FIXED,
    FREE,
    GROWS,
    Range,
    above,
    alias,
    at_least,
    between,
    finite,
    free_on_resume,
    read_when,
)
from rlvr.config.shared import (
    BatchSize,
    CheckpointConfig,
    OutputConfig,
    ParallelConfig,
    Share,
    StartConfig,
    StepConfig,
    TemplateConfig,
)
from rlvr.config.tree import build, forbid_unknown
from rlvr.errors import did_you_mean


@dataclass
class ModelConfig(StartConfig):
    """Models and where their weights come from."""

    rm_pretrain: Annotated[str | None, read_when(run.has_critic_or_adapter_base)] = None
    """Base of the critic (a folder or hub name), and of the reward model where its checkpoint is only a LoRA adapter.
    Default: the weights that the actor starts from; of an adapter, the base that it names."""
    ref_model: Annotated[str | None, alias("model_ref"), read_when(run.measures_divergence)] = None
    """Frozen model that the divergence is measured from (a folder or hub name). Default: the actor as it starts."""
    critic_checkpoint_path: Annotated[str | None, read_when(run.has_own_critic)] = None
    """Folder with critic weights to start from: `SAVE_PATH/critic/modeling` of an earlier run, its LoRA adapter
    (`SAVE_PATH/critic/adapter`), or a reward model, whose score the values then start from."""
    rm_checkpoint_path: Annotated[str | None, alias("rl_reward_model_path")] = None
    """Neural reward model that pays: the folder that `rlvr reward-model` wrote, or any sequence classifier of transformers with one
    label on a decoder (a folder or hub name)."""
    float32_head: Annotated[bool, alias("cast_lm_head_to_fp32")] = False
    """Multiply by the actor's head (and the reference's) in float32 where the model runs in bf16 or fp16, in sampling and learning
    alike: logprobs of engine and trainer are nearer to each other, for the time and memory of that one product."""
    share_trunk: bool = False
    """No critic of its own: a value head on the actor's trunk, one forward and backward pass for `policy loss + vf_coef x
    value loss`, one optimizer. Less memory and time; `vf_coef` 0.1 is usual then."""


@dataclass
class DataConfig:
    """Problems to train and evaluate on."""

    prompt_dataset: Annotated[list[str], alias("data_path"), read_when(run.reads_prompt_dataset)] = field(
        default_factory=lambda: ["builtin"]
    )
    """Generated problems (`builtin`, `arithmetic@LEVEL`, `word_problems@LEVEL`), JSONL, CSV or Parquet files, folders, or hub names
    (`openai/gsm8k`, `owner/name@config:split#revision`); several are joined."""
    prompt_csv_url: str | None = None
    """CSV file with a column `prompt`: a path, or an http, https or file address. In place of `prompt_dataset`; a column with
    the right answers is read if there is one."""
    question_column: Annotated[str | None, read_when(run.reads_problems_from_files)] = None
    """Column with the problem. Default: the first of the usual names that is there."""
    answer_column: Annotated[str | None, read_when(run.reads_problems_from_files)] = None
    """Column with the right answer. Default: the first of the usual names that is there."""
    max_samples: Annotated[int | None, at_least(1)] = None
    """Use at most this many problems."""
    curriculum: Literal["uniform", "target_success", "learning_progress", "zone"] = "uniform"
    """Which problems come next: all evenly, or those whose success is near a target, is changing, or is neither always nor never
    (docs/curriculum.md)."""
    curriculum_by: Annotated[str, read_when(run.has_curriculum)] = "dataset"
    """What is known together: the problems of each data set of `prompt_dataset`, of each value of a column (such as `kind`), or
    `problem`: each for itself."""
    curriculum_target: Annotated[float, between(0, 1), read_when(run.aims_at_success)] = 0.5
    """Share of right responses that is looked for."""
    curriculum_memory: Annotated[float, above(0), read_when(run.has_curriculum)] = 20.0
    """Collect steps after which what was seen counts half."""
    curriculum_even: Annotated[float, between(0, 1), read_when(run.has_curriculum)] = 0.2
    """Share of the problems that is drawn evenly, whatever is known."""
    overlong_prompts: Literal["drop", "truncate"] = "drop"
    """Prompts that leave no room for a response: drop (and count) them, or cut the question on its left."""
    eval_datasets: Annotated[list[str], alias("eval_dataset"), FREE] = field(default_factory=list)
    """Held-out problems, with metrics of their own for each of several data sets. Default: the test splits of generated
    problems when training on them alone, else none."""
    eval_share: Share = 0.0
    """Share of the problems that is held out, drawn by the seed; those with the same question stay together. Metrics are under
    `held_out` where there are other held-out problems too."""
    ptx_dataset: list[str] = field(default_factory=list)
    """JSONL, CSV or Parquet files for the language-modelling loss that keeps the actor close to supervised data: columns `prompt` and
    `response`, `question` and `answer`, or `text`. Weighed by `--ptx_coef`."""
    ptx_batch_size: Annotated[int, at_least(1), read_when(run.has_ptx_data)] = 4
    """Rows of the ptx data in each optimizer step, over all processes."""


@dataclass
class RewardConfig:
    """Reward functions and reward models."""

    reward_functions: Annotated[list[str], alias("rl_reward_fn")] = field(default_factory=list)
    """Names of registered functions, `package.module:function`, or `path/to/file.py:function`."""
    reward_weights: Annotated[list[float], read_when(run.has_weights_by_position, off=[])] = field(default_factory=list)
    """One weight for each function. Default: 1 each. A weight of 0 makes a function a mere metric."""
    rm_weight: Annotated[float, finite, read_when(run.has_reward_model, run.has_weights_by_position)] = 1.0
    """Weight of the neural reward model among the functions. A weight of 0 makes it a mere metric."""
    reward_normalisation: Annotated[
        Literal["off", "running", "fixed"],
        read_when(run.has_reward_model, off="off"),
    ] = "off"
    """Bring the neural reward model's scores to mean 0 and standard deviation 1: over all scores of the run so far, or by
    the statistics that are saved beside the model."""
    reward_plugins: list[str] = field(default_factory=list)
    """Modules or Python files to import, whose decorated functions can then be named."""
    reward_options: str | None = None
    """JSON: keyword arguments by function (or environment), such as `{"gsm8k_reward_fn": {"format_score": 0.2}}`."""
    reward_aggregation: Literal["sum", "normalise_then_sum", "sum_then_normalise"] = "sum"
    """How the scores of several functions are added up; normalised over the responses to one prompt."""
    reward_workers: Annotated[int | None, at_least(0)] = None
    """Processes (for each training process) that run the reward functions and can be killed; 0: the training process
    itself. Default: 0 if all functions are rlvr's own, which can't hang; else one less than there are processors."""
    reward_timeout_s: Annotated[float, above(0), read_when(run.runs_workers)] = 10.0
    """Longest that a function may take for one response in a worker process."""
    reward_memory_mb: Annotated[int, at_least(1), read_when(run.runs_workers)] = 2048
    """Most that a worker process may grow, in MiB (on Linux)."""
    max_reward_failures: Annotated[
        float, Range(lambda share: 0 <= share <= 1, "be a share from 0 to 1"), read_when(run.runs_workers)
    ] = 0.5
    """Share of a function's calls that may hang, crash or fail before training stops."""
    neural_reward_model: bool = True
    """Allow a neural reward model. `--no_neural_reward_model` means that rules alone pay, and refuses `--rm_checkpoint_path`; to name
    `--reward_functions` without the latter has the same effect."""
    missing_eos_penalty: Annotated[float, read_when(run.pays_cut_responses, off=0.0)] = 0.0
    """Taken off the score of a response that was cut by the length limit."""


@dataclass
class EnvConfig:
    """What answers the policy, and the way from the scores of a response to its reward."""

    environment: str | None = None
    """Class that answers the policy's turns, `path/to/file.py:Class` or `package.module:Class`, with the methods `reset(problem)` and
    `step(text)`, or one that comes along: `calculator`, `python`, `textarena`, `openenv`, `verifiers`. A response is a whole episode then, and
    its scores can be paid by the reward function `environment`."""
    max_turns: Annotated[int, at_least(1), read_when(run.has_turns)] = 8
    """Most turns of the policy in an episode; `max_new_tokens` counts the tokens of all, and the environment's between them."""
    discount_by: Annotated[Literal["token", "turn"], read_when(run.has_token_advantages, off="token")] = "token"
    """The steps that `gamma` and `lam` are taken at: every token that the policy chose, or the end of each of its turns."""
    rl_env_type: Literal["text_generation", "multi_objective", "preference_comparison"] | None = None
    """`text_generation`: the weighted total of its scores (what is done without this flag). `multi_objective`: named
    objectives with weights. `preference_comparison`: the share of the other responses to its prompt that it beats."""
    rl_env_config: Annotated[str | None, read_when(run.has_environment)] = None
    """JSON: settings of the environment. preference_comparison takes `judge` (name of the score that is compared; default:
    the total) and `tie_margin` (difference up to which responses tie; default 0); the others take none."""
    rl_multi_objective: bool = False
    """Weigh objectives by name, in whichever environment; `--rl_env_type multi_objective` comes to the same."""
    rl_reward_weights: Annotated[str | None, read_when(run.has_weights_by_name)] = None
    """JSON: weights by objective, such as `{"correctness": 1.0, "formatting": 0.1}`: reward functions (which need no
    `--reward_functions` then), `reward_model`, or components of either."""


@dataclass
class RolloutConfig:
    """How responses are sampled."""

    experience_batch_size: Annotated[int, at_least(1)] = 16
    """Responses collected in one collect step, over all processes."""
    num_generations: Annotated[int, alias("n_samples_per_prompt"), at_least(1)] = 1
    """Responses to each prompt."""
    max_length: int = 2048
    """Most tokens of prompt and response together."""
    max_new_tokens: Annotated[int, alias("max_seq_len", "rl_max_new_tokens", "response_length"), at_least(1)] = 256
    """Most tokens of a response."""
    temperature: Annotated[float, alias("rl_temperature"), above(0, "; PPO needs sampled responses")] = 1.0
    """Sampling temperature; it applies to old, new and reference logprobs alike."""
    top_k: Annotated[int, alias("rl_top_k"), at_least(0), read_when(run.samples_responses, off=0)] = 0
    """Sample among the k likeliest tokens; 0 = all. Logprobs stay those of the full distribution (a warning says so)."""
    top_p: Annotated[float, alias("rl_top_p"), between(0, 1), read_when(run.samples_responses, off=1.0)] = 1.0
    """Sample from the smallest set of tokens with this much probability; 1 = all. Same remark as for top_k."""
    engine: Literal["hf", "generate", "paged", "vllm", "replay"] = "hf"
    """`hf`: our decoding loop over the transformers model. `generate`: transformers' own `generate`. `paged`: its
    continuous batching. `vllm`: vLLM, in the training process or in `vllm_servers`. `replay`: responses come from the data's column
    `response`."""
    vllm_servers: Annotated[list[str], alias("vllm_server_base_url"), read_when(run.samples_with_vllm)] = field(
        default_factory=list
    )
    """URLs of servers that `rlvr vllm-serve` has started; any number of training processes asks them. They are given the weights through the
    run's folder, which they must see under the same name. None = vLLM in the training process."""
    generation_batch_size: Annotated[int, alias("local_rollout_forward_batch_size"), at_least(1)] = 256
    """Most sequences that one process generates or scores at once."""


@dataclass
class AlgoConfig:
    """PPO and its relatives."""

    preset: str | None = None
    """Recipe whose settings lie beneath your own flags and file: ppo, orz, vapo, grpo, drgrpo, dapo, rloo, reinforce_pp, gspo,
    cispo, sapo, top_entropy, clip_cov, kl_cov."""
    estimator: str = "gae"
    """Advantage estimator: gae (with a critic), grpo, dr_grpo, rloo, opo, optimal_token_baseline, reinforce_pp_baseline (several
    responses to each prompt), remax (a greedy response to each prompt), reinforce_pp."""
    gamma: Annotated[float, alias("rl_gamma"), between(0, 1), read_when(run.has_token_advantages, off=1.0)] = 1.0
    """Discount per token, or per turn (`discount_by`)."""
    lam: Annotated[float, alias("rl_gae_lambda"), between(0, 1), read_when(run.has_critic, run.has_fixed_lambda)] = 0.95
    """Lambda of generalised advantage estimation."""
    critic_lam: Annotated[
        float | None,
        between(0, 1),
        read_when(run.has_critic, off=None, strict=True),
    ] = None
    """Lambda of the critic's targets; 1 = plain returns (decoupled GAE, VAPO). Default: the same as `lam`."""
    lam_alpha: Annotated[
        float | None,
        above(0, ", or left out for a fixed --lam"),
        read_when(run.has_critic, off=None, strict=True),
    ] = None
    """Length-adaptive lambda (VAPO): 1 - 1 / (lam_alpha x steps of the response), in place of `lam`."""
    kl_coef: Annotated[float, alias("rl_kl_coef"), at_least(0)] = 0.1
    """Weight of the divergence from the initial model; 0 leaves the reference model out altogether."""
    kl_estimator: Annotated[Literal["k1", "k2", "k3", "k3_weighted"] | None, read_when(run.measures_divergence)] = None
    """Estimator of the divergence per token (Schulman 2020). Default: the one whose gradient is right in its place: k1 in the
    reward, k3_weighted (k3 times the probability ratio) in the loss, where k2 and k3 can be chosen too."""
    kl_in: Annotated[Literal["reward", "loss"], read_when(run.measures_divergence)] = "reward"
    """Place of the divergence: a penalty in each token's reward, or a term of the loss. Never both."""
    kl_target: Annotated[float | None, above(0, " (nats for a response), or left out for a fixed coefficient")] = None
    """Divergence of a response, in nats, that the coefficient adapts to, beginning with `kl_coef`. Default: it is fixed."""
    kl_horizon: Annotated[int, at_least(1), read_when(run.adapts_kl_coef)] = 10_000
    """Responses after which a constant error of 20 % of `kl_target` has moved the coefficient by 20 %."""
    reference_reset_interval: Annotated[int, at_least(0), read_when(run.copies_reference, off=0, strict=True)] = 0
    """Episodes after which the model that the divergence is measured from becomes the actor as it is then, and the actor's optimizer
    begins anew (ProRL); 0 = it stays the actor as it started."""
    reference_mix: Annotated[
        float,
        alias("ref_model_mixup_alpha"),
        Range(lambda share: 0 < share <= 1, "be above 0 and at most 1"),
        read_when(run.resets_reference, off=1.0),
    ] = 1.0
    """Share of the actor in that model after each such interval; below 1 it is a moving average, and the optimizer goes on."""
    policy_loss: Literal["ppo", "cispo", "sapo"] = "ppo"
    """`ppo`: the ratio is clipped. `cispo`: the clipped ratio is a weight, and every token keeps its gradient (MiniMax-M1).
    `sapo`: a smooth gate takes the place of the clip (Soft Adaptive Policy Optimization)."""
    eps_clip: Annotated[
        float, alias("rl_clip_range", "cliprange"), at_least(0, infinite=True), read_when(run.clips_ratio)
    ] = 0.2
    """Clip range of the probability ratio."""
    eps_clip_high: Annotated[
        float | None, at_least(0, ", or left out", infinite=True), read_when(run.clips_ratio, off=None)
    ] = None
    """Upper clip range where it differs from the lower (clip-higher, DAPO)."""
    tau_pos: Annotated[float, alias("sapo_temperature_pos"), above(0), read_when(run.gates_ratio)] = 1.0
    """Steepness of `sapo`'s gate where the advantage is positive."""
    tau_neg: Annotated[float, alias("sapo_temperature_neg"), above(0), read_when(run.gates_ratio)] = 1.05
    """Steepness of `sapo`'s gate elsewhere."""
    dual_clip: Annotated[float | None, above(1, ", or left out"), read_when(run.has_ppo_loss, off=None)] = None
    """Bound on the ratio for negative advantages (dual clip, Ye et al. 2020); greater than 1."""
    ratio: Literal["token", "sequence"] = "token"
    """Probability ratio that is clipped: each token's, or the whole response's per token (GSPO)."""
    old_logprobs: Literal["recompute", "sampled"] = "recompute"
    """Logprobs of the sampling policy: from a forward pass like those of learning, so that the first ratio is exactly 1,
    or those that the engine sampled with: a forward pass less, and ratios that are off by rounding."""
    mismatch_correction: Literal["none", "truncate", "mask"] | None = None
    """Weigh the policy loss by trainer's probability / engine's probability, and bring what is beyond the bounds to them, or leave it
    out. Default: truncate where the two differ by design (`--engine vllm`, `--max_staleness`), else none."""
    mismatch_level: Annotated[
        Literal["token", "sequence", "geometric", "arithmetic"] | None, read_when(run.corrects_mismatch)
    ] = None
    """Ratio that is compared with the bounds: each token's, the whole response's, or the mean over its tokens, geometric or
    arithmetic (to mask by only). Default: token; sequence with `--ratio sequence`."""
    mismatch_low: Annotated[float | None, at_least(0, ", or left out"), read_when(run.corrects_mismatch)] = None
    """Lower bound of that ratio. Default: by level 0.5, 1/3, 0.99, 0.9 to mask; 0 to truncate."""
    mismatch_high: Annotated[float | None, above(0, ", or left out"), read_when(run.corrects_mismatch)] = None
    """Upper bound of that ratio. Default: by level 2, 3, 1.01, 1.1."""
    off_policy_mask_threshold: Annotated[float | None, above(0, " (nats a token), or left out")] = None
    """Leave out responses with a negative advantage once the policy has gone so far from the one that sampled them: mean of log
    sampler's - log policy's probability (DeepSeek-V3.2). Default: none."""
    value_clip: Annotated[
        float | None, alias("rl_value_clip_range", "cliprange_value"), read_when(run.has_critic, off=None)
    ] = 0.2
    """Clip range of the value's change; None = off."""
    vf_coef: Annotated[float, alias("rl_value_loss_coef"), at_least(0), read_when(run.has_critic, off=0)] = 1.0
    """Weight of the value loss."""
    ptx_coef: Annotated[float, at_least(0)] = 0.0
    """Weight of the language-modelling loss: `policy loss + ptx_coef * ptx loss`."""
    entropy_coef: Annotated[float, at_least(0)] = 0.0
    """Weight of the entropy bonus."""
    entropy_control: Literal["off", "top_entropy", "clip_cov", "kl_cov"] = "off"
    """Tokens that the policy loss treats otherwise, so that entropy lasts. `top_entropy`: only the tokens of highest entropy are
    learned from. `clip_cov`: some tokens whose logprob and advantage are both high are left out. `kl_cov`: the tokens where both are
    highest are held back by a penalty."""
    entropy_share: Annotated[
        float | None,
        alias("top_entropy_quantile"),
        Range(lambda share: 0 < share <= 1, "be above 0 and at most 1"),
        read_when(run.controls_entropy),
    ] = None
    """Share of the tokens of a collect step that are chosen so. Default: the papers', 0.2 for `top_entropy`, 0.0002 for `clip_cov`,
    0.002 for `kl_cov`."""
    clip_cov_low: Annotated[float, finite, alias("clip_cov_lb"), read_when(run.clips_covariances)] = 1.0
    """`clip_cov` draws among tokens whose covariance (of logprob and advantage, each less its mean) is above this ..."""
    clip_cov_high: Annotated[float, finite, alias("clip_cov_ub"), read_when(run.clips_covariances)] = 5.0
    """... and below this."""
    kl_cov_coef: Annotated[float, at_least(0), read_when(run.penalises_covariances)] = 1.0
    """Weight of `kl_cov`'s penalty."""
    positive_lm_coef: Annotated[float, at_least(0)] = 0.0
    """Weight of the language-modelling loss on right responses (VAPO)."""
    positive_threshold: Annotated[float | None, read_when(run.asks_what_is_right)] = None
    """A response is right if its score is above this. Default: if a reward function's verdict says so."""
    critic_warmup_steps: Annotated[int, at_least(0), read_when(run.has_own_critic, off=0, strict=True)] = 0
    """First optimizer steps of the run, in which only the critic learns."""
    value_pretraining_episodes: Annotated[int, at_least(0), read_when(run.has_own_critic, off=0, strict=True)] = 0
    """Episodes before `num_episodes`, in which the critic learns the plain returns of the initial policy (VAPO)."""
    dynamic_sampling: bool = False
    """Drop prompts whose responses are all paid the same, and sample further prompts in their place (DAPO)."""
    max_refills: Annotated[int, at_least(1), read_when(run.samples_dynamically)] = 8
    """Batches of further prompts that dynamic sampling draws at most in one collect step."""
    whiten_rewards: Annotated[bool, read_when(run.has_token_advantages, off=False)] = False
    """Bring the tokens' rewards to variance 1 over all response tokens of a collect step; their mean stays."""
    whiten_advantages: bool | None = None
    """Bring advantages to mean 0 and variance 1 over all response tokens of all processes. Default: what the estimator is
    meant for: yes for gae and reinforce_pp (both), no for the others."""
    loss_reduction: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    """Mean over all tokens of the optimizer step, over sequences, or the sum over a constant number of tokens."""
    truncated: Literal["terminal", "bootstrap", "mask"] = "terminal"
    """A response cut by the length limit ends the episode, is continued by the critic's value (in place of its score), or is not
    trained on."""


@dataclass
class TrainConfig(StepConfig):
    """The loop. Batch sizes count samples over all processes, so that their number changes nothing but speed."""

    train_batch_size: Annotated[BatchSize, alias("rl_mini_batch_size")] = 16
    num_episodes: Annotated[int, at_least(1), GROWS] = 1
    """Iterations of collecting and learning. More of them with `--resume` make a finished run longer."""
    num_collect_steps: Annotated[int, alias("max_timesteps"), at_least(1)] = 2
    """Collect steps in each episode."""
    num_update_steps: Annotated[int, alias("num_ppo_epochs", "rl_num_ppo_epochs"), at_least(1)] = 5
    """Passes over the collected experience in each episode."""
    critic_lr: Annotated[float, at_least(0), read_when(run.has_own_critic)] = 9e-6
    """Peak learning rate of the critic."""
    critic_steps: Annotated[int, at_least(1), read_when(run.has_own_critic, off=1)] = 1
    """Optimizer steps of the critic in each of the actor's, each on a part of its samples (Open-Reasoner-Zero: 12). A critic
    begins with a head that knows nothing, and may need more steps than a policy can take without going astray."""
    chunk_tokens: Annotated[int, alias("rl_chunk_size"), at_least(1)] = 1024
    """Response tokens that are projected to the vocabulary at once: fewer take less memory."""
    empty_device_cache: Annotated[
        bool,
        alias("rl_optimize_device_cache"),
        read_when(run.shares_device, off=True),
    ] = False
    """Give cached device memory back between collecting and learning."""
    buffer_limit: Annotated[int, at_least(0)] = 0
    """Most samples kept by the buffer in one process (the newest stay); 0 = no limit."""
    buffer_cpu_offload: Annotated[bool, read_when(run.keeps_own_buffer, off=True)] = True
    """Keep experience in main memory rather than on the device."""
    sample_buffer: bool = False
    """Draw mini-batches at random with replacement instead of walking through the buffer."""
    offload_inference_models: Annotated[
        bool, read_when(run.has_frozen_models), read_when(run.shares_device, off=True)
    ] = True
    """Keep the reference model and the reward model off the device while they don't infer."""
    disable_loss_mask: bool = False
    """Refused: a loss over padding is wrong."""


@free_on_resume
@dataclass
class EvalConfig:
    """Held-out accuracy."""

    eval_interval: Annotated[int, at_least(0), read_when(run.has_held_out_problems)] = 0
    """Episodes between evaluations; 0 = before and after training only."""
    eval_samples: Annotated[int, at_least(1), read_when(run.has_held_out_problems)] = 256
    """Most held-out problems of each data set."""
    eval_generations: Annotated[
        int, at_least(1), read_when(run.has_held_out_problems), read_when(run.samples_responses, off=1)
    ] = 1
    """Responses to each held-out problem, for pass@k and maj@k; more than one needs a temperature."""
    eval_temperature: Annotated[float, at_least(0), read_when(run.has_held_out_problems, run.samples_responses)] = 0.0
    """Sampling temperature of evaluations; 0 = greedy."""


@dataclass
class LogConfig(OutputConfig):
    """Logs, trackers and the progress view."""

    num_sample_generations: Annotated[int, at_least(0)] = 10
    """How often in a run sample completions are shown; 0 = never."""
    journal: Annotated[int, at_least(0)] = 0
    """Newest episodes of which all that the update learned from is kept, under SAVE_PATH/journal: `rlvr replay` computes them
    again. 0 = none."""


@free_on_resume
@dataclass
class RayConfig:
    """Roles as actor groups on a Ray cluster."""

    ray: bool = False
    """Run each role (actor, critic, reference, rewards) in processes of its own on a Ray cluster; one is started on this
    machine where `--ray_address` names none. Needs the package ray."""
    ray_address: Annotated[str | None, read_when(run.on_ray)] = None
    """Ray cluster to join: `HOST:PORT` of its head, or `auto` for the one that runs on this machine."""
    num_actor_nodes: Annotated[int, at_least(1), read_when(run.on_ray)] = 1
    """Nodes of the actor."""
    num_critic_nodes: Annotated[int, at_least(1), read_when(run.on_ray, run.has_own_critic)] = 1
    """Nodes of the critic."""
    num_initial_nodes: Annotated[int, at_least(1), read_when(run.on_ray, run.has_reference_role)] = 1
    """Nodes of the reference model."""
    num_reward_nodes: Annotated[int, at_least(1), read_when(run.on_ray, run.has_reward_role)] = 1
    """Nodes of the neural reward model."""
    num_gpus_per_node: Annotated[int | None, at_least(0, ", which means CPUs"), read_when(run.on_ray)] = None
    """Processes of each role on each of its nodes, each with a GPU; 0: they run on CPUs. Default: 1, and 0 on a cluster
    without GPUs."""
    num_gpus_per_process: Annotated[
        float, Range(lambda share: 0 < share <= 1, "be above 0 and at most 1"), read_when(run.on_ray)
    ] = 1.0
    """Share of a GPU that each process takes: 0.25 lets four roles have one GPU between them."""
    num_cpus_per_node: Annotated[int, at_least(1), read_when(run.on_ray)] = 1
    """Processes of each role on each of its nodes, where they run on CPUs."""
    min_reward_workers: Annotated[int, at_least(1), read_when(run.on_ray, run.has_workers_of_their_own)] = 1
    """Processes that run the reward functions, wherever in the cluster a CPU is free; there are always so many."""
    max_reward_workers: Annotated[int, at_least(1), read_when(run.on_ray, run.has_workers_of_their_own)] = 4
    """Most of those processes, started while responses wait to be scored, and ended when there is nothing to do."""
    num_rollout_workers: Annotated[int, at_least(0), read_when(run.on_ray, run.samples_responses, off=0)] = 0
    """Processes that generate, each with a copy of the actor and an engine, wherever in the cluster there is room; 0 = the actor's
    own processes do. One that dies or hangs (`--dist_timeout`) is replaced, and nothing else changes."""
    max_staleness: Annotated[
        int,
        at_least(0, ", where 0 = no episode is generated ahead"),
        read_when(run.on_ray, run.has_rollout_workers, off=0, strict=True),
        FIXED,
    ] = 0
    """Episodes that are generated ahead of the one that is learned from: the responses of episode i are those of the weights after
    i less so many episodes. Learning and generation then work at the same time; `--mismatch_correction` corrects for it."""
    partial_rollout_tokens: Annotated[
        int,
        at_least(0, ", where 0 = a response is sampled by one version of the weights"),
        read_when(run.on_ray, run.generates_ahead, off=0, strict=True),
        FIXED,
    ] = 0
    """Tokens of a response that is generated ahead after which it goes on with the weights of the next episode, up to those of the
    episode that learns from it: those sample the rest. What is left of long responses goes on together, in full requests. 0 = one version
    of the weights samples a whole response."""


@forbid_unknown
@dataclass
class Config:
    """All settings of a run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    template: TemplateConfig = field(default_factory=TemplateConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    algo: AlgoConfig = field(default_factory=AlgoConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    ckpt: CheckpointConfig = field(default_factory=CheckpointConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    log: LogConfig = field(default_factory=LogConfig)


def from_dict(tree: Mapping[str, Any]) -> Config:
    """Build a `Config` from nested dictionaries. Absent settings keep their defaults, unknown ones are an error."""
    return build(Config, tree)


def by_section(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Settings by the names of their flags alone, as in `train(pretrain="tiny", lr=1e-5)`, as section -> name -> value.

    Names are unique over the whole tree; aliases of flags are names too.

    Raises:
        UserError: a name that is no setting, or two names of one.
    """
    places = {name: f.place for part in catalog(Config) for f in part.flags for name in (f.name, *f.aliases)}
    tree: dict[str, dict[str, Any]] = {}
    for given, value in settings.items():
        if given not in places:
            raise UserError(f"there is no setting {given!r}.{did_you_mean(given, places)}")
        section, name = places[given]
        if name in tree.setdefault(section, {}):
            raise UserError(f"the setting {name!r} is given twice, once as {given!r}; give it once")
        tree[section][name] = value
    return tree
