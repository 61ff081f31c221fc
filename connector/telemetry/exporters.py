"""Exports a run's metrics, messages, traces and lineage. An exporter can't stop a run or delay an epoch. The end of a
run waits a limited time for them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from prometheus_client import CollectorRegistry, push_to_gateway
from prometheus_client.exposition import basic_auth_handler, default_handler

from connector.config import MetricsOptions, PipelineConfig, Pushgateway
from connector.config.kinds import in_clear
from connector.protocol.steps import Observer, told_its_end
from connector.telemetry.endpoint import served
from connector.telemetry.lineage import lineage
from connector.telemetry.metrics import Metrics
from connector.telemetry.notify import notified
from connector.telemetry.traces import traced

log = logging.getLogger("lakelock.monitoring")

PUSH_SECONDS = 5.0
"""Seconds between two pushes."""
_TIMEOUT_SECONDS = 5.0
JOB = "lakelock"


@contextmanager
def monitored(config: PipelineConfig) -> Iterator[list[Observer]]:
    """The observers that the pipeline file asks for, within the block. They are told the block's error."""
    with ExitStack() as stack:
        observers: list[Observer] = []
        if config.notify is not None:  # the first one ends last: nothing else waits for a webhook
            observers.append(stack.enter_context(notified(config, config.notify)))
        if config.metrics is not None:
            observers.append(stack.enter_context(_measured(config, config.metrics)))
        if config.traces:
            observers.append(stack.enter_context(traced()))
        if config.lineage:
            observers.append(stack.enter_context(lineage(config)))
        yield observers


@contextmanager
def _measured(config: PipelineConfig, options: MetricsOptions) -> Iterator[Metrics]:
    metrics = Metrics(config.name, config.only_table or "")
    with ExitStack() as stack:
        if options.port is not None:
            stack.enter_context(_served(options.host, options.port, config.name, metrics.registry))
        if options.push is not None:
            stack.enter_context(pushed(options.push, config.name, metrics.registry))
        yield stack.enter_context(told_its_end(metrics))


@contextmanager
def _served(host: str, port: int, pipeline: str, registry: CollectorRegistry) -> Iterator[None]:
    """Serve metrics within the block. A port in use stops no run: the run to be replaced may still be using it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(served(host, port, pipeline, registry))
        except OSError as error:
            log.warning(
                "no metrics of this run: can't listen on %s:%s: %s. Each process on a machine needs its own port.",
                host, port, error.strerror or error,
            )  # fmt: skip
        yield


def show_refused(refused: Mapping[str, BaseException], others: Iterable[PipelineConfig]) -> None:
    """Show the run state ``failed`` of pipelines that can't begin, by name, at the ports of the ``others``.

    Nobody else would tell of them in a process that goes on for weeks. They stay there within ``endpoint.kept_open``.
    """
    asked = {(at.host, at.port): None for config in others if (at := config.metrics) is not None}
    for name, error in refused.items():
        metrics = Metrics(name)
        metrics.ended(error)
        for host, port in asked:
            if port is not None:
                with _served(host, port, name, metrics.registry):
                    pass


@contextmanager
def pushed(
    gateway: Pushgateway, pipeline: str, registry: CollectorRegistry, every: float = PUSH_SECONDS
) -> Iterator[None]:
    """Push the metrics every ``every`` seconds in a thread, and once more at the end. The last values stay there."""
    over = threading.Event()
    handler = _login(gateway)
    said = False

    def push() -> None:
        nonlocal said
        try:
            push_to_gateway(
                gateway.url, JOB, registry, {"pipeline": pipeline}, timeout=_TIMEOUT_SECONDS, handler=handler
            )
        except Exception as error:
            if not said:
                log.warning("the Pushgateway %s doesn't take metrics: %s. The run goes on.", gateway.url, error)
            said = True

    def push_now_and_then() -> None:
        push()
        while not over.wait(every):
            push()

    thread = threading.Thread(target=push_now_and_then, name="lakelock-push", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        push()


def _login(gateway: Pushgateway) -> Callable[..., Callable[[], None]]:
    if gateway.username is None or gateway.password is None:
        return default_handler
    login = in_clear({"username": gateway.username, "password": gateway.password})
    return partial(basic_auth_handler, username=login["username"], password=login["password"])
