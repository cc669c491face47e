"""Tasks as verifiers has them, for tests."""

import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: str


class Task(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward(weight=2.0)
    async def right(self, task: Data, trace: vf.Trace) -> float:
        return float(task.answer in trace.last_reply)

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply))


class Boxed(Task):
    @vf.reward
    async def checked(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
        return 1.0


class Sums(vf.Taskset[Task, vf.TasksetConfig]):
    kind: type[Task] = Task
    count = 3

    def load(self):
        for number in range(self.count):
            yield self.kind(Data(prompt=f"{number}+1=?", answer=str(number + 1)))


def tasks() -> Sums:
    return Sums(vf.TasksetConfig())


def tasks_with_a_system_prompt() -> Sums:
    made = tasks()
    made.system_prompt = "Be brief."
    return made


def boxed_tasks() -> Sums:
    made = tasks()
    made.kind = Boxed
    return made


def few_tasks() -> Sums:
    made = tasks()
    made.count = 1
    return made
