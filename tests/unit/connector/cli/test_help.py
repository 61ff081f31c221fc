"""What ``--help`` shows."""

import pytest
from typer.testing import CliRunner

from connector.cli.app import app


@pytest.mark.parametrize("group", [[], ["lab"], ["emr"]])
def test_a_line_of_a_list_of_commands_is_a_whole_sentence(group: list[str]) -> None:
    said = CliRunner().invoke(app, [*group, "--help"], terminal_width=80).stdout
    listed = [line for line in said.splitlines() if line.startswith("  ") and line[2:3].isalpha()]
    assert listed
    assert [line for line in listed if "..." in line] == []


def test_the_commands_stand_in_the_order_of_a_first_hour() -> None:
    said = CliRunner().invoke(app, ["--help"]).stdout
    first = said.partition("First steps, in this order:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in first.splitlines()] == ["init", "check", "preview", "run", "verify", "ui"]
    # Each command is under one heading.
    names = [line.split()[0] for line in said.partition("First steps")[2].splitlines() if line.startswith("  ")]
    assert {"lab", "emr", "dead-letters", "schema"} <= set(names)
    assert {name: names.count(name) for name in app_commands()} == dict.fromkeys(app_commands(), 1)


def app_commands() -> list[str]:
    return [each.callback.__name__.replace("_", "-") for each in app.registered_commands if each.callback is not None]
