"""The examples of the five reference documents, word by word. Tests run them with other names of models and packages."""

import shlex

TRAIN_PPO_NEURAL = r"""
torchrun --nproc_per_node=4 train_ppo.py \
    --pretrain meta-llama/Llama-2-7b \
    --rm_pretrain meta-llama/Llama-2-7b \
    --prompt_dataset ./prompts \
    --conversation_template_config ./template.json \
    --plugin zero2 \
    --rm_checkpoint_path ./rm_checkpoint \
    --num_episodes 10 \
    --save_path ./ppo_checkpoint
"""
TRAIN_PPO_RULES = r"""
torchrun --nproc_per_node=4 train_ppo.py \
    --pretrain meta-llama/Llama-2-7b \
    --rm_pretrain meta-llama/Llama-2-7b \
    --prompt_dataset ./math_prompts \
    --conversation_template_config ./template.json \
    --no_neural_reward_model \
    --reward_functions gsm8k_reward_fn \
    --plugin zero2
"""
COATI_TRAINER = """
from coati.trainer import PPOTrainer

trainer = PPOTrainer(
    actor_booster=actor_booster,
    critic_booster=critic_booster,
    actor=actor,
    critic=critic,
    reward_model=reward_model,
    initial_model=ref_model,
    actor_optim=actor_optim,
    critic_optim=critic_optim,
    actor_lr_scheduler=actor_lr_scheduler,
    critic_lr_scheduler=critic_lr_scheduler,
    tokenizer=tokenizer,
    kl_coef=0.1,
    ptx_coef=0.0,
    train_batch_size=16,
    accumulation_steps=8,
    save_dir="./checkpoints",
    coordinator=coordinator,
)

trainer.fit(
    num_episodes=10,
    num_collect_steps=2,
    num_update_steps=5,
    prompt_dataloader=train_prompt_dataloader,
    pretrain_dataloader=train_pretrain_dataloader,
    log_dir="./logs",
    use_wandb=False,
)
"""
TRAIN_ON_RAY = r"""
python train_prompts_on_ray.py \
    --prompt_csv_url "path/to/prompts.csv" \
    --model gpt2 \
    --pretrain gpt2 \
    --strategy colossalai_zero2 \
    --num_episodes 10 \
    --num_actor_nodes 2 \
    --num_gpus_per_node 4
"""
AITRAINING_QUICK_START = r"""
aitraining llm --train \
--model google/gemma-3-270m \
--data-path ./prompts.jsonl \
--project-name ppo-model \
--trainer ppo \
--rl-reward-model-path ./reward-model
"""
AITRAINING_PYTHON = """
from autotrain.trainers.clm.params import LLMTrainingParams
from autotrain.project import AutoTrainProject
params = LLMTrainingParams(
model="google/gemma-3-270m",
data_path="./prompts.jsonl",
project_name="ppo-model",
trainer="ppo",
rl_reward_model_path="./reward-model",
# PPO hyperparameters
rl_gamma=0.99,
rl_gae_lambda=0.95,
rl_kl_coef=0.1,
rl_clip_range=0.2,
rl_num_ppo_epochs=4,
epochs=1,
batch_size=4,
lr=1e-5,
)
project = AutoTrainProject(params=params, backend="local", process=True)
project.create()
"""
AITRAINING_PROMPTS = """
{"text": "What is machine learning?"}
{"text": "Explain quantum computing."}
{"text": "Write a haiku about coding."}
"""
AITRAINING_OBJECTIVES = """
params = LLMTrainingParams(
...
trainer="ppo",
rl_multi_objective=True,
rl_env_type="multi_objective",
rl_reward_weights='{"correctness": 1.0, "formatting": 0.1}',
)
"""
AITRAINING_REWARD_MODEL = r"""
aitraining llm --train \
--model google/gemma-3-270m \
--data-path ./preferences.jsonl \
--project-name reward-model \
--trainer reward \
--prompt-text-column prompt \
--text-column chosen \
--rejected-text-column rejected
"""
AITRAINING_PPO = r"""
aitraining llm --train \
--model google/gemma-3-270m \
--data-path ./prompts.jsonl \
--project-name ppo-model \
--trainer ppo \
--rl-reward-model-path ./reward-model \
--rl-kl-coef 0.1 \
--rl-clip-range 0.2
"""
TRL_TRAINER = """
from trl.experimental.ppo import PPOTrainer, PPOConfig
# Assuming trainer is already initialized
trainer = PPOTrainer(
args=config,
processing_class=tokenizer,
model=policy,
ref_model=ref_policy,
reward_model=reward_model,
value_model=value_model,
train_dataset=train_dataset,
eval_dataset=eval_dataset,
)
# Run the full PPO training loop
trainer.train()
# Save the trained policy
trainer.save_model("ppo-trained-policy")
"""
TRL_FUNCTIONS = """
def generate(lm_backbone, queries, pad_token_id, generation_config):
def batch_generation(model, queries, batch_size, pad_token_id, generation_config):
def forward(model, query_responses, pad_token_id):
def truncate_response(stop_token_id, pad_token_id, responses):
"""
TRL_LAUNCH = r"""
accelerate launch --config_file deepspeed_zero3.yaml \
examples/scripts/ppo/ppo.py \
--num_ppo_epochs 1 \
--num_mini_batches 1 \
--per_device_train_batch_size 1 \
--gradient_accumulation_steps 16 \
--total_episodes 10000 \
--local_rollout_forward_batch_size 1
"""


def flags(command: str, program: str, **instead: str) -> list[str]:
    """The words after the program's name, with some of them replaced."""
    words = shlex.split(command.replace("\\\n", " "))
    return [instead.get(word, word) for word in words[words.index(program) + 1 :]]
