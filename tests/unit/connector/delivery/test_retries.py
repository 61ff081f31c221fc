import logging
import threading
from datetime import timedelta

import pytest

from connector.delivery.retries import Patience, Retries, passes
from sinks.errors import BadRecord, BrokerUnreachable, CommitUnknown, Fenced

QUICK = Patience(attempts=3, longest_wait=timedelta(milliseconds=1))


class Failing:
    """Fails as it is told, one failure after the other; an epoch is an attempt that gets somewhere first."""

    def __init__(self, *failures: BaseException | int) -> None:
        self._failures = list(failures)
        self.attempts = self.epochs = 0

    def __call__(self) -> None:
        self.attempts += 1
        while self._failures:
            failure = self._failures.pop(0)
            if isinstance(failure, BaseException):
                raise failure
            self.epochs += failure


def run(work: Failing, patience: Patience = QUICK, stop: threading.Event | None = None) -> None:
    retries = Retries(patience, lambda: work.epochs, stop or threading.Event())
    while retries.wanted():
        with retries:
            work()


AWAY = BrokerUnreachable("No Kafka broker answered")


def test_what_passes_is_tried_again_visibly(caplog: pytest.LogCaptureFixture) -> None:
    work = Failing(AWAY, AWAY)
    with caplog.at_level(logging.WARNING, "lakelock.patience"):
        run(work)
    assert work.attempts == 3
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("attempt 1 of 3 failed, the next is in")
    assert first.endswith(": No Kafka broker answered")
    assert second.startswith("attempt 2 of 3")


def test_there_is_a_limit_to_attempts_that_get_nowhere_and_none_to_those_that_do() -> None:
    work = Failing(AWAY, AWAY, AWAY, AWAY)
    with pytest.raises(BrokerUnreachable):
        run(work)
    assert work.attempts == 3
    work = Failing(AWAY, AWAY, 1, AWAY, AWAY, 1, AWAY)
    run(work)
    assert work.attempts == 6


@pytest.mark.parametrize("error", [BadRecord("broken"), Fenced("replaced", owner="o", epoch=1), KeyboardInterrupt()])
def test_what_no_retry_can_help_stops_at_once(error: BaseException) -> None:
    work = Failing(error)
    with pytest.raises(type(error)):
        run(work)
    assert work.attempts == 1


def test_who_wants_it_to_stop_does_not_wait() -> None:
    stop = threading.Event()
    stop.set()
    work = Failing(AWAY)
    with pytest.raises(BrokerUnreachable):
        run(work, Patience(attempts=3, longest_wait=timedelta(hours=1)), stop)
    assert work.attempts == 1


@pytest.mark.parametrize(
    ("said", "does"),
    [
        ("Job aborted: Lost task 0.3 in stage 4.0: ExecutorLostFailure (executor 1 exited)", True),
        ("com.amazonaws...: Please reduce your request rate. (Status Code: 503; Error Code: SlowDown)", True),
        ("Caused by: java.net.ConnectException: Connection refused", True),
        ("Caused by: org.apache.hadoop.net.ConnectTimeoutException: connect timed out", True),
        ("org.apache.hadoop.fs.s3a.AWSApiCallTimeoutException: Writing Object on a/_delta_log/00.json", True),
        ("io.delta.exceptions.ConcurrentAppendException: Files were added to the root of the table", True),
        ("[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Transaction conflict detected.", True),
        ("[DELTA_CONCURRENT_DELETE_READ] This transaction attempted to read one or more files", True),
        ("[DELTA_CONCURRENT_TRANSACTION] Another run has committed", False),
        ("[UNRESOLVED_COLUMN] A column with name `x` cannot be resolved", False),
        ("java.lang.OutOfMemoryError: Java heap space", False),
    ],
)
def test_what_spark_says_of_executors_and_stores_that_are_away_and_of_other_commits(said: str, does: bool) -> None:
    assert passes(RuntimeError(said)) is does
    assert passes(CommitUnknown("said")) is True
