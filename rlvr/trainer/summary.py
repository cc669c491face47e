"""From the meter's means to an episode's metrics, under the names that TRL's and ColossalChat's PPO use."""

from collections.abc import Mapping


def summarise(means: Mapping[str, float]) -> dict[str, float]:
    """Finish metrics that need more than one mean; names with a leading underscore are only their ingredients."""
    metrics = {name: value for name, value in means.items() if not name.startswith("_")}
    if "_ratio_squared" in means:
        metrics["val/ratio_var"] = max(0.0, means["_ratio_squared"] - means["val/ratio"] ** 2)
    if "_returns_squared" in means:
        spread = means["_returns_squared"] - means["_returns"] ** 2
        residual = means["_residuals_squared"] - means["_residuals"] ** 2
        metrics["critic/explained_variance"] = 1 - residual / spread if spread > 1e-12 else 0.0
    if "_scores_squared" in means:
        metrics["objective/scores_std"] = max(0.0, means["_scores_squared"] - means["objective/scores"] ** 2) ** 0.5
    for alias, name in ALIASES.items():
        if name in metrics:
            metrics[alias] = metrics[name]
    return metrics


# ColossalChat's names of the same quantities.
ALIASES = {
    "reward": "objective/scores",
    "approx_kl": "policy/approxkl_avg",
    "train/lr_actor": "lr",
    "token_cost": "response/length_tokens",
}
