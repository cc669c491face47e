"""What a saved model takes along, so that others use it as it was trained: chat template and generation settings."""

from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from rlvr.conversation import SAVED_TEMPLATE, Conversation


def equip(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    conversation: Conversation,
    *,
    max_new_tokens: int | None = None,
    temperature: float = 1.0,
) -> None:
    """Give the tokenizer the prompts of training as its chat template, and the model the ends of its responses. The template
    itself, with its tags, goes along for our own tools (`choose_template`).

    Args:
        model: whose `generation_config` is replaced; saved with it.
        tokenizer: saved with the model.
        conversation: how prompts were made.
        max_new_tokens: most tokens of a response in training; None = not said.
        temperature: of sampling in training.
    """
    tokenizer.init_kwargs[SAVED_TEMPLATE] = conversation.saved_template()
    tokenizer.chat_template = conversation.chat_template()
    ends = list(conversation.stop_ids)
    if tokenizer.eos_token_id is not None and tokenizer.eos_token_id not in ends:
        ends.append(tokenizer.eos_token_id)
    sampled = temperature > 0
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=ends,
        pad_token_id=tokenizer.pad_token_id,
        max_new_tokens=max_new_tokens,
        do_sample=sampled,
        **({"temperature": temperature, "top_k": 0, "top_p": 1.0} if sampled else {}),
    )
