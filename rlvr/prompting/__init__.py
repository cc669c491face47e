"""Prompting: how a problem becomes a prompt, what the answer tags are, and what ends a response.

template       the JSON files of `templates/`
conversation   a template bound to a tokenizer; which template fits; handing it on with a saved model
lint           proof that a template works with a tokenizer
"""
