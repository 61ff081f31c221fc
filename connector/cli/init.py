"""``lakelock init`` and ``schema``: a pipeline file to start from, and what editors know about its options."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from connector.cli.console import out, pairs, reported
from connector.config.json_schema import json_schema
from connector.operations.from_topic import from_topic as of_topic
from sinks.errors import ConfigurationError
from sinks.plurals import plural

_SCHEMA = "pipeline.schema.json"
_FOR_EDITORS = (
    f"# yaml-language-server: $schema=./{_SCHEMA}\n"
    f"# Editors know the options by that file: `lakelock schema > {_SCHEMA}` makes it.\n"
)


def init(
    file: Annotated[Path | None, typer.Argument(help="Where to write the file; standard output if left out.")] = None,
    example: Annotated[
        str | None,
        typer.Option(
            help="Write this example instead: word_count, hourly_delays, aircraft_history or money_transfers."
        ),
    ] = None,
    from_topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC", help="Look at some records of this topic, and write a file with their columns and key."
        ),
    ] = None,
    kafka: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="With --from-topic: an option of Kafka's clients, as bootstrap.servers=HOST:PORT, which is "
            "127.0.0.1:9092 if left out. Write secrets as '${env:NAME}'. Repeat it for several.",
        ),
    ] = None,
) -> None:
    """Write a pipeline file to start from.

    One with comments, or --from-topic one that fits a topic.

    Beside it pipeline.schema.json is written if there is none: an editor that knows YAML completes and checks the
    options with it. `lakelock schema` makes it again.
    """
    with reported(debug=False):
        if from_topic is not None:
            if example is not None:
                raise ConfigurationError("Give either --example or --from-topic.")
            draft, looked_at = of_topic(from_topic, pairs(kafka or [], "--kafka", "bootstrap.servers=127.0.0.1:9092"))
            _write(file, draft.text, f"from {plural(looked_at, 'record')} of {from_topic}", draft.remarks)
            return
        examples = {each.name.removesuffix(".yaml"): each for each in files("connector").joinpath("examples").iterdir()}
        if example is not None and example not in examples:
            raise ConfigurationError(
                f"--example: there is no {example!r}.", hint=f"There are {', '.join(sorted(examples))}."
            )
        source = examples[example] if example else files("connector.cli").joinpath("pipeline.yaml")
        _write(file, source.read_text(encoding="utf-8"))


def schema() -> None:
    """Print the JSON schema of the pipeline file, for editors.

    lakelock schema > pipeline.schema.json
    """
    sys.stdout.write(_schema())


def _schema() -> str:
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _write(file: Path | None, text: str, how: str = "", remarks: Sequence[str] = ()) -> None:
    text = _FOR_EDITORS + text
    if file is None:
        sys.stdout.write(text)
        return
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise ConfigurationError(
            f"{str(file)!r} exists already, and was left as it is.", hint="Give another name."
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{str(file)!r} can't be written: {error.strerror}.") from None
    made = f"{file} written {how}".rstrip()
    with suppress(OSError), (file.parent / _SCHEMA).open("x", encoding="utf-8") as beside:
        beside.write(_schema())
        made += f", and {beside.name}, by which editors know the options"
    lines = (f"{made}.", *remarks, f"Look at the file, then: lakelock check {file}")
    out.print("\n".join(lines), soft_wrap=True, markup=False)
