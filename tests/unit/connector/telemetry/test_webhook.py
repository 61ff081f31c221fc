"""Messages to a webhook that fails, hangs, redirects and comes back: a real server, and real sockets."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator

import pytest
from conftest import wait_until
from pydantic import SecretStr
from sent import Sent, receiver

from connector.telemetry.webhook import MOST_WAITING, Patience, webhook

SECRET = "T0KEN-hunter2"
QUICK = Patience(timeout=2, attempts=3, wait=0.02, grace=5)


@pytest.fixture
def server() -> Iterator[Sent]:
    with receiver() as sent:
        yield sent


def url(of: Sent) -> SecretStr:
    return SecretStr(f"{of.url}/services/{SECRET}")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said; nothing of it, at any level and of any library, has the secret."""
    assert not any(SECRET in record.getMessage() + str(record.exc_info) for record in caplog.records)
    return [record.getMessage() for record in caplog.records if record.name == "lakelock.notify"]


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def test_a_message_is_one_post_of_json(server: Sent) -> None:
    with webhook(url(server), of="flights", patience=QUICK) as hook:
        hook.send("failed", {"text": "ä <b> \u202e \U0001f6a2 \ud800"})
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", f"/services/{SECRET}")
    assert request.headers["Content-Type"] == "application/json; charset=utf-8"
    assert json.loads(request.body) == {"text": "ä <b> \u202e \U0001f6a2 ?"}


def test_a_server_that_fails_for_a_while_gets_the_message_once(server: Sent, caplog: pytest.LogCaptureFixture) -> None:
    server.first = [500, 429]
    with webhook(url(server), of="flights", patience=QUICK) as hook:
        hook.send("failed", {"n": 1})
        hook.send("behind", {"n": 2})
    assert [json.loads(request.body)["n"] for request in server.requests] == [1, 1, 1, 2]
    assert warnings(caplog) == []


def test_the_wait_that_a_server_asks_for_is_kept(server: Sent) -> None:
    server.first, server.headers = [429], {"Retry-After": "1"}
    began = time.monotonic()
    with webhook(url(server), of="flights", patience=QUICK) as hook:
        hook.send("failed", {})
    assert len(server.requests) == 2
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize(
    ("status", "attempts", "why"),
    [
        (500, 3, "it answers with status 500"),
        (404, 1, "it answers with status 404"),
        (302, 1, "it answers with a redirect (302), which isn't followed; give the URL that it leads to"),
        (307, 1, "it answers with a redirect (307), which isn't followed; give the URL that it leads to"),
    ],
)
def test_what_is_refused_is_a_warning(
    server: Sent, caplog: pytest.LogCaptureFixture, status: int, attempts: int, why: str
) -> None:
    server.status, server.headers = status, {"Location": f"{server.url}/{SECRET}/elsewhere"}
    with webhook(url(server), of="flights", patience=QUICK) as hook:
        hook.send("failed", {})
    assert [request.method for request in server.requests] == ["POST"] * attempts
    assert warnings(caplog) == [
        f"notify: the message 'failed' of flights couldn't be sent to notify.url: {why}. "
        "This changes nothing about the run."
    ]


def test_nobody_there_is_a_warning(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with webhook(SecretStr(f"http://127.0.0.1:{port}/{SECRET}"), of="flights", patience=QUICK) as hook:
        hook.send("failed", {})
    (said,) = warnings(caplog)
    assert "Connection refused" in said


def test_an_answer_that_is_no_http_is_a_warning(port: int, caplog: pytest.LogCaptureFixture) -> None:
    import socket

    with socket.create_server(("127.0.0.1", port)) as listening:

        def answer() -> None:
            for _ in range(QUICK.attempts):
                with listening.accept()[0] as connection:
                    connection.recv(10_000)
                    connection.sendall(f"{SECRET}\r\n\r\n".encode())

        threading.Thread(target=answer, daemon=True).start()
        with webhook(SecretStr(f"http://127.0.0.1:{port}/{SECRET}"), of="flights", patience=QUICK) as hook:
            hook.send("failed", {})
    (said,) = warnings(caplog)
    assert "BadStatusLine" in said


def test_a_server_that_hangs_holds_up_nobody(server: Sent, caplog: pytest.LogCaptureFixture) -> None:
    server.held = threading.Event()
    began = time.monotonic()
    patient = Patience(timeout=60, attempts=3, wait=0.01, grace=0.3)
    with webhook(url(server), of="flights", patience=patient) as hook:
        for number in range(5):
            hook.send("failed", {"n": number})
        assert time.monotonic() - began < 10, "to send doesn't wait for the timeout"
        assert server.came.wait(10)
    assert time.monotonic() - began < 30, "the end of a run doesn't wait for the timeout"
    server.held.set()
    (said,) = warnings(caplog)
    assert said.startswith("notify: 5 of the messages of flights couldn't be sent within 0.3 s of the run's end.")


def test_a_hanging_server_is_given_up_after_the_timeout(server: Sent, caplog: pytest.LogCaptureFixture) -> None:
    server.held = threading.Event()
    with webhook(url(server), of="flights", patience=Patience(timeout=0.1, attempts=2, wait=0.01, grace=20)) as hook:
        hook.send("failed", {})
    server.held.set()
    (said,) = warnings(caplog)
    assert "no answer within 0.1 s" in said
    assert len(server.requests) == 2


def test_what_waits_is_bounded(server: Sent, caplog: pytest.LogCaptureFixture) -> None:
    server.held = threading.Event()
    with webhook(url(server), of="flights", patience=Patience(timeout=30, grace=20)) as hook:
        for _ in range(MOST_WAITING + 2):
            hook.send("behind", {})
        assert [text for text in warnings(caplog) if "100 others wait already" in text] == [
            f"notify: the message 'behind' of flights couldn't be sent to notify.url: {MOST_WAITING} others wait "
            "already. This changes nothing about the run."
        ] * 2
        server.held.set()
    assert len(server.requests) == MOST_WAITING


def test_a_run_without_messages_ends_at_once_and_leaves_no_thread() -> None:
    began = time.monotonic()
    with webhook(SecretStr("http://127.0.0.1:1/"), of="silent"):
        assert "lakelock-notify-silent" in {thread.name for thread in threading.enumerate()}
    assert time.monotonic() - began < 5, "the grace is 10 seconds"
    assert "lakelock-notify-silent" not in {thread.name for thread in threading.enumerate()}


def test_the_thread_looks_at_the_clock_while_nothing_is_sent(server: Sent) -> None:
    ticks: list[float] = []
    with webhook(url(server), of="flights", patience=QUICK) as hook:
        hook.tick = lambda: ticks.append(time.monotonic())
        wait_until(lambda: len(ticks) >= 2, what="two ticks")
