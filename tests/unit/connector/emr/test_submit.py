"""What `lakelock emr submit` refuses before anything is uploaded."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from connector.cli import emr
from connector.cli.app import app

SERVERLESS = ("--application-id", "00f", "--role-arn", "arn:aws:iam::1:role/r")
CLUSTER = ("--cluster-id", "j-1")


class UploadedError(Exception):
    """All checks have passed."""


def submitted(folder: Path, path: str, *arguments: str, **value: Any) -> tuple[int, str]:
    file = folder / "flights.yaml"
    options = {
        "name": "flights",
        "source": {"topics": ["flights"], "kafka": {"bootstrap.servers": "${env:KAFKA}"}},
        "value": {"format": "string", **value},
        "sinks": [{"type": "delta_append", "path": path}],
    }
    file.write_text(yaml.safe_dump(options))
    done = CliRunner().invoke(app, ["emr", "submit", str(file), "--s3-folder", "s3://b/jobs", *arguments])
    return done.exit_code, " ".join(done.output.split())


@pytest.mark.parametrize(
    ("path", "arguments", "said"),
    [
        ("lake/flights", SERVERLESS, "sinks[0].path: 'lake/flights' is a folder beside the pipeline file"),
        ("lake/flights", CLUSTER, "sinks[0].path: 'lake/flights' is a folder beside the pipeline file"),
        ("s3a://b/t", (*CLUSTER, "--set", "sinks[0].path=lake/t"), "sinks[0].path: 'lake/t' is a folder beside"),
        ("lake/flights", (*CLUSTER, "--set", "sinks[0].path=s3a://b/t"), ""),
        ("/lake/flights", SERVERLESS, "/lake/flights: a folder of a job on EMR Serverless ends with the job"),
        ("/lake/flights", CLUSTER, ""),  # of the cluster's own file system, which stays
        ("s3a://b/flights", SERVERLESS, ""),
        ("${env:LAKE}/flights", SERVERLESS, ""),
    ],
)
def test_a_job_never_fills_a_table_that_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, arguments: tuple[str, ...], said: str
) -> None:
    def upload(*_: object) -> None:
        raise UploadedError

    monkeypatch.setattr(emr, "_job", lambda *_: None)
    monkeypatch.setattr(emr, "s3_client", upload)
    code, output = submitted(tmp_path, path, *arguments)
    assert (code, (said or "UploadedError") in output) == (2 if said else 1, True)


def test_a_schema_in_a_file_of_its_own_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "flight.avsc").write_text('"string"')
    code, output = submitted(tmp_path, "s3a://b/t", *CLUSTER, format="avro", schema_file="flight.avsc")
    assert (code, "flight.avsc: a job on EMR has its pipeline file only" in output) == (2, True)
