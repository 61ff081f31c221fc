"""What reads a table without Spark needs of the pipeline file, and how it says that rows are behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import CommitProperties, Transaction, write_deltalake

from connector.operations.read_arrow import read_arrow
from sinks.errors import ConfigurationError, NotFolded

KAFKA = {
    "bootstrap.servers": "${env:NOT_SET_BROKERS}",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "${env:NOT_SET_USER}",
    "sasl.password": "${env:NOT_SET_PASSWORD}",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.certificates": "${file:/not/there}",
}


def file(folder: Path, name: str = "orders", **changes: Any) -> Path:
    written = folder / "orders.yaml"
    sink = {"type": "delta_upsert", "path": "orders", "key": "k", "merge": "on_read", "fold": {"epochs": 9}}
    options = {
        "name": name,
        "source": {"topics": "orders", "kafka": KAFKA},
        "value": {"format": "json", "schema": "k STRING, n INT"},
        "sinks": [{**sink, **changes}],
    }
    written.write_text(yaml.safe_dump(options))
    return written


def commit(to: Path, epoch: int) -> None:
    of_epoch = CommitProperties(
        app_transactions=[Transaction("orders", epoch)],
        custom_metadata={"userMetadata": json.dumps({"lakelock": 1, "pipeline": "orders", "epoch": epoch})},
    )
    write_deltalake(str(to), pa.table({"k": ["a"], "n": [epoch]}), mode="append", commit_properties=of_epoch)


def test_a_table_is_read_without_the_passwords_of_kafka(tmp_path: Path) -> None:
    commit(tmp_path / "orders", 1)
    assert read_arrow(file(tmp_path)).to_pylist() == [{"k": "a", "n": 1}]


def test_a_variable_that_names_the_table_has_to_be_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_arrow(file(tmp_path, path="${env:NOT_SET_FOLDER}/orders"))
    assert "NOT_SET_FOLDER isn't set" in str(caught.value)
    assert "NOT_SET_PASSWORD" not in str(caught.value)


def test_rows_that_are_behind_are_refused_and_the_hint_names_a_restored_table(tmp_path: Path) -> None:
    commit(tmp_path / "orders", 5)
    commit(tmp_path / "orders" / "_lakelock" / "changes", 8)
    with pytest.raises(NotFolded, match="as of epoch 5, and its change log has epoch 8") as caught:
        read_arrow(file(tmp_path))
    assert "If the table was restored" in caught.value.hint
    assert read_arrow(file(tmp_path), folded=True).num_rows == 1


@pytest.mark.parametrize("merge", ["on_read", "on_write"])
def test_a_file_with_another_name_gives_no_rows_that_are_behind(tmp_path: Path, merge: str) -> None:
    """The log's epochs are those of the name that wrote it. Who writes a file to read by may leave `merge` out."""
    more: dict[str, Any] = {"merge": merge, "name": "other"} | ({"fold": None} if merge == "on_write" else {})
    commit(tmp_path / "orders", 8)
    commit(tmp_path / "orders" / "_lakelock" / "changes", 8)
    assert read_arrow(file(tmp_path, **more)).num_rows == 1, "nothing waits for a fold"
    commit(tmp_path / "orders" / "_lakelock" / "changes", 9)
    with pytest.raises(NotFolded, match=r"of pipeline 'orders'.* The file's name is 'other'") as caught:
        read_arrow(file(tmp_path, **more))
    assert '`name: "orders"`' in caught.value.hint
    assert read_arrow(file(tmp_path, **more), folded=True).num_rows == 1
