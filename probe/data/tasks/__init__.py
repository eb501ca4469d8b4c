"""Lists the tasks. To add a kind of label, write its `Task` in a new file and add it here."""

from __future__ import annotations

from probe.config import DataConfig, one_of
from probe.data.task import Task
from probe.data.tasks.detection import DETECTION
from probe.data.tasks.sentences import SENTENCE
from probe.data.tasks.spans import SPANS
from probe.data.tasks.tags import TAGS

TASKS = {task.name: task for task in (SPANS, TAGS, SENTENCE, DETECTION)}


def task_of(data: DataConfig) -> Task:
    """Returns the task that data.task names. Raises UserError if there is none of that name."""
    one_of("data.task", data.task, TASKS)
    return TASKS[data.task]
