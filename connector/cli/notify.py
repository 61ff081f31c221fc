"""``lakelock notify``: whether the webhook of ``notify:`` can be reached. Needs neither Spark nor Kafka."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from connector.cli.console import Debug, Files, Set, out, reported, say_error, worst
from connector.config import PipelineConfig
from connector.fleet.files import pipeline_files, read
from connector.telemetry.notify import trial_message
from connector.telemetry.progress import span
from connector.telemetry.webhook import NotSent, Patience, post
from sinks.errors import ConfigurationError, LakelockError


def notify(
    files: Files,
    set_: Set,
    test: Annotated[bool, typer.Option("--test", help="Send a test message to each webhook, once.")] = False,
    debug: Debug = False,
) -> None:
    """Show what a webhook hears; --test sends a message.

    The webhook is that of `notify:`. Starts no Spark.

    Exit code 1 if a message couldn't be sent.
    """
    with reported(debug):
        codes = []
        for file in read(pipeline_files(files), set_):
            try:
                _show(file.usable(), test)
            except LakelockError as error:
                say_error(error, file.name)
                codes.append(error.exit_code)
        if code := worst(codes):
            raise typer.Exit(code)


def _show(config: PipelineConfig, test: bool) -> None:
    options = config.notify
    if options is None:
        if test:
            raise ConfigurationError(
                "There is no webhook to test.", hint='Write notify: {url: "${env:NAME}"} into the pipeline file.'
            )
        out.print(f"{escape(config.name)}: no notify", soft_wrap=True)
        return
    bound = f" for more than {span(options.bound.total_seconds())}" if options.bound is not None else ""
    told = ", ".join(event + bound if event == "behind" else event for event in sorted(options.events))
    out.print(f"{escape(config.name)}: {told}; as {options.shape}", soft_wrap=True)
    if not test:
        return
    try:
        post(options.url, trial_message(config, options), Patience().timeout)
    except NotSent as error:
        raise LakelockError(
            f"The test message couldn't be sent to notify.url: {error}.",
            hint="Correct the variable or file that notify.url names, or open the way to it; then try again.",
        ) from None
    out.print(f"{escape(config.name)}: a test message was sent", soft_wrap=True)
