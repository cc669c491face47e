"""`rlvr template list`: the shipped templates; `rlvr template check NAME --tokenizer T`: does a template fit a tokenizer?"""

from rlvr.cli.parser import Parser
from rlvr.errors import UserError, escape_control_characters


def template_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(prog="rlvr template", description="Conversation templates: how a problem becomes a prompt.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="{list,check}", help="what to do")
    actions.add_parser("list", help="names of the shipped templates", description="Names of the shipped templates.")
    text = "prove that a template fits a tokenizer"
    check = actions.add_parser("check", help=text, description=f"{text.capitalize()}. Training does so by itself.")
    check.add_argument("name", help="shipped name or path of a JSON file")
    check.add_argument("--tokenizer", default="tiny", metavar="MODEL", help="model whose tokenizer to check against")
    return parser


def template_command(argv: list[str]) -> None:
    """List the shipped templates, or check one.

    Raises:
        UserError: there is no such template or tokenizer, or they don't fit.
    """
    from rlvr.prompting.template import template_names

    arguments = template_parser().parse_args(argv)
    if arguments.action == "list":
        print("\n".join(template_names()))
    else:
        _check(arguments.name, arguments.tokenizer)


def _check(name: str, tokenizer_name: str) -> None:
    from rlvr.models.loading import load_tokenizer
    from rlvr.prompting.conversation import Conversation
    from rlvr.prompting.lint import check_template
    from rlvr.validate.sources import load_template

    checks = check_template(Conversation(load_template(name), load_tokenizer(tokenizer_name)))
    for check in checks:
        print(f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {escape_control_characters(check.detail)}")
    if not all(check.ok for check in checks):
        raise UserError(f"template {name!r} does not fit the tokenizer of {tokenizer_name!r}")
