"""The checklist of the reference documents, row by row: which test shows it.

Rows are numbered as in the checklist: S0 is ColossalChat's `train_ppo.py`, S1 its `PPOTrainer`, S2 its
`train_prompts_on_ray.py`, S3 aitraining's PPO page, S4 TRL's `PPOTrainer.train`. A row is shown by tests that fail when it is not so: the value of a flag is looked up where it is
read, a formula is compared with an oracle. What is refused is shown by the test of its message.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import seed_examples

HERE = Path(__file__).parent

FLAG = "test_seed_flags.py::test_a_flag_reaches_where_it_is_read"
WEIGHTS = "test_seed_flags.py::test_a_flag_names_the_weights_of_a_role"
REFUSED = "test_seed_flags.py::test_what_can_not_be_honoured_is_refused_with_a_reason"
LOGGED = "test_seed_flags.py::test_logs_go_where_they_are_asked_to"
ARGUMENT = "test_seed_flags.py::test_an_argument_of_the_trainer_reaches_where_it_is_read"
WRONGLY = "test_seed_flags.py::test_arguments_that_would_train_wrongly_are_refused"
NEURAL_RUN = "examples/test_train_ppo_script.py::test_ppo_training_with_neural_reward_model"
RULE_RUN = "examples/test_train_ppo_script.py::test_ppo_training_with_rule_based_rewards"
COATI = "examples/test_coati_trainer.py::test_constructor_and_fit"
PARAMETER = "compat/test_llm.py::test_each_parameter_becomes_a_setting"
RANGE = "compat/test_llm.py::test_names_defaults_and_ranges_are_the_references"
PIPELINE = "examples/test_aitraining.py::test_full_pipeline_reward_model_then_ppo"
TRL = "examples/test_trl_trainer.py::test_basic_training"
TRL_RUN = "compat/test_trl.py::test_it_trains_logs_trls_metrics_and_saves_a_policy_that_transformers_loads"
TRL_READ = "compat/test_trl.py::test_settings_arrive_where_they_are_read"
RAY_NAMES = "on_ray/test_names.py::test_every_class_of_the_script_has_its_place"
RAY_RUN = "on_ray/test_runs.py::test_one_process_a_role_gives_the_local_trainers_losses_and_weights"
RAY_SCRIPT = "on_ray/test_runs.py::test_the_scripts_families_and_strategies"
RAY_FLAGS = "on_ray/test_settings.py::test_the_flags_of_the_script"
METRICS = "test_seed_metrics.py::test_metrics_have_the_references_names"

SHOWN: dict[str, tuple[str, ...]] = {
    # S0.a: what the script does
    "S0.1": ("examples/test_train_ppo_script.py::test_train_takes_the_arguments_of_a_parser", RULE_RUN),
    "S0.2": (NEURAL_RUN, WEIGHTS),
    "S0.3": (COATI, "trainer/test_ppo.py::test_plugins_agree_with_ddp"),
    "S0.4": ("trainer/test_learning.py::test_a22_the_schedule_counts_optimizer_steps", FLAG),
    "S0.5": (FLAG,),
    "S0.6": (FLAG, "trainer/test_ptx.py::test_the_loss_and_its_gradient_are_those_of_transformers"),
    "S0.7": ("test_seed_flags.py::test_one_trainer_takes_every_kind_of_reward",),
    "S0.8": (
        "scorers/test_neural.py::test_the_trainer_makes_the_same_experience_from_a_rule_and_a_model_that_agree",
        NEURAL_RUN,
        RULE_RUN,
    ),
    "S0.9": ("prompting/test_conversation.py::test_a33_own_tags_are_honoured",),
    "S0.10": ("trainer/test_lora_run.py::test_the_whole_command_and_its_resumption",),
    "S0.11": (FLAG, REFUSED, "distributed/test_equivalence.py::test_a13_a20_a24_two_processes_give_the_losses_of_one"),
    "S0.12": (WEIGHTS, NEURAL_RUN),
    "S0.13": ("test_seed_flags.py::test_stops_come_from_the_template", "prompting/test_conversation.py::test_stop_ids_by_number_and_by_name"),
    "S0.14": (REFUSED,),  # the critic's policy under 3D, which is not available
    "S0.15": (COATI, RULE_RUN),
    "S0.16": ("prompting/test_lint.py::test_every_shipped_template_passes",),
    "S0.17": ("rewards/functions/test_correctness.py::test_they_are_found_by_name",),
    # S0.b: its flags
    **dict.fromkeys(("S0.20", "S0.21", "S0.39", "S0.40", "S0.41"), (WEIGHTS,)),
    **dict.fromkeys(("S0.22", "S0.23", "S0.25", "S0.27", "S0.28", "S0.29", "S0.30", "S0.31", "S0.32", "S0.33"), (FLAG,)),
    **dict.fromkeys(("S0.34", "S0.35", "S0.36", "S0.37", "S0.38"), (FLAG,)),
    "S0.24": (FLAG, REFUSED, "test_seed_flags.py::test_zero_on_the_cpu_keeps_the_optimizers_state_there"),
    "S0.26": (RULE_RUN, REFUSED),
    "S0.42": ("trainer/test_lora_run.py::test_one_base_for_actor_critic_and_reference",),
    **dict.fromkeys(("S0.43", "S0.44", "S0.45"), (REFUSED,)),
    "S0.46": (NEURAL_RUN, LOGGED),
    # flags of the real script
    **dict.fromkeys(("--ptx_batch_size", "--grad_clip", "--weight_decay", "--warmup_steps", "--accumulation_steps"), (FLAG,)),
    **dict.fromkeys(("--save_interval", "--grad_checkpoint", "--mixed_precision"), (FLAG,)),
    **dict.fromkeys(("--zero_stage", "--sp_mode", "--enable_sequence_parallelism", "--disable_loss_mask"), (REFUSED,)),
    "--zero_cpu_offload": ("test_seed_flags.py::test_zero_on_the_cpu_keeps_the_optimizers_state_there", REFUSED),
    "--tokenizer_dir": ("test_seed_flags.py::test_flags_that_name_what_is_loaded",),
    "--use_flash_attn": ("test_seed_flags.py::test_flags_that_name_what_is_loaded",),
    **dict.fromkeys(("--log_dir", "--use_wandb"), (LOGGED,)),
    # S1: ColossalChat's trainer
    **dict.fromkeys(("S1.1", "S1.2", "S1.3", "S1.4", "S1.5", "S1.6", "S1.7", "S1.8", "S1.9", "S1.10", "S1.11", "S1.12"), (COATI,)),
    **dict.fromkeys(("S1.13", "S1.14", "S1.15", "S1.16", "S1.17", "S1.18", "S1.19", "S1.20"), (ARGUMENT,)),
    "S1.21": (ARGUMENT, "trainer/test_ppo.py::test_sampled_mini_batches_draw_with_replacement"),
    "S1.22": (ARGUMENT,),
    "S1.23": ("test_seed_flags.py::test_the_initial_model_is_offloaded_where_there_is_a_device_to_offload_it_from",),
    "S1.24": (WRONGLY,),
    "S1.25": (ARGUMENT, "trainer/test_learning.py::test_a20_the_step_does_not_depend_on_how_it_is_cut_into_micro_batches"),
    "S1.26": (ARGUMENT, "trainer/test_resume.py::test_checkpoints_come_at_the_interval_and_old_ones_go"),
    "S1.27": (COATI, "trainer/test_ppo.py::test_save_dir_none_and_save_interval_zero_save_nothing"),
    "S1.28": (WRONGLY,),
    "S1.29": (COATI, "test_seed_flags.py::test_the_coordinator_says_who_writes"),
    "S1.30": ("test_seed_flags.py::test_every_hook_is_called",),
    "S1.31": (ARGUMENT,),
    "S1.32": (COATI,),
    "S1.33": (COATI, LOGGED),
    "S1.34": ("trainer/test_ppo.py::test_a02_a09_a10_a11_a12_a15_experience_equals_the_oracle",),
    "S1.35": ("trainer/test_learning.py::test_a01_a18_a19_losses_equal_the_oracle",),
    "S1.36": (
        "trainer/test_ppo.py::test_a21_a22_optimizer_steps_are_epochs_times_mini_batches",
        "distributed/test_equivalence.py::test_a13_a20_a24_two_processes_give_the_losses_of_one",
    ),
    "S1.37": ("trainer/test_resume.py::test_a30_a_stopped_run_goes_on_as_if_nothing_had_happened",),
    "S1.38": (COATI, LOGGED),
    "S1.39": (COATI,),
    # S2: ColossalAI's script on Ray
    **dict.fromkeys(("S2.1", "S2.2"), (RAY_NAMES, RAY_RUN, "on_ray/test_names.py::test_what_the_scripts_classes_do_otherwise_is_told")),
    **dict.fromkeys(("S2.3", "S2.4", "S2.5", "S2.6", "S2.7", "S2.8", "S2.9"), (RAY_NAMES, RAY_RUN)),
    **dict.fromkeys(("S2.10", "S2.11", "S2.12", "S2.13", "S2.14"), (RAY_NAMES, RAY_RUN)),
    "S2.15": (RAY_SCRIPT, "on_ray/test_settings.py::test_its_defaults"),
    "S2.16": (
        "on_ray/test_runs.py::test_two_processes_a_role_give_the_losses_of_one",
        "on_ray/test_settings.py::test_roles_get_gpus_where_there_are_any",
        "on_ray/test_settings.py::test_more_than_the_cluster_has",
    ),
    "S2.17": (RAY_RUN, "on_ray/test_asynchronous.py::test_each_sample_has_the_version_that_its_place_says"),
    "S2.18": (RAY_SCRIPT, RAY_FLAGS),
    "S2.19": (RAY_SCRIPT,),
    "S2.20": ("on_ray/test_runs.py::test_a_killed_reward_worker_is_replaced_and_its_work_done_again", RAY_RUN),
    **dict.fromkeys(("--prompt_csv_url",), (RAY_FLAGS, RAY_SCRIPT, "data/test_prompt_csv.py::test_a_path_or_an_address")),
    **dict.fromkeys(
        (
            "--strategy", "--model", "--pretrain", "--save_path", "--num_episodes", "--max_timesteps", "--update_timesteps",
            "--experience_batch_size", "--train_batch_size", "--num_actor_nodes", "--num_critic_nodes", "--num_initial_nodes",
            "--num_reward_nodes", "--num_gpus_per_node",
        ),
        (RAY_FLAGS, "on_ray/test_settings.py::test_its_defaults"),
    ),
    # S3.a: aitraining's surface
    "S3.1": (PIPELINE, "compat/test_llm.py::test_flags_with_hyphens_and_underscores"),
    "S3.2": ("examples/test_aitraining.py::test_python_api", "compat/test_llm.py::test_mistakes"),
    "S3.3": ("compat/test_llm.py::test_a_project_trains_on_a_copy_of_the_data", "compat/test_llm.py::test_projects_that_can_not_be"),
    "S3.4": ("compat/test_llm.py::test_mistakes", "compat/test_llm.py::test_reward_functions"),
    "S3.5": (PIPELINE,),
    "S3.6": (PIPELINE, "data/test_problems.py::test_prompts_alone"),
    "S3.7": ("examples/test_aitraining.py::test_environment_types", "scorers/test_environments.py::test_preferences_raise_what_is_compared"),
    "S3.8": ("examples/test_aitraining.py::test_multi_objective_rewards", "examples/test_aitraining.py::test_a_reward_model_that_no_objective_pays_is_told"),
    "S3.9": (PIPELINE, "compat/test_llm.py::test_supervised_trainers"),
    "S3.10": ("test_seed_metrics.py::test_the_divergence_can_be_watched",),
    # S3.b: its parameters
    **dict.fromkeys(("S3.20", "S3.26", "S3.27", "S3.28", "S3.29", "S3.30"), (PARAMETER, RANGE)),
    **dict.fromkeys(("S3.21", "S3.22", "S3.23", "S3.24", "S3.25"), (PARAMETER, RANGE)),
    **dict.fromkeys(("S3.31", "S3.32", "S3.33", "S3.34", "S3.36", "S3.37", "S3.38", "S3.39", "S3.40"), (PARAMETER, RANGE)),
    "S3.35": (PARAMETER, "compat/test_llm.py::test_reward_functions"),
    # S4.a: TRL's loop and functions
    "S4.1": (TRL_RUN, "compat/test_trl.py::test_batches_are_counted_as_trl_counts_them"),
    "S4.2": ("trainer/test_phases.py::test_the_cache_is_emptied_after_collecting_and_after_learning",),
    "S4.3": ("compat/test_trl.py::test_samples_of_the_evaluation_set",),
    "S4.4": ("compat/test_trl_functions.py::test_generate_does_not_look_at_padding", "compat/test_trl_functions.py::test_generate_gives_what_was_drawn_from"),
    "S4.5": ("compat/test_trl_functions.py::test_batch_generation_is_generation_in_parts", "examples/test_trl_trainer.py::test_functions_are_called_as_documented"),
    "S4.6": ("compat/test_trl_functions.py::test_forward_gives_each_row_what_it_gives_alone", "compat/test_trl_functions.py::test_forward_is_trls_where_trls_is_right"),
    "S4.7": ("core/test_masks.py::test_a5_a6_truncation_pads_after_the_first_stop_whatever_the_pad_is",),
    "S4.8": (TRL, TRL_READ),
    "S4.9": ("examples/test_trl_trainer.py::test_sharded_launch",),
    # S4.b: tensors and formulas
    "S4.20": ("compat/test_trl.py::test_sampling_is_from_the_whole_distribution",),
    "S4.21": ("compat/test_trl_functions.py::test_generate_does_not_look_at_padding",),
    "S4.22": ("compat/test_trl_functions.py::test_generate_stops_at_the_models_end_token_and_pads",),
    "S4.23": ("models/test_actor_critic.py::test_a01_a02_a06_a07_a08_logprobs_equal_the_unpadded_model_whatever_the_padding",),
    "S4.24": ("compat/test_trl.py::test_reward_model_scores_the_last_token_of_what_was_sampled",),
    "S4.25": ("compat/test_trl.py::test_value_model_gives_the_values_of_its_head",),
    "S4.26": ("core/test_kl.py::test_a14_equals_the_oracle", "core/test_kl.py::test_a14_k1_and_k3_are_unbiased"),
    "S4.27": ("core/test_kl.py::test_a14_equals_the_oracle", "core/test_kl.py::test_a14_k1_and_k3_are_unbiased"),
    "S4.28": ("core/test_rewards.py::test_a10_rewards_equal_the_oracle",),
    "S4.29": ("core/test_rewards.py::test_a10_score_is_added_once_on_the_last_response_token",),
    "S4.30": ("core/test_advantages.py::test_a11_a12_gae_equals_quadratic_reference",),
    "S4.31": ("core/test_advantages.py::test_a11_a12_gae_equals_quadratic_reference",),
    "S4.32": ("core/test_advantages.py::test_a13_returns_are_advantages_plus_values_unwhitened",),
    "S4.33": ("core/test_reductions.py::test_a13_whitening_equals_the_oracle", "core/test_reductions.py::test_a13_whitening_is_global_over_ranks"),
    "S4.34": ("core/test_losses.py::test_a16_on_the_first_mini_batch_ratio_is_1_and_approxkl_0", "core/test_losses.py::test_a18_policy_loss_and_gradient_equal_the_oracle"),
    "S4.35": ("core/test_losses.py::test_a18_policy_loss_and_gradient_equal_the_oracle",),
    "S4.36": ("core/test_losses.py::test_a19_value_loss_and_gradient_equal_the_oracle",),
    "S4.37": ("core/test_whole_step.py::test_a10_a11_a13_a18_a19_a20_step_equals_the_oracle",),
    # S4.c: metrics
    "S4.c": (METRICS, "core/test_whole_step.py::test_a31_metrics_equal_the_oracle", "trainer/test_ppo.py::test_a31_metrics_are_means_over_response_tokens_only"),
}  # fmt: skip


def test_the_examples_stand_in_the_documents() -> None:
    folder = HERE.parents[1] / "shared" / "seeds"
    if not folder.is_dir():
        pytest.skip("the reference documents do not lie beside the project")

    def words(text: str) -> str:
        return " ".join(re.sub(r"^# ", "", text, flags=re.MULTILINE).split())

    whole = words("\n".join(path.read_text() for path in sorted(folder.iterdir())))
    for name, text in vars(seed_examples).items():
        if name.isupper() and name != "TRL_FUNCTIONS":  # which leaves out docstrings
            assert words(text) in whole, name


def numbers(document: int, *ranges: tuple[int, int]) -> set[str]:
    return {f"S{document}.{i}" for first, last in ranges for i in range(first, last + 1)}


ROWS = (
    numbers(0, (1, 17), (20, 46)) | numbers(1, (1, 39)) | numbers(2, (1, 20)) | numbers(3, (1, 10), (20, 40)) | numbers(4, (1, 9), (20, 37)) | {"S4.c"}
)  # fmt: skip
SCRIPT_FLAGS = (
    "--tokenizer_dir --grad_clip --weight_decay --warmup_steps --zero_stage --zero_cpu_offload --sp_mode "
    "--enable_sequence_parallelism --ptx_batch_size --mixed_precision --accumulation_steps --save_interval "
    "--disable_loss_mask --log_dir --use_wandb --grad_checkpoint --use_flash_attn"
).split()

RAY_SCRIPT_FLAGS = (
    "--prompt_csv_url --strategy --model --pretrain --save_path --num_episodes --max_timesteps --update_timesteps "
    "--experience_batch_size --train_batch_size --num_actor_nodes --num_critic_nodes --num_initial_nodes --num_reward_nodes "
    "--num_gpus_per_node"
).split()


def test_every_row_is_shown() -> None:
    assert set(SHOWN) == ROWS | set(SCRIPT_FLAGS) | set(RAY_SCRIPT_FLAGS)


@pytest.mark.parametrize("row", SHOWN)
def test_the_tests_that_show_a_row_are_there(row: str) -> None:
    for place in SHOWN[row]:
        file, _, name = place.partition("::")
        assert name in _names_in(HERE / file), place


@cache
def _names_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("table", "place"), [("FLAGS", FLAG), ("WEIGHTS", WEIGHTS), ("REFUSED", REFUSED), ("ARGUMENTS", ARGUMENT)]
)
def test_rows_that_a_table_shows_are_in_it(table: str, place: str) -> None:
    import test_seed_flags

    in_table = {entry[0] for entry in getattr(test_seed_flags, table)}
    whole = {"S0.2", "S0.4", "S0.5", "S0.6", "S0.11", "S0.12", "S0.14"}  # behaviours, which several flags show
    assert {row for row, places in SHOWN.items() if place in places} - whole <= in_table


def test_the_rows_are_those_of_the_checklist() -> None:
    path = HERE.parents[1] / "shared" / "seed_checklist.md"
    if not path.is_file():
        pytest.skip("the checklist does not lie beside the project")
    found = set()
    for document, first, last in re.findall(r"^\| S([0-4])\.(\d+)(?:-(\d+))? ", path.read_text(), re.MULTILINE):
        found |= numbers(int(document), (int(first), int(last or first)))
    assert found | {"S4.c"} == ROWS
