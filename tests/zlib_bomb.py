"""A file of experience whose packed numbers are far more than it says."""

import json
import zlib
from pathlib import Path

import torch
from safetensors.torch import save_file


def write(path: Path, said: int, holds: int) -> None:
    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(bytes(2**20)) for _ in range(holds >> 20)) + packer.flush()
    about = {"rows": 1, "dtypes": {"logprobs": f"torch.float32 {said}"}, "meter": {}}
    save_file({"logprobs": torch.frombuffer(bytearray(data), dtype=torch.uint8)}, path, {"about": json.dumps(about)})
