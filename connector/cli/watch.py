"""``lakelock status``, ``history`` and ``ui``: what a person on call looks at. These commands change nothing."""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live

from connector.cli.console import Debug, Files, Json, Set, err, out, reported, worst
from connector.cli.several import is_one
from connector.cli.tables import status_fields
from connector.cli.watch_tables import past_fields, statuses_fields, statuses_table
from connector.display import print_page
from connector.fleet.files import Fault, one_session, pipeline_files, read
from connector.operations.history import LAST
from connector.pipeline import Pipeline
from connector.watch.poll import status_of
from sinks.errors import ConfigurationError


def status(
    files: Files,
    set_: Set,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="With --watch: how often to look.")] = 5,
    json_: Json = False,
    debug: Debug = False,
) -> None:
    """Show epoch, offsets, lag and the last commit.

    One line each for several pipelines.
    """
    with reported(debug):
        if is_one(files) and not watch:
            state = Pipeline.from_file(files[0], set_, debug=debug).status()
            if json_:
                sys.stdout.write(json.dumps(status_fields(state)) + "\n")
            else:
                print_page(state.page(), out)
            return
        watched = read(pipeline_files(files), set_)
        codes: list[int] = []
        with suppress(KeyboardInterrupt) if watch else nullcontext():
            with one_session(watched, name="status", debug=debug) as spark:
                live = Live(console=out, auto_refresh=False) if watch and out.is_terminal and not json_ else None
                with live or nullcontext():
                    while True:
                        statuses = [(pipeline, status_of(pipeline, spark, debug=debug)) for pipeline in watched]
                        codes = [status.exit_code for _, status in statuses if isinstance(status, Fault)]
                        if json_:
                            sys.stdout.write(json.dumps(statuses_fields(statuses)) + "\n")
                            sys.stdout.flush()
                        elif live is not None:
                            live.update(statuses_table(statuses, datetime.now(timezone.utc)), refresh=True)
                        else:
                            out.print(statuses_table(statuses, datetime.now(timezone.utc)))
                            out.file.flush()
                        if not watch:
                            break
                        time.sleep(every)
        if codes and not watch:
            raise typer.Exit(worst(codes))


def history(
    file: Annotated[Path, typer.Argument(help="The pipeline file (YAML).")],
    set_: Set,
    last: Annotated[int, typer.Option(min=1, metavar="N", help="How many epochs.")] = LAST,
    json_: Json = False,
    debug: Debug = False,
) -> None:
    """Show the last epochs: what each read and wrote.

    Newest first, each with its commit, its run, and what is unusual.

    Reads the table's own history, or the coordinator log. Doesn't ask Kafka.
    """
    with reported(debug):
        epochs = Pipeline.from_file(file, set_, debug=debug).history(last)
        if json_:
            sys.stdout.write(json.dumps({"pipeline": epochs.pipeline, "epochs": past_fields(epochs)}) + "\n")
        else:
            print_page(epochs.page(), out)


def ui(
    files: Files,
    set_: Set,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 for any free one.")] = 8642,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often to look again.")] = 15,
    reports: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE|FOLDER",
            help="Where runs leave their reports (`lakelock run --report FILE`): the page shows the last failure. "
            "Repeat it for several.",
        ),
    ] = None,
    preview: Annotated[
        bool,
        typer.Option(
            "--preview",
            help="Also show some rows of the last epoch and the newest dead letters, to whoever sees the page.",
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Serve a page with all this in charts, on this machine.

    It shows where pipelines stand, their epochs and their dead letters. It is read-only.
    """
    with reported(debug):
        try:
            from connector.ui.server import is_loopback, serve
        except ImportError as error:
            raise ConfigurationError(
                f"`lakelock ui` needs {error.name}, which isn't installed.", hint="pip install 'lakelock[ui]'"
            ) from None
        if not is_loopback(host):
            rows = ", rows of the tables" if preview else ""
            err.print(
                f"[bold yellow]warning[/]: everybody who can reach {host} can read the page: names, offsets, "
                f"errors{rows}. "
                "The page has no login and no TLS.",
                soft_wrap=True,
            )
        serve(
            pipeline_files(files), set_, host=host, port=port, every=every, reports=reports or [],
            with_rows=preview, debug=debug,
            say=lambda url: out.print(f"{url}   (Ctrl-C ends it)", soft_wrap=True),
        )  # fmt: skip
