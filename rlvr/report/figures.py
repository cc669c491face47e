"""The figures that say most of a run: metric, name for people, format."""

MAIN_FIGURES = (
    ("eval/accuracy", "held-out accuracy", "{:.1%}"),
    ("outcome/correct", "right in training", "{:.1%}"),
    ("objective/scores", "reward", "{:.3g}"),
    ("train/loss", "loss", "{:.4g}"),
    ("eval/loss", "held-out loss", "{:.4g}"),
    ("objective/kl", "KL", "{:.3g}"),
    ("response/length_tokens", "tokens a response", "{:.0f}"),
)
