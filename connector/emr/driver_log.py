"""The log of a run's driver, which EMR copies to S3, and the exit code that its last line stands for."""

from __future__ import annotations

import gzip
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from connector.telemetry.run_report import EXIT_CODES
from sinks.s3.client import bucket_and_prefix

_LAST = re.compile(rf"^.+?: ({'|'.join(EXIT_CODES)})(?:\.|, exit code \d\.)(?: |$)", re.MULTILINE)
"""``flights: done. 3 epochs, ...``, ``my flights.yaml: refused, exit code 2. ...``."""
_LAST_OF_SEVERAL = re.compile(r"^[\d,]+ pipelines?: [^;\n]*?(?:; exit code (\d+))?\.$", re.MULTILINE)
"""``2 pipelines: 1 done, 1 failed; exit code 1.``, which comes after a last line of each: ``cli.several``."""
_LINES = 40


def exit_code(log: str, *, several: bool = False) -> int | None:
    """The exit code of the run that printed this log; None if the log doesn't say how the run ended.

    ``several``: it ran several pipelines. Then only the line that comes after those of all pipelines counts.
    """
    if several:
        codes = _LAST_OF_SEVERAL.findall(log)
        return int(codes[-1] or 0) if codes else None
    ends = _LAST.findall(log)
    return EXIT_CODES[ends[-1]] if ends else None


def read(s3: Any, url: str) -> str:
    """The last lines of a compressed log in S3; empty if EMR hasn't copied it yet. Raises what boto3 raises."""
    bucket, key = bucket_and_prefix(url)
    try:
        packed = s3.get_object(Bucket=bucket, Key=key)["Body"]
    except s3.exceptions.NoSuchKey:
        return ""
    with gzip.open(packed, "rt", encoding="utf-8", errors="replace") as lines:
        return "".join(deque(lines, maxlen=_LINES)).rstrip()


def wait_for_end(
    s3: Any,
    url: str,
    seconds: float,
    sleep: Callable[[float], None] = time.sleep,
    every: float = 5.0,
    *,
    several: bool = False,
) -> str:
    """Read the log until it has the run's last line, or until ``seconds`` have passed: EMR copies it when it likes.

    ``several``: as for `exit_code`. Returns the last lines that are there. Raises what boto3 raises.
    """
    deadline = time.monotonic() + seconds
    while True:
        log = read(s3, url)
        if exit_code(log, several=several) is not None or time.monotonic() >= deadline:
            return log
        sleep(min(every, max(0.0, deadline - time.monotonic())))
