"""``lakelock package``: a folder with what a platform wants, to run pipelines there on a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from connector.cli.console import Files, out, pairs, reported, s3_url
from connector.fleet.files import pipeline_files
from connector.package import databricks, emr, kubernetes
from connector.package.job import Folder, Job, job
from sinks.errors import ConfigurationError
from sinks.plurals import plural


class Platform(str, Enum):
    """The values of ``--for``."""

    KUBERNETES = "kubernetes"
    DATABRICKS = "databricks"
    EMR = "emr"


_OF: Mapping[Platform, Mapping[str, str]] = {
    Platform.KUBERNETES: {"--image": "the image that the pods run: docker/Dockerfile builds it"},
    Platform.DATABRICKS: {
        "--volume": "the folder for pipeline files in Unity Catalog: /Volumes/main/lakelock/pipelines",
        "--notify": "the address that is told of a run that failed",
    },
    Platform.EMR: {
        "--s3-folder": "the folder of the job: s3://bucket/lakelock",
        "--application-id": "the application of EMR Serverless",
        "--role-arn": "the role of the job: deploy/emr/iam has its policies",
        "--spark": "the version of Spark in the EMR release: 4.0.2 in emr-spark-8.0.0",
    },
}
"""The options of each platform. All are needed."""


def package(
    files: Files,
    for_: Annotated[Platform, typer.Option("--for", help="Where the pipelines are to run.")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write.")],
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="What ${env:NAME} in the files stands for there; repeatable. Not for secrets: those stay in the "
            "platform's own store, and the job takes them from it.",
        ),
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="${env:NAME} is a secret, though its option isn't known for one."),
    ] = None,
    every: Annotated[int, typer.Option(metavar="MINUTES", help="Minutes between two runs.")] = 10,
    name: Annotated[str | None, typer.Option(help="Name of the job; the pipeline's if left out.")] = None,
    image: Annotated[str | None, typer.Option(help="Kubernetes: the image, as in r.example.com/lakelock:1.")] = None,
    volume: Annotated[str | None, typer.Option(help="Databricks: the folder of pipeline files in a volume.")] = None,
    notify: Annotated[str | None, typer.Option(help="Databricks: the e-mail address for failures.")] = None,
    s3_folder: Annotated[str | None, typer.Option(metavar="S3-URL", help="EMR: the folder of the job.")] = None,
    application_id: Annotated[str | None, typer.Option(help="EMR: the application of EMR Serverless.")] = None,
    role_arn: Annotated[str | None, typer.Option(help="EMR: the role of the job.")] = None,
    spark: Annotated[str | None, typer.Option(help="EMR: the version of Spark in the release, as in 4.0.2.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace files that have another content.")] = False,
) -> None:
    """Write what a platform wants to run pipelines.

    On a schedule: a CronJob, an asset bundle with the wheel for clusters, or a job of EMR Serverless with its jars.

    The files are checked first. Nothing is sent anywhere: the last lines say which commands do that. No secret is
    written, and none is read.

    \b
      lakelock package flights.yaml --for kubernetes --to deploy/flights \\
        --image registry.example.com/lakelock:1 --env KAFKA_BOOTSTRAP=kafka.example.com:9093
    """
    with reported(debug=False):
        given = {
            "--image": image, "--volume": volume, "--notify": notify, "--s3-folder": s3_folder,
            "--application-id": application_id, "--role-arn": role_arn, "--spark": spark,
        }  # fmt: skip
        _refuse_others(for_, given)
        variables = pairs(env or [], "--env", "KAFKA_BOOTSTRAP=kafka.example.com:9093")
        made_of = job(pipeline_files(files), name=name, variables=variables, secrets=secret or [], every=every)
        folder = _MADE[for_](made_of, {option: value for option, value in given.items() if value is not None})
        new = folder.write(to, replace=replace)
        _tell(to, made_of, folder, new)


def _refuse_others(platform: Platform, given: Mapping[str, str | None]) -> None:
    wanted = _OF[platform]
    for option, value in given.items():
        if value is not None and option not in wanted:
            raise ConfigurationError(f"{option} isn't for {platform.value}.", hint=f"It takes {', '.join(wanted)}.")
    if missing := [option for option in wanted if not given[option]]:
        raise ConfigurationError(
            f"--for {platform.value} needs {' and '.join(missing)}.",
            hint="; ".join(f"{option}: {wanted[option]}" for option in missing) + ".",
        )


_MADE: Mapping[Platform, Callable[[Job, Mapping[str, str]], Folder]] = {
    Platform.KUBERNETES: lambda job, given: kubernetes.folder(job, given["--image"]),
    Platform.DATABRICKS: lambda job, given: databricks.folder(job, given["--volume"], given["--notify"]),
    Platform.EMR: lambda job, given: emr.folder(
        job,
        s3_url(given["--s3-folder"], "--s3-folder"),
        given["--application-id"],
        given["--role-arn"],
        given["--spark"],
    ),
}


def _tell(to: Path, job: Job, folder: Folder, new: Sequence[str]) -> None:
    lines = [f"{to}: {plural(len(new), 'file')} written, of {len(folder.files)}."]
    lines += [f"  {name}" for name in new]
    if there := job.all_of(lambda each: [*each.tables, *each.there]):
        lines.append(f"The job has to find there: {', '.join(there)}.")
    lines += ["What is left to do:", *(f"  {step.replace('FOLDER', str(to))}" for step in folder.steps)]
    out.print("\n".join(lines), soft_wrap=True, markup=False)
