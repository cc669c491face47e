"""Environments for tests: a game, and one that does what it is told to, such as never to answer."""

import os
import random
import sys
import threading
import time


class Guess:
    """Find a number; the answer is `higher` or `lower`."""

    def reset(self, problem):
        self.number, self.tries, self.question = int(problem["gold"]), 0, problem["question"]
        self.lots = random.Random(problem["seed"])

    def step(self, text):
        self.tries += 1
        guess = int(text) if text.strip().isdigit() else -1
        if guess == self.number:
            return f"yes, {self.question}", True, {"right": 1.0, "tries": -0.1 * self.tries}
        return ("higher" if guess < self.number else "lower") + f" {self.lots.random():.3f}", False, {"tries": 0.0}


class Obedient:
    """Does what the text says, or what the question says where it names a call: `reset raise`."""

    def reset(self, problem):
        self.seen, self.rubbish = [], None
        if problem["question"].startswith("reset "):
            self.step(problem["question"].removeprefix("reset "))

    def step(self, text):
        self.seen.append(text)
        act, _, more = text.partition(" ")
        if act == "raise":
            raise ValueError(more)
        if act == "hang":
            time.sleep(600)
        if act == "exit":
            sys.exit(3)
        if act == "die":
            os._exit(4)
        if act == "eat":
            bytearray(2**36)
        if act == "swell":
            self.rubbish = os.urandom(2**25)
        if act == "lock":
            self.rubbish = threading.Lock()
        answers = {
            "nothing": None, "text": "only text", "number": (3, False, None), "bytes": (b"x", False, None), "long": ("x" * 10**7, False, None),
            "half": ("\ud800", True, None), "words": ("", True, {"good": "very"}), "nan": ("", True, float("nan")), "pair": ("x", True),
            "end": ("the end", True, 0.5), "empty": ("", False, None),
        }  # fmt: skip
        return answers.get(act, (" ".join(self.seen), False, None))


class ByQuestion(Obedient):
    """Does what the question says at the first turn, whatever the model writes; `fill` says more than any context holds."""

    def reset(self, problem):
        self.seen, self.rubbish, self.act = [], None, problem["question"]

    def step(self, text):
        if self.act == "fill":
            return "word " * 10_000, False, 0.25
        return super().step(self.act)


class AtOnce:
    """Over after a turn."""

    def reset(self, problem): ...

    def step(self, text):
        return "", True, float(len(text))


class Twice:
    """Answers two turns with the number of their letters, and pays by it."""

    slow = 0.0

    def reset(self, problem):
        self.turns = 0

    def step(self, text):
        self.turns += 1
        time.sleep(self.slow * (len(text) % 3))
        return str(len(text)), self.turns == 3, {"letters": len(text) % 3}


class Slow(Twice):
    slow = 0.03


class NotOne:
    def reset(self, problem): ...


def not_one(response):
    return 0.0
