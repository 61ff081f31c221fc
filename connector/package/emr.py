"""What a job on EMR Serverless needs in S3, a script that makes the rest of it, and the job itself."""

from __future__ import annotations

import json
from collections.abc import Sequence

from connector.emr.jobs import ENVIRONMENT, OWN_JARS, Run, ServerlessJob
from connector.package.job import Folder, Job, driver, filled
from connector.package.wheel import cluster_wheel
from sinks.errors import ConfigurationError

KAFKA_JARS = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2")
"""What EMR lacks. The version of each is that of the release's Spark, so their file names have none."""


def folder(job: Job, s3_folder: str, application: str, role: str, spark: str) -> Folder:
    """What goes to ``s3_folder``, and the job. ``spark``: the release's version. Raises ConfigurationError."""
    job.refuse_endless("EMR Serverless")
    _refuse_files(job)
    (pipeline,) = job.pipelines
    wheel, content = cluster_wheel(job.all_of(lambda each: each.extras))
    conf = {f"spark.emr-serverless.driverEnv.{name}": value for name, value in job.variables.items()}
    # EMR looks these up in AWS Secrets Manager.
    conf |= {f"spark.emr-serverless.driverEnv.{name}": f"EMR.secret@{_secret(job, name)}" for name in job.secrets}
    needed = [*(jar.name for jar in OWN_JARS), *(f"{name}.jar" for name in KAFKA_JARS)]
    run = Run(
        job.name,
        f"{s3_folder}/run.py",
        ["run", f"{s3_folder}/pipelines/{pipeline.file.name}"],
        jars=[f"{s3_folder}/jars/{name}" for name in needed],
        archive=f"{s3_folder}/{ENVIRONMENT}.tar.gz",
        conf=conf,
    )
    request = ServerlessJob(None, application, role, f"{s3_folder}/logs").request(run)
    # A retry is safe: a run that was killed anywhere left whole epochs, and the next one goes on after them.
    text = json.dumps({**request, "executionTimeoutMinutes": 60, "retryPolicy": {"maxAttempts": 3}}, indent=2) + "\n"
    start = "aws emr-serverless start-job-run --cli-input-json file://FOLDER/job-run.json"
    return Folder(
        {
            "job-run.json": text.encode(),
            "make.sh": filled("emr/make.sh", wheel=wheel, s3_folder=s3_folder),
            "pom.xml": filled("emr/pom.xml", spark=spark, jars=",".join(KAFKA_JARS)),
            **{f"s3/pipelines/{name}": text for name, text in job.files.items()},
            "s3/run.py": driver("emr_driver.py"),
            **{f"s3/jars/{jar.name}": jar.read_bytes() for jar in OWN_JARS},
            wheel: content,
        },
        [
            "sh FOLDER/make.sh   # on the Linux of the release: makes the rest, and uploads all",
            *(f"Put {name} into AWS Secrets Manager, as {_secret(job, name)}." for name in job.secrets),
            f"{start} --client-token try-1",
        ],
    )


def _secret(job: Job, variable: str) -> str:
    """Its name in AWS Secrets Manager. The role of the example may read all that begin with lakelock/."""
    return "/".join(("lakelock", *job.secret(variable)))


def _refuse_files(job: Job) -> None:
    """A job on EMR Serverless has its pipeline file, and no other: what it needs is in S3 or in its environment."""
    if len(job.pipelines) > 1:
        raise ConfigurationError(
            "A job on EMR runs one pipeline file, and several were given.", hint="Package each of them for itself."
        )
    for name in job.all_of(lambda each: each.secret_files):
        raise ConfigurationError(
            f"${{file:{name}}}: a job on EMR Serverless has no such file.",
            hint="Write ${env:NAME} instead: the job takes the variable from AWS Secrets Manager.",
        )
    refuse_local(job.all_of(lambda each: each.beside), job.all_of(lambda each: each.tables))


def refuse_local(beside: Sequence[str], tables: Sequence[str]) -> None:
    """Raises ConfigurationError for files in the folder of the pipeline file, which a job lacks, and for tables without
    a URI, whose folder ends with a job on EMR Serverless."""
    for name in beside:
        raise ConfigurationError(
            f"{name}: a job on EMR has its pipeline file only.",
            hint="Write the schema into the pipeline file, or take it from a registry.",
        )
    for name in tables:
        raise ConfigurationError(
            f"{name}: a folder of a job on EMR Serverless ends with the job.",
            hint="Write the table's URI, as in s3a://lake/flights.",
        )
