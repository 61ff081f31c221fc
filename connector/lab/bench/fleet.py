"""Pipelines that run continuously in one process, as under a scheduler.

``python -m connector.lab.bench.fleet FILE...``. A run that ends with an error is started again. Its error is written
to standard output, one JSON object per line. With ``--once``, each pipeline runs until one run has ended without error.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from connector.config import load
from connector.pipeline import Pipeline
from connector.spark.session import session
from sinks.errors import LakelockError

_AGAIN_AFTER_SECONDS = 0.5


def keep_running(file: Path, once: bool) -> None:
    """Run a pipeline again and again. ``once``: stop after a run without error, which reads the topic to its end."""
    config = load(file)
    if once:
        config = config.model_copy(update={"trigger": "available_now"})
    while True:
        try:
            Pipeline(config).run()
        except Exception as error:
            said = error.message if isinstance(error, LakelockError) else str(error).splitlines()[0]
            line = {"pipeline": config.name, "ended": type(error).__name__, "message": said[:300]}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
            time.sleep(_AGAIN_AFTER_SECONDS)
        else:
            if once:
                return


def main() -> None:
    """Run the pipelines of the files in ``sys.argv``, each in a thread."""
    once = "--once" in sys.argv
    files = [Path(argument) for argument in sys.argv[1:] if argument != "--once"]
    with session(load(files[0]).spark_options, name="fleet"):
        threads = [threading.Thread(target=keep_running, args=(file, once), daemon=True) for file in files]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
