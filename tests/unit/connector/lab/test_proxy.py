"""Kafka's framing, however the bytes arrive."""

import struct

import pytest

from connector.lab.bench.proxy import PRODUCE, Frames, Unanswered

FETCH = 1


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(api_key: int, correlation: int) -> bytes:
    return frame(struct.pack(">hhi", api_key, 9, correlation) + b"client and body")


def response(correlation: int) -> bytes:
    return frame(struct.pack(">i", correlation) + b"body")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 11, 1000])
def test_messages_are_the_same_however_the_stream_is_cut(size: int) -> None:
    sent = [request(PRODUCE, 1), frame(b""), response(2), frame(b"x" * 300)]
    stream = b"".join(sent)
    frames = Frames()
    found = [each for at in range(0, len(stream), size) for each in frames.feed(stream[at : at + size])]
    assert found == sent


def test_an_incomplete_message_waits_for_its_rest() -> None:
    frames = Frames()
    assert frames.feed(response(5)[:-1]) == []
    assert frames.feed(response(5)[-1:] + b"\0\0") == [response(5)]


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET "])
def test_what_is_not_kafka_is_refused(length: bytes) -> None:
    with pytest.raises(ValueError, match="isn't Kafka"):
        Frames().feed(length)


def test_a_response_is_known_by_its_request() -> None:
    unanswered = Unanswered()
    unanswered.request(request(FETCH, 7))
    unanswered.request(request(PRODUCE, 8))
    assert unanswered.response(response(7)) == FETCH
    assert unanswered.response(response(8)) == PRODUCE
    assert unanswered.response(response(8)) is None


def test_a_request_that_gets_no_answer_is_passed_over() -> None:
    unanswered = Unanswered()
    unanswered.request(request(PRODUCE, 1))  # acks=0
    unanswered.request(request(FETCH, 2))
    assert unanswered.response(response(2)) == FETCH


def test_messages_too_short_for_a_header_are_nobodys() -> None:
    unanswered = Unanswered()
    unanswered.request(frame(b"\0\0"))
    assert unanswered.response(frame(b"\0")) is None
