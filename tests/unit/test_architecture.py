"""Which part may know which: the order of the folders, and the walls between them, read from the imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("lakelock", "connector", "sinks")

ORDER = (
    "lakelock",
    "connector",  # its __init__.py hands on the public names
    "connector.cli",
    "connector.ui",
    "connector.watch",
    "connector.fleet",
    "connector.mirror",
    "connector.package",
    "connector.emr",
    "connector.lab",
    "connector.streaming",
    "connector.pipeline",
    "connector.audit",
    "connector.operations",
    "connector.engine",
    "connector.derive",
    "connector.state",
    "connector.decode",
    "connector.source",
    "connector.telemetry",
    "connector.delivery",
    "connector.config",
    "connector.protocol",
    "connector.display",
    "connector.spark",
    "sinks.conformance",
    "sinks.topic",
    "sinks.delta",
    "sinks.objects",
    "sinks.kafka",
    "sinks.spark",
    "sinks.s3",
    "sinks",
)
"""Of the packages: each imports only those below it, also within functions."""

MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 60


def files(folder: str = "") -> list[Path]:
    chosen = [folder] if folder else PACKAGES
    return [file for name in chosen for file in sorted((ROOT / name).rglob("*.py"))]


def imports(folder: str) -> Iterator[tuple[str, str]]:
    """Each import of a folder's files, wherever it stands: the file, and the full name of what it imports."""
    for file in files(folder):
        yield from ((str(file.relative_to(ROOT)), name) for name in imported(file))


@cache
def imported(file: Path) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def package(name: str) -> str | None:
    """The entry of `ORDER` that a module, or a name in it, belongs to; None where it isn't ours."""
    parts = name.split(".")
    return next((".".join(parts[:size]) for size in (2, 1) if ".".join(parts[:size]) in ORDER), None)


def test_every_package_has_its_place_in_the_order() -> None:
    folders = {f"{name}.{each.parent.name}" for name in PACKAGES[1:] for each in (ROOT / name).glob("*/__init__.py")}
    assert folders <= set(ORDER)


def test_no_package_imports_one_above_it() -> None:
    upwards = []
    for file, name in (line for folder in PACKAGES for line in imports(folder)):
        importer, imported = package(file.removesuffix(".py").replace("/", ".")), package(name)
        if importer is not None and imported is not None and ORDER.index(imported) < ORDER.index(importer):
            upwards.append((file, name))
    names_that_users_know = {
        ("connector/__main__.py", "connector.cli.main"),
        ("sinks/staging.py", "sinks.spark.staging.Staging"),
    }
    assert set(upwards) - names_that_users_know == set()


def test_the_top_of_the_connector_is_its_public_class_and_folders() -> None:
    names = {file.name for file in (ROOT / "connector").iterdir() if file.is_file()}
    assert names == {"__init__.py", "__main__.py", "pipeline.py", "py.typed"}


def test_only_the_commands_import_typer() -> None:
    found = {file for file, name in imports("connector") if name.split(".")[0] == "typer"}
    assert {file for file in found if not file.startswith("connector/cli/")} == set()


def test_the_deliveries_know_no_sink() -> None:
    concrete = ("sinks.delta", "sinks.objects", "sinks.topic")
    assert [line for line in imports("connector/delivery") if line[1].startswith(concrete)] == []


def test_which_sinks_a_pipeline_has_is_decided_in_one_file() -> None:
    sinks = {"sinks.delta.two_phase.TwoPhaseDelta", "sinks.objects.S3Objects", "sinks.topic.KafkaTopic"}
    assert {file for file, name in imports("connector/engine") if name in sinks} == {"connector/engine/outputs.py"}


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_is_read_in_one_sitting(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < MOST_LINES_OF_A_FUNCTION, node.name


def test_the_sinks_know_nothing_of_the_connector() -> None:
    assert [line for line in imports("sinks") if line[1].split(".")[0] in ("connector", "lakelock")] == []


def test_the_protocol_is_pure() -> None:
    outside = {"pyspark", "kafka", "boto3", "delta", "time", "random", "os", "pathlib", "threading"}
    assert [line for line in imports("connector/protocol") if line[1].split(".")[0] in outside] == []


def test_the_contract_its_words_and_its_model_need_the_standard_library_only() -> None:
    pure = {"sinks/offsets.py", "sinks/contract.py", "sinks/errors.py", "sinks/memory.py", "sinks/conformance.py"}
    heavy = {"pyspark", "kafka", "boto3", "delta", "pydantic"}
    assert [line for line in imports("sinks") if line[0] in pure and line[1].split(".")[0] in heavy] == []


def test_the_auditor_shares_no_code_with_the_pipeline() -> None:
    # sinks.kafka: how to connect and log in is no part of what is audited. Neither are words, nor how they are shown.
    shared = (
        "connector.audit", "connector.config", "connector.spark", "connector.display",
        "sinks.errors", "sinks.kafka", "sinks.plurals", "sinks.spark.sql", "sinks.spark.types",
    )  # fmt: skip
    for file, name in imports("connector/audit"):
        if name.split(".")[0] in ("connector", "sinks", "None"):
            assert any(name == each or name.startswith(f"{each}.") for each in shared), file
    allowed = ("connector/audit/", "connector/lab/", "connector/pipeline.py")
    users = {file for file, name in imports("connector") if name.startswith("connector.audit")}
    assert {file for file in users if not file.startswith(allowed)} == set()


def test_nothing_but_its_commands_imports_the_lab() -> None:
    users = {file for file, name in imports("connector") if name.startswith("connector.lab")}
    assert {file for file in users if not file.startswith(("connector/lab/", "connector/cli/"))} == set()


def test_no_internal_api_of_spark_is_used() -> None:
    for file in [*files("connector"), *files("sinks")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = getattr(node, "attr", "")
            assert name not in {"_jvm", "_jsparkSession", "_jdf", "rdd", "sparkContext", "toPandas"}, file


def test_no_session_of_lakelocks_is_made_the_active_one() -> None:
    """``createDataFrame`` does so. The module that may call it puts the active one back."""
    for file in [*files("connector"), *files("sinks")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if file != ROOT / "connector/spark/compat.py":
                assert getattr(node, "attr", "") != "createDataFrame", file


def test_no_line_runs_a_shell() -> None:
    for file in [*files(), *files("tests")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "shell":
                raise AssertionError(f"{file} starts a shell")
