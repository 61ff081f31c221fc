"""One run as a job of EMR: on EMR Serverless, or as a step of a cluster. To be started, looked at and cancelled."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from connector.spark.session import DELTA

DELTA_OF_EMR = ("/usr/share/aws/delta/lib/delta-spark.jar", "/usr/share/aws/delta/lib/delta-storage.jar")
"""Every release carries its own Delta there, made for its Spark."""
ENVIRONMENT = "environment"
"""The folder that Python packages are unpacked to, in the working directory of the driver and of each executor."""

_PYTHON = f"./{ENVIRONMENT}/bin/python"
# $1 is the archive, the rest spark-submit's. YARN unpacks archives for executors only, where the driver is a step.
_UNPACK = (
    f'set -e; aws s3 cp --only-show-errors "$1" {ENVIRONMENT}.tar.gz; mkdir {ENVIRONMENT}; '
    f'tar -xzf {ENVIRONMENT}.tar.gz -C {ENVIRONMENT}; shift; exec spark-submit "$@"'
)


@dataclass(frozen=True)
class Run:
    """What is to be run. Every place is a URL in S3."""

    name: str
    entry_point: str
    arguments: Sequence[str]
    """Of the entry point: ``run``, the pipeline file, options."""
    jars: Sequence[str] = ()
    archive: str | None = None
    """Python packages, with ``bin/python`` in it; None: EMR's own Python has them (an image, a bootstrap action)."""
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """Of Spark, wherever on EMR it runs. The user's own go before them."""
        settings = {"spark.jars": ",".join([*DELTA_OF_EMR, *self.jars]), **DELTA}
        if self.archive is not None:
            settings["spark.archives"] = f"{self.archive}#{ENVIRONMENT}"
        return settings


@dataclass(frozen=True)
class State:
    word: str
    """EMR's own, as RUNNING."""
    message: str = ""
    end: Literal["done", "failed"] | None = None
    """None: not yet."""


class Job(Protocol):
    """A run at EMR. The methods raise what boto3 raises."""

    id: str

    def start(self, run: Run) -> None: ...

    def state(self) -> State: ...

    def cancel(self) -> None:
        """Ask for its end: a run that is ended anywhere leaves whole epochs only."""

    def log(self, stream: Literal["stdout", "stderr"]) -> str | None:
        """Where EMR puts what the driver writes; None: nowhere."""

    @property
    def look(self) -> str:
        """A command of AWS's own that shows it."""

    @property
    def stop(self) -> str:
        """And one that cancels it."""


@dataclass
class ServerlessJob:
    client: Any
    application: str
    role: str
    log_uri: str
    id: str = ""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Of this submission: a request that is repeated because its answer was lost starts nothing more."""

    def start(self, run: Run) -> None:
        settings = run.settings
        if run.archive is not None:
            for process in (
                "emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON",
                "emr-serverless.driverEnv.PYSPARK_PYTHON",
            ):
                settings[f"spark.{process}"] = _PYTHON
            settings["spark.executorEnv.PYSPARK_PYTHON"] = _PYTHON
        started = self.client.start_job_run(
            applicationId=self.application,
            executionRoleArn=self.role,
            clientToken=self.token,
            name=run.name,
            jobDriver={
                "sparkSubmit": {"entryPoint": run.entry_point, "entryPointArguments": list(run.arguments)},
            },
            configurationOverrides={
                # Not sparkSubmitParameters: that is one line, which EMR takes apart again at its blanks.
                "applicationConfiguration": [
                    {"classification": "spark-defaults", "properties": {**settings, **run.conf}}
                ],
                "monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": f"{self.log_uri}/"}},
            },
        )
        self.id = started["jobRunId"]

    def state(self) -> State:
        found = self.client.get_job_run(applicationId=self.application, jobRunId=self.id)["jobRun"]
        ends: dict[str, Literal["done", "failed"]] = {"SUCCESS": "done", "FAILED": "failed", "CANCELLED": "failed"}
        return State(found["state"], found.get("stateDetails") or "", ends.get(found["state"]))

    def cancel(self) -> None:
        self.client.cancel_job_run(applicationId=self.application, jobRunId=self.id)

    def log(self, stream: Literal["stdout", "stderr"]) -> str | None:
        return f"{self.log_uri}/applications/{self.application}/jobs/{self.id}/SPARK_DRIVER/{stream}.gz"

    @property
    def look(self) -> str:
        return f"aws emr-serverless get-job-run --application-id {self.application} --job-run-id {self.id}"

    @property
    def stop(self) -> str:
        return f"aws emr-serverless cancel-job-run --application-id {self.application} --job-run-id {self.id}"


@dataclass
class ClusterStep:
    client: Any
    cluster: str
    log_uri: str | None
    """None: the cluster's own, if it has one."""
    id: str = ""

    def start(self, run: Run) -> None:
        if self.log_uri is None:
            found = self.client.describe_cluster(ClusterId=self.cluster)["Cluster"].get("LogUri")
            self.log_uri = found and found.replace("s3n://", "s3://").rstrip("/")
        # In client mode the driver's output is the step's, and its exit code too.
        step = {
            "Name": run.name,
            # Another step, or another run of this one, isn't to be ended with it.
            "ActionOnFailure": "CONTINUE",
            "HadoopJarStep": {"Jar": "command-runner.jar", "Args": command(run)},
        }
        # There is no token here: a step that is started twice, as an answer was lost, is two runs, of which one is
        # fenced, or finds nothing to do.
        (self.id,) = self.client.add_job_flow_steps(JobFlowId=self.cluster, Steps=[step])["StepIds"]

    def state(self) -> State:
        status = self.client.describe_step(ClusterId=self.cluster, StepId=self.id)["Step"]["Status"]
        word = status["State"]
        failed = word in ("CANCELLED", "FAILED", "INTERRUPTED")
        details = [
            status.get(part, {}).get(name)
            for part, name in (("StateChangeReason", "Message"), ("FailureDetails", "Reason"))
        ]
        return State(
            word, ", ".join(filter(None, details)), "done" if word == "COMPLETED" else "failed" if failed else None
        )

    def cancel(self) -> None:
        # SIGTERM rather than SIGKILL: the run ends after its epoch.
        self.client.cancel_steps(ClusterId=self.cluster, StepIds=[self.id], StepCancellationOption="SEND_INTERRUPT")

    def log(self, stream: Literal["stdout", "stderr"]) -> str | None:
        return f"{self.log_uri}/{self.cluster}/steps/{self.id}/{stream}.gz" if self.log_uri else None

    @property
    def look(self) -> str:
        return f"aws emr describe-step --cluster-id {self.cluster} --step-id {self.id}"

    @property
    def stop(self) -> str:
        return (
            f"aws emr cancel-steps --cluster-id {self.cluster} --step-ids {self.id} "
            "--step-cancellation-option SEND_INTERRUPT"
        )


def command(run: Run) -> list[str]:
    """Of a step. Every argument stays one: the shell's text is always the same, and takes them as ``"$@"``."""
    settings = run.settings
    if run.archive is not None:
        settings["spark.pyspark.python"] = _PYTHON
    submit = ["--deploy-mode", "client", "--name", run.name]
    for name, value in {**settings, **run.conf}.items():
        submit += ["--conf", f"{name}={value}"]
    submit += [run.entry_point, *run.arguments]
    if run.archive is None:
        return ["spark-submit", *submit]
    return ["bash", "-c", _UNPACK, "lakelock", run.archive, *submit]
