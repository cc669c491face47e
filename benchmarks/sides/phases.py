"""Where an iteration's time goes: a clock that knows what is running, and how to attach it to a trainer."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

REST = "rest"


class PhaseClock:
    """Seconds by the clock and of all threads, by phase. A phase within a phase counts as itself only."""

    def __init__(self) -> None:
        self.names = [REST]
        self.restart()

    def restart(self) -> None:
        """Forget, and begin now."""
        self.clock: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)
        self._then = time.perf_counter(), time.process_time()

    def tick(self) -> None:
        """Give the time since the last tick to what is running."""
        now = time.perf_counter(), time.process_time()
        self.clock[self.names[-1]] += now[0] - self._then[0]
        self.cpu[self.names[-1]] += now[1] - self._then[1]
        self._then = now

    def begin(self, name: str) -> None:
        self.tick()
        self.names.append(name)

    def end(self) -> None:
        self.tick()
        self.names.pop()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.begin(name)
        try:
            yield
        finally:
            self.end()


def watch(trainer: Any, clock: PhaseClock) -> None:
    """Attach the clock to the calls that are phases (their names are those of `benchmarks.floors.PHASES`)."""
    roles = (("actor", trainer.actor, "actor logprobs"), ("critic", trainer.critic, "critic values"))
    for name, role, scoring in roles:
        if role is not None:
            _wrap(role, "forward", clock, f"{name} forward", scoring)
            _wrap(role, "backward", clock, f"{name} backward")
            _wrap(role, "step", clock, f"{name} optimizer")
    if trainer.maker.reference is not None:
        _wrap(trainer.maker.reference, "forward", clock, "reference logprobs")
    stream = trainer.maker.engine.stream

    def watched(*args: Any, **kwargs: Any) -> Iterator[Any]:
        batches = stream(*args, **kwargs)
        while True:
            with clock.phase("drawing"):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    trainer.maker.engine.stream = watched
    # Scoring and learning call the decoder below the head, so that the whole model runs in generation only.
    model = trainer.actor.unwrapped.model
    model.register_forward_pre_hook(lambda module, args, kwargs: clock.begin(_of_generation(kwargs)), with_kwargs=True)
    model.register_forward_hook(lambda *_: clock.end())


def _of_generation(inputs: dict[str, Any]) -> str:
    return "prefill" if inputs["input_ids"].size(1) > 1 else "decode"


def _wrap(owner: Any, method: str, clock: PhaseClock, name: str, without_gradients: str | None = None) -> None:
    """Calls of the method are the phase `name`, or the other where no gradients are made."""
    plain = getattr(owner, method)

    def timed(*args: Any, **kwargs: Any) -> Any:
        with clock.phase(name if without_gradients is None or torch.is_grad_enabled() else without_gradients):
            return plain(*args, **kwargs)

    setattr(owner, method, timed)
