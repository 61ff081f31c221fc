"""One run as a job of EMR, on EMR Serverless or as a step of a cluster: start it, look at it, cancel it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from connector.spark import jars
from connector.spark.session import DELTA

DELTA_OF_EMR = ("/usr/share/aws/delta/lib/delta-spark.jar", "/usr/share/aws/delta/lib/delta-storage.jar")
"""Where every release of EMR has its own Delta, built for its Spark."""
OWN_JARS = (jars.LOG_STORE_JAR, jars.READER_JAR, jars.PROTOBUF_JAR, jars.JSON_JAR)
"""Lakelock's own, which every job takes along."""
ENVIRONMENT = "environment"
"""The folder of unpacked Python packages, in the working directory of the driver and of each executor."""

_PYTHON = f"./{ENVIRONMENT}/bin/python"
# $1 is the archive, the other arguments are spark-submit's. If the driver is a step, YARN unpacks archives for
# executors only.
_UNPACK = (
    f'set -e; aws s3 cp --only-show-errors "$1" {ENVIRONMENT}.tar.gz; mkdir {ENVIRONMENT}; '
    f'tar -xzf {ENVIRONMENT}.tar.gz -C {ENVIRONMENT}; shift; exec spark-submit "$@"'
)


@dataclass(frozen=True)
class Run:
    """What a job runs. Every place is a URL in S3."""

    name: str
    entry_point: str
    arguments: Sequence[str]
    """Arguments of the entry point: ``run``, the pipeline file, options."""
    jars: Sequence[str] = ()
    archive: str | None = None
    """Python packages, with ``bin/python``. None: EMR's own Python has them (an image, a bootstrap action)."""
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """Spark's settings, wherever on EMR the job runs. The user's own settings override them."""
        settings = {"spark.jars": ",".join([*DELTA_OF_EMR, *self.jars]), **DELTA}
        if self.archive is not None:
            settings["spark.archives"] = f"{self.archive}#{ENVIRONMENT}"
        return settings


@dataclass(frozen=True)
class State:
    """What EMR says of a job."""

    word: str
    """EMR's own word, for example RUNNING."""
    message: str = ""
    end: Literal["done", "failed"] | None = None
    """None: the job hasn't ended yet."""


class Job(Protocol):
    """A run at EMR. The methods raise what boto3 raises."""

    id: str

    def start(self, run: Run) -> None:
        """Submit the run, and set ``id``."""

    def state(self) -> State:
        """Ask EMR how the job stands."""

    def cancel(self) -> None:
        """Ask EMR to end the job. A run leaves whole epochs only, wherever it is ended."""

    def log(self, stream: Literal["stdout", "stderr"]) -> str | None:
        """URL of the driver's log; None if EMR keeps none."""

    @property
    def look(self) -> str:
        """The `aws` command that shows the job."""

    @property
    def stop(self) -> str:
        """The `aws` command that cancels the job."""


@dataclass
class ServerlessJob:
    """A job of an application of EMR Serverless; see `Job`."""

    client: Any
    application: str
    role: str
    log_uri: str
    id: str = ""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Identifies this submission: a request that is repeated because its answer was lost starts no second job."""

    def start(self, run: Run) -> None:
        """Submit the run, and set ``id``. Raises what boto3 raises."""
        started = self.client.start_job_run(clientToken=self.token, **self.request(run))
        self.id = started["jobRunId"]

    def request(self, run: Run) -> dict[str, Any]:
        """The run as StartJobRun takes it, without a token."""
        settings = run.settings
        if run.archive is not None:
            for process in (
                "emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON",
                "emr-serverless.driverEnv.PYSPARK_PYTHON",
            ):
                settings[f"spark.{process}"] = _PYTHON
            settings["spark.executorEnv.PYSPARK_PYTHON"] = _PYTHON
        return {
            "applicationId": self.application,
            "executionRoleArn": self.role,
            "name": run.name,
            "jobDriver": {
                "sparkSubmit": {"entryPoint": run.entry_point, "entryPointArguments": list(run.arguments)},
            },
            "configurationOverrides": {
                # Not sparkSubmitParameters: that is one line, which EMR splits at blanks.
                "applicationConfiguration": [
                    {"classification": "spark-defaults", "properties": {**settings, **run.conf}}
                ],
                "monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": f"{self.log_uri}/"}},
            },
        }

    def state(self) -> State:
        """Ask EMR how the job stands."""
        job_run = self.client.get_job_run(applicationId=self.application, jobRunId=self.id)["jobRun"]
        ends: dict[str, Literal["done", "failed"]] = {"SUCCESS": "done", "FAILED": "failed", "CANCELLED": "failed"}
        return State(job_run["state"], job_run.get("stateDetails") or "", ends.get(job_run["state"]))

    def cancel(self) -> None:
        """Ask EMR to end the job. A run leaves whole epochs only, wherever it is ended."""
        self.client.cancel_job_run(applicationId=self.application, jobRunId=self.id)

    def log(self, stream: Literal["stdout", "stderr"]) -> str | None:
        """URL of the driver's log."""
        return f"{self.log_uri}/applications/{self.application}/jobs/{self.id}/SPARK_DRIVER/{stream}.gz"

    @property
    def look(self) -> str:
        """The `aws` command that shows the job."""
        return f"aws emr-serverless get-job-run --application-id {self.application} --job-run-id {self.id}"

    @property
    def stop(self) -> str:
        """The `aws` command that cancels the job."""
        return f"aws emr-serverless cancel-job-run --application-id {self.application} --job-run-id {self.id}"


@dataclass
class ClusterStep:
    """A step of a cluster; see `Job`."""

    client: Any
    cluster: str
    log_uri: str | None
    """None: the cluster's own place for logs, if it has one."""
    id: str = ""

    def start(self, run: Run) -> None:
        """Submit the run, and set ``id``. Raises what boto3 raises."""
        if self.log_uri is None:
            of_cluster = self.client.describe_cluster(ClusterId=self.cluster)["Cluster"].get("LogUri")
            self.log_uri = of_cluster and of_cluster.replace("s3n://", "s3://").rstrip("/")
        # In client mode the step has the driver's output and exit code.
        step = {
            "Name": run.name,
            # A failed run must not end other steps, or the cluster.
            "ActionOnFailure": "CONTINUE",
            "HadoopJarStep": {"Jar": "command-runner.jar", "Args": command(run)},
        }
        # Steps have no token. If an answer is lost and the step starts twice, one of the two runs is fenced, or finds
        # nothing to do.
        (self.id,) = self.client.add_job_flow_steps(JobFlowId=self.cluster, Steps=[step])["StepIds"]

    def state(self) -> State:
        """Ask EMR how the job stands."""
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
        """Ask EMR to end the job. A run leaves whole epochs only, wherever it is ended."""
        # SIGTERM rather than SIGKILL, so that the run ends after its epoch.
        self.client.cancel_steps(ClusterId=self.cluster, StepIds=[self.id], StepCancellationOption="SEND_INTERRUPT")

    def log(self, stream: Literal["stdout", "stderr"]) -> str | None:
        """URL of the driver's log; None if the cluster keeps none."""
        return f"{self.log_uri}/{self.cluster}/steps/{self.id}/{stream}.gz" if self.log_uri else None

    @property
    def look(self) -> str:
        """The `aws` command that shows the job."""
        return f"aws emr describe-step --cluster-id {self.cluster} --step-id {self.id}"

    @property
    def stop(self) -> str:
        """The `aws` command that cancels the job."""
        return (
            f"aws emr cancel-steps --cluster-id {self.cluster} --step-ids {self.id} "
            "--step-cancellation-option SEND_INTERRUPT"
        )


def command(run: Run) -> list[str]:
    """The command of a step. The shell's text is fixed and takes the arguments as ``"$@"``, so none is split."""
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
