"""`lakelock emr submit` against a server that answers as AWS does. EMR itself isn't here: what it would do with the job
(take it through its states, run it, bring its log to S3) the tests do."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pyspark
import pytest
from click.testing import Result
from conftest import Store, Topic, wait_until
from deltalake import DeltaTable
from typer.testing import CliRunner

from connector.cli import emr as commands
from connector.cli.app import app
from connector.emr import driver_log
from connector.emr.jobs import Run, ServerlessJob
from connector.spark import jars

ROLE = "arn:aws:iam::123456789012:role/lakelock-job"
PIPELINE = """
name: flights
source:
  topics: [flights]
  kafka: {bootstrap.servers: "${env:KAFKA}"}
value: {format: json, schema: "carrier STRING"}
sinks: [{type: delta_append, path: "s3a://lake/flights"}]
"""
DONE = "flights: done. 3 epochs, 300 rows written in 9.1 s; the table is at epoch 3, 0 offsets behind.\n"


class Emr:
    """EMR Serverless with one application, EMR with one cluster, and a bucket for their files and logs."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.serverless, self.emr = (self._client(name) for name in ("emr-serverless", "emr"))
        self.application: str = self.serverless.create_application(
            name="lakelock", releaseLabel="emr-6.15.0", type="SPARK", clientToken="t"
        )["applicationId"]
        self.cluster: str = self.emr.run_job_flow(
            Name="lakelock",
            LogUri=f"s3n://{store.bucket}/clusters/",
            Instances={"MasterInstanceType": "m5.xlarge", "InstanceCount": 1, "KeepJobFlowAliveWhenNoSteps": True},
        )["JobFlowId"]
        self.file = folder / "flights.yaml"
        self.file.write_text(PIPELINE, encoding="utf-8")
        self.url = f"s3://{store.bucket}/jobs"

    def _client(self, name: str) -> Any:
        return boto3.client(name, endpoint_url=self.store.endpoint, region_name="us-east-1")

    def submit(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "connector", "emr", "submit", str(self.file), "--s3-folder", self.url]
        return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def result(self, *arguments: str) -> Result:
        """In this process: to start one takes longer than all that the command does."""
        return CliRunner().invoke(app, ["emr", "submit", str(self.file), "--s3-folder", self.url, *arguments])

    def on_serverless(self, *arguments: str) -> subprocess.Popen[str]:
        return self.submit("--application-id", self.application, "--role-arn", ROLE, *arguments)

    def job(self) -> Any:
        """The job that was started last, as the server has it: to be taken through its states."""
        from moto.backends import get_backend

        runs = get_backend("emr-serverless")["123456789012"]["us-east-1"].job_runs
        wait_until(lambda: runs.get(self.application), what="a job")
        return runs[self.application][-1]

    def step(self) -> Any:
        from moto.backends import get_backend

        steps = get_backend("emr")["123456789012"]["us-east-1"].clusters[self.cluster].steps
        wait_until(lambda: steps, what="a step")
        return steps[-1]

    def put_log(self, key: str, text: str) -> None:
        self.store.client.put_object(Bucket=self.store.bucket, Key=key, Body=gzip.compress(text.encode()))

    def ends(self, job: Any, state: str, stdout: str | None, stderr: str = "") -> None:
        """As on EMR Serverless: the log is in S3 when the job has ended."""
        place = f"jobs/logs/applications/{self.application}/jobs/{job.id}/SPARK_DRIVER"
        if stdout is not None:
            self.put_log(f"{place}/stderr.gz", stderr)
            self.put_log(f"{place}/stdout.gz", stdout)
        job.state = state


@pytest.fixture
def emr(s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Emr:
    # The server knows no state but the last: what is started waits until the test says how it goes on.
    monkeypatch.setattr("moto.emrserverless.models.JOB_STATUS", "SUBMITTED")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    return Emr(s3, tmp_path)


@pytest.mark.breadth
def test_a_run_is_started_followed_and_ends_with_its_last_lines(emr: Emr) -> None:
    archive, kafka = "s3://jobs/environment.tar.gz", "s3://jobs/jars/kafka.jar"
    command = emr.on_serverless(
        "--archives", archive, "--jars", kafka, "--set", "source.start=latest", "--conf", "spark.executor.memory=4g"
    )
    job = emr.job()
    assert command.stderr is not None
    assert f"job {job.id} started" in command.stderr.readline()
    assert "flights: SUBMITTED" in command.stderr.readline()
    job.state = "RUNNING"
    assert "flights: RUNNING" in command.stderr.readline()
    emr.ends(job, "SUCCESS", "something of Spark's\n" + DONE)
    out, errors = command.communicate(timeout=60)
    assert (command.returncode, out) == (0, "something of Spark's\n" + DONE)
    assert re.fullmatch(r"flights: SUCCESS, \d+ s\n", errors), "a line per change of state"

    driver = job.job_driver["sparkSubmit"]
    run, file, *options = driver["entryPointArguments"]
    assert (run, options) == ("run", ["--set", "source.start=latest"])
    assert emr.store.client.get_object(Bucket=emr.store.bucket, Key=file.split("/", 3)[3])["Body"].read().decode() == (
        PIPELINE
    )
    (spark,) = job.configuration_overrides["applicationConfiguration"]
    properties = spark["properties"]
    assert properties["spark.jars"].split(",")[-1] == kafka
    assert all(
        jar in properties["spark.jars"] for jar in (f"lakelock-{name}.jar" for name in ("s3", "kafka", "protobuf"))
    )
    assert properties["spark.archives"] == f"{archive}#environment"
    assert properties["spark.executorEnv.PYSPARK_PYTHON"] == "./environment/bin/python"
    assert properties["spark.executor.memory"] == "4g"


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("state", "stdout", "code"),
    [
        ("SUCCESS", "flights: stopped. 1 epoch, 9 rows written in 2.0 s.\n", 0),
        ("SUCCESS", "flights: done. 3 epochs, 300 rows written in 9.1 s.\n", 0),
        ("FAILED", "flights: failed, exit code 1. Nothing was begun.\n", 1),
        ("FAILED", "flights.yaml: refused, exit code 2. Nothing was begun.\n", 2),
        ("FAILED", "flights: fenced, exit code 3. 1 epoch, 9 rows written in 2.0 s.\nand a line of Spark's\n", 3),
    ],
)
def test_it_ends_with_the_exit_code_of_the_run(emr: Emr, state: str, stdout: str, code: int) -> None:
    emr_does = threading.Thread(target=lambda: emr.ends(emr.job(), state, stdout, "error: why it ended\n"))
    emr_does.start()
    done = emr.result("--application-id", emr.application, "--role-arn", ROLE)
    emr_does.join()
    assert (done.exit_code, done.stdout) == (code, stdout)
    assert ("error: why it ended" in done.stderr) == (code > 0)


def test_a_step_of_a_cluster_is_followed_and_its_log_read_where_the_cluster_keeps_it(emr: Emr) -> None:
    def emr_does() -> None:
        step = emr.step()
        emr.put_log(f"clusters/{emr.cluster}/steps/{step.id}/stdout.gz", "flights: fenced, exit code 3. 0 epochs.\n")
        step.state = "FAILED"

    thread = threading.Thread(target=emr_does)
    thread.start()
    done = emr.result("--cluster-id", emr.cluster, "--archives", "s3://jobs/environment.tar.gz#environment")
    thread.join()
    assert (done.exit_code, done.stdout) == (3, "flights: fenced, exit code 3. 0 epochs.\n")
    assert "flights: FAILED" in done.stderr
    step = emr.step()
    assert step.jar == "command-runner.jar"
    assert step.action_on_failure == "CONTINUE"
    assert step.args[:2] == ["bash", "-c"]
    assert step.args[3:5] == ["lakelock", "s3://jobs/environment.tar.gz"]


def test_a_step_unpacks_its_packages_and_hands_every_argument_on_as_it_is(tmp_path: Path) -> None:
    from connector.emr.jobs import command

    for name, text in {
        "aws": 'shift 3; cp "$(basename "$1")" "$2"',
        "spark-submit": 'for each in "$@"; do echo "$each"; done; ls environment',
    }.items():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "python").touch()
    subprocess.run(["tar", "-czf", "packed.tar.gz", "python"], cwd=tmp_path, check=True)
    odd = "a b; $(touch broken) \"'"
    run = Run("flights", "s3://b/run.py", ["run", "s3://b/flights.yaml", "--set", odd], archive="s3://b/packed.tar.gz")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        command(run), cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert done[-5:] == ["run", "s3://b/flights.yaml", "--set", odd, "python"]
    assert "spark.pyspark.python=./environment/bin/python" in done
    assert not (tmp_path / "broken").exists()


@pytest.mark.breadth
def test_what_is_uploaded_is_what_runs_there(emr: Emr) -> None:
    """The driver's part, without Spark: the variable that the file needs isn't set there, so it ends before."""
    command = emr.on_serverless()
    job = emr.job()
    driver = job.job_driver["sparkSubmit"]
    entry = emr.folder / "entry.py"
    emr.store.client.download_file(emr.store.bucket, driver["entryPoint"].split("/", 3)[3], str(entry))
    there = subprocess.run([sys.executable, str(entry), *driver["entryPointArguments"]], capture_output=True, text=True)
    assert there.returncode == 2, there.stderr
    emr.ends(job, "FAILED", there.stdout, there.stderr)
    out, errors = command.communicate(timeout=60)
    assert (command.returncode, out) == (2, "flights.yaml: refused, exit code 2. Nothing was begun.\n")
    assert "KAFKA isn't set" in errors


@pytest.mark.breadth
def test_a_job_is_run_by_spark_submit_from_what_was_submitted(emr: Emr, topic: Topic) -> None:
    """All but EMR itself: its own jars are ours, and its master is this machine."""
    topic.send_rows((f"k{number}", number) for number in range(300))
    table = emr.folder / "table"
    emr.file.write_text(
        f"""
name: flights
source: {{topics: [{topic.name}], kafka: {{bootstrap.servers: "${{env:KAFKA}}"}}}}
value: {{format: json, schema: "k STRING, n INT"}}
sinks: [{{type: delta_append, path: "file:{table}"}}]
"""
    )
    command = emr.on_serverless()
    job = emr.job()
    driver = job.job_driver["sparkSubmit"]
    entry = emr.folder / "run.py"
    emr.store.client.download_file(emr.store.bucket, driver["entryPoint"].split("/", 3)[3], str(entry))
    (spark,) = job.configuration_overrides["applicationConfiguration"]
    ours = ",".join(map(str, [*jars.find("spark"), *jars.own()]))
    submit = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local[2]"]
    for name, value in {**spark["properties"], "spark.jars": ours, "spark.ui.enabled": "false"}.items():
        submit += ["--conf", f"{name}={value}"]
    there = subprocess.run(
        [*submit, entry, *driver["entryPointArguments"]],
        capture_output=True, text=True, cwd=emr.folder,
        env={
            **os.environ,
            "KAFKA": topic.broker.bootstrap,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(Path(__file__).parents[2]),
        },
    )  # fmt: skip
    emr.ends(job, "SUCCESS" if there.returncode == 0 else "FAILED", there.stdout, there.stderr)
    out, _ = command.communicate(timeout=60)
    assert command.returncode == 0, (there.stdout + there.stderr)[-3000:]
    assert "flights: done. 1 epoch, 300 rows written" in out
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 300


def test_ctrl_c_stops_the_waiting_and_not_the_job(emr: Emr) -> None:
    command = emr.on_serverless()
    job = emr.job()
    assert command.stderr is not None
    assert "started" in command.stderr.readline()
    command.stderr.readline()
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=60)
    assert command.returncode == 130
    assert job.state == "SUBMITTED"
    assert f"aws emr-serverless cancel-job-run --application-id {emr.application} --job-run-id {job.id}" in errors


def test_a_job_that_takes_too_long_is_cancelled(emr: Emr) -> None:
    job = ServerlessJob(emr.serverless, emr.application, ROLE, emr.url)
    job.start(Run("flights", "s3://b/run.py", ["run", "s3://b/flights.yaml"]))
    end, in_time = commands._wait(job, "flights", minutes=0)
    assert (end.word, end.end, in_time) == ("CANCELLED", "failed", False)


@pytest.mark.parametrize(("state", "code"), [("SUCCESS", 0), ("FAILED", 1)])
def test_without_a_last_line_the_state_counts(emr: Emr, state: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(commands._LOG_WITHIN, "serverless", 0.1)
    emr_does = threading.Thread(target=lambda: emr.ends(emr.job(), state, "Killed\n"))
    emr_does.start()
    done = emr.result("--application-id", emr.application, "--role-arn", ROLE)
    emr_does.join()
    assert (done.exit_code, done.stdout) == (code, "Killed\n")
    assert f"the job's state counts: {state}" in done.stderr


@pytest.mark.parametrize(("state", "code"), [("SUCCESS", 0), ("FAILED", 1)])
def test_a_log_that_may_not_be_read_makes_no_other_end_of_a_run(emr: Emr, state: str, code: int) -> None:
    logs = f"arn:aws:s3:::{emr.store.bucket}/jobs/logs/*"
    refused = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject", "Resource": logs}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [refused]})
    emr.store.client.put_bucket_policy(Bucket=emr.store.bucket, Policy=policy)
    emr_does = threading.Thread(target=lambda: emr.ends(emr.job(), state, DONE))
    emr_does.start()
    done = emr.result("--application-id", emr.application, "--role-arn", ROLE)
    emr_does.join()
    assert done.exit_code == code, done.stderr
    assert f"can't be read, so the job's state counts: {state}" in done.stderr
    assert "s3:GetObject" in done.stderr
    assert "cancel it" not in done.stderr


def test_a_request_that_is_repeated_has_the_same_token(emr: Emr) -> None:
    job = ServerlessJob(emr.serverless, emr.application, ROLE, emr.url)
    run = Run("flights", "s3://b/run.py", ["run", "s3://b/flights.yaml"])
    job.start(run)
    first = emr.job().client_token
    job.start(run)
    assert (emr.job().client_token, first) == (job.token, job.token)
    assert ServerlessJob(emr.serverless, emr.application, ROLE, emr.url).token != job.token


def test_a_log_that_comes_late_is_waited_for_and_one_that_never_comes_isnt_for_ever(emr: Emr) -> None:
    s3, url = emr.store.client, f"s3://{emr.store.bucket}/stdout.gz"
    began = time.monotonic()
    assert driver_log.wait_for_end(s3, url, 0.2, every=0.05) == ""
    assert 0.2 <= time.monotonic() - began < 5
    emr.put_log("stdout.gz", "as far as it has come\n")
    threading.Timer(0.3, lambda: emr.put_log("stdout.gz", "line\n" * 100 + DONE)).start()
    log = driver_log.wait_for_end(s3, url, 30, every=0.05)
    assert log.endswith(DONE.strip())
    assert len(log.splitlines()) < 100, "only its end"


@pytest.mark.breadth
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda emr: [], "--application-id"),
        (lambda emr: ["--application-id", emr.application], "--role-arn is missing"),
        (lambda emr: ["--cluster-id", emr.cluster, "--role-arn", ROLE], "--role-arn is for EMR Serverless"),
        (lambda emr: ["--application-id", "0none", "--role-arn", ROLE], "Check that --application-id exists"),
        (lambda emr: ["--cluster-id", "j-none"], "j-none"),
        (lambda emr: ["--cluster-id", emr.cluster, "--jars", "kafka.jar"], "--jars: write s3://bucket/path"),
        (lambda emr: ["--cluster-id", emr.cluster, "--conf", "memory"], "--conf 'memory'"),
        (lambda emr: ["--cluster-id", emr.cluster, "--set", "source.kafka.sasl.mechanism=NO"], "sasl.mechanism"),
        (lambda emr: ["--cluster-id", emr.cluster, "--set", "sinks[0].mode=x"], "sinks[0].mode: unknown option"),
        (lambda emr: ["--cluster-id", emr.cluster, "--s3-folder", "s3://no-such-bucket-1/x"], "Check --s3-folder"),
    ],
)
def test_what_is_wrong_is_named_with_its_option(emr: Emr, change: Callable[[Emr], list[str]], told: str) -> None:
    done = emr.result(*change(emr))
    assert (done.exit_code, told in done.stderr) == (2, True), done.stderr
