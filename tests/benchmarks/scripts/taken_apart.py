"""Runs a pipeline file for the first time, and prints the seconds of each part as JSON.

``taken_apart.py FILE BEGUN``: BEGUN is when the process was requested, in seconds since 1970.
"""

import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

RUNNING = time.time()


class Parts:
    """The seconds of each part, by name. Parts after the first epoch's plan belong to the epoch and aren't added."""

    def __init__(self, begun: float) -> None:
        self.begun = begun
        self.seconds: dict[str, float] = {"python": RUNNING - begun}
        self._steps: dict[str, float] = {}

    def add(self, name: str, since: float) -> None:
        if "planned" not in self._steps:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.time() - since

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            started = time.time()
            try:
                return function(*args, **kwargs)
            finally:
                self.add(name, started)

        return wrapper

    def entered(
        self, name: str, function: Callable[..., AbstractContextManager[Any]]
    ) -> Callable[..., AbstractContextManager[Any]]:
        """Like `timed`, but for entering the context manager that the function returns."""

        @contextmanager
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            started = time.time()
            with function(*args, **kwargs) as entered:
                self.add(name, started)
                yield entered

        return wrapper

    def observe(self, event: Any) -> None:
        self._steps.setdefault(event.step.value, time.time())

    def finish(self) -> None:
        committed = self._steps["committed"]
        self.seconds["epoch"] = committed - self._steps["planned"]
        # Creating the table, finding out its columns, and everything else without a name here.
        self.seconds["other"] = committed - self.begun - sum(self.seconds.values())


def main() -> None:
    parts = Parts(float(sys.argv[2]))
    # The same import as the command's.
    import connector.cli.app
    import connector.engine.assembly as assembly
    from connector.source.topics import KafkaSource
    from sinks.delta.commit import PipelineCommits

    parts.add("imports", RUNNING)
    assembly.session = parts.entered("session", assembly.session)  # type: ignore[assignment]
    KafkaSource.look = parts.timed("look", KafkaSource.look)  # type: ignore[method-assign]
    PipelineCommits.position = parts.timed("position", PipelineCommits.position)  # type: ignore[method-assign]
    connector.Pipeline.from_file(Path(sys.argv[1])).run(observers=[parts.observe])
    parts.finish()
    print(json.dumps(parts.seconds))


if __name__ == "__main__":
    main()
