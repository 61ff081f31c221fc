"""Which part may know which: the walls of the design, read from the imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imports(folder: str) -> Iterator[tuple[str, str]]:
    for file in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((str(file.relative_to(ROOT)), alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield from ((str(file.relative_to(ROOT)), f"{node.module}.{alias.name}") for alias in node.names)


def test_the_sinks_know_nothing_of_the_connector() -> None:
    assert [line for line in imports("sinks") if line[1].split(".")[0] == "connector"] == []


def test_the_protocol_is_pure() -> None:
    outside = {"pyspark", "kafka", "boto3", "delta", "time", "random", "os", "pathlib", "threading"}
    assert [line for line in imports("connector/protocol") if line[1].split(".")[0] in outside] == []


def test_the_contract_its_words_and_its_model_need_the_standard_library_only() -> None:
    pure = {"sinks/offsets.py", "sinks/contract.py", "sinks/errors.py", "sinks/memory.py", "sinks/conformance.py"}
    heavy = {"pyspark", "kafka", "boto3", "delta", "tenacity", "pydantic"}
    assert [line for line in imports("sinks") if line[0] in pure and line[1].split(".")[0] in heavy] == []


def test_the_auditor_shares_no_code_with_the_pipeline() -> None:
    # sinks.kafka: how to connect and log in is no part of what is audited.
    ours = {"connector.config", "connector.spark", "connector.audit", "sinks.errors", "sinks.kafka", "sinks.raised"}
    ours.add("sinks.types")
    for file, name in imports("connector/audit"):
        if name.split(".")[0] in ("connector", "sinks", "None"):
            assert ".".join(name.split(".")[:2]) in ours, file
        assert not name.startswith("sinks.raised.") or name in ("sinks.raised.identifier", "sinks.raised.literal"), file
    assert [
        line
        for line in imports("connector")
        if line[1].startswith("connector.audit")
        and not line[0].startswith("connector/audit/")
        and line[0] != "connector/cli.py"
        and not line[0].startswith("connector/lab/")
    ] == []


def test_nothing_but_the_lab_and_its_commands_imports_the_lab() -> None:
    known = [line for line in imports("connector") if line[1].startswith("connector.lab")]
    assert {file for file, _ in known if not file.startswith("connector/lab/")} <= {"connector/cli.py"}


def test_no_internal_api_of_spark_is_used() -> None:
    for folder in ("connector", "sinks"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                name = getattr(node, "attr", "")
                assert name not in {"_jvm", "_jsparkSession", "_jdf", "rdd", "sparkContext", "toPandas"}, file


def test_no_line_runs_a_shell() -> None:
    for folder in ("connector", "sinks", "tests"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.keyword) and node.arg == "shell":
                    raise AssertionError(f"{file} starts a shell")
