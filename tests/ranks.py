"""Processes of a run for tests, forked from one that has imported everything: the ranks begin where Python is done with imports.

Under torchrun each rank imports PyTorch, transformers and ColossalAI anew, which takes longer than what most tests let them do; and
torchrun itself imports PyTorch. One process for each of pytest's workers does so once (`tests/faults/forking.py`), and is told
which ranks to fork. They have torchrun's variables, sessions of their own and nothing of this process's. What torchrun itself
does is seen by `tests/distributed/test_equivalence.py`, `test_multi_node.py`, `test_3d.py` and `tests/boost/test_launcher.py`.

python -m tests.ranks: reads requests from its standard input, a line of JSON each, and answers with a line each.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from tests.faults.forking import Ended, Launch, import_all  # noqa: E402


class Ranks:
    """Starts runs. The process that forks them is started for the first one.

    Args:
        environment: of all of them.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._server: subprocess.Popen[str] | None = None

    def done(self, count: int, *words: object, **options: Any) -> str:
        """`ended` with the same words for so many processes, which must end with status 0: what they printed, that of rank 0 first."""
        ended = self.ended([words] * count, **options)
        printed = "".join(e.out + e.err for e in ended)
        assert [e.status for e in ended] == [0] * count, printed[-6000:]
        return printed

    def ended(
        self,
        commands: Sequence[Sequence[object]],
        environment: Mapping[str, str] | None = None,
        folder: Path = ROOT,
        limit_s: float = 800.0,
    ) -> list[Ended]:
        """A process for each of the commands; they are one process group if they are several.

        Args:
            commands: as those of `Launch`.
            environment: further variables.
            folder: the current one of the processes.
            limit_s: then those that still run are killed, and have the status None.
        """
        request = {
            "commands": [list(map(str, words)) for words in commands], "environment": dict(environment or {}),
            "folder": str(folder), "limit_s": limit_s,
        }  # fmt: skip
        try:
            server = self._server or self._start()
            assert server.stdin and server.stdout
            print(json.dumps(request), file=server.stdin, flush=True)
            answer = server.stdout.readline()
        except BaseException:  # the test's time is over: the answer would be taken for that of the next one
            self.close()
            raise
        assert answer, "the process that forks ranks has ended"
        return [Ended(**each) for each in json.loads(answer)]

    def close(self) -> None:
        """End the process that forks, and with it what it has forked."""
        if self._server is not None:
            self._server.terminate()
            self._server.communicate()
            self._server = None

    def _start(self) -> "subprocess.Popen[str]":
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.ranks"],
            env=self._environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self._server


def serve() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which `Launch` lets its forks not outlive
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for pytest
    import_all()
    for line in sys.stdin:
        request = json.loads(line)
        folder = request["folder"]
        launch = Launch(request["commands"], lambda rank, f=folder: os.chdir(f), environment=request["environment"])
        print(json.dumps([asdict(ended) for ended in launch.run(request["limit_s"])]), file=answers)


if __name__ == "__main__":
    try:
        serve()
    finally:
        os._exit(0)  # taking down an interpreter that has imported all this takes a second
