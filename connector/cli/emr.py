"""The commands ``lakelock emr ...``."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from connector.cli.console import Debug, Set, err, out, reported, s3_url
from connector.config import has_several
from connector.emr import driver_log
from connector.emr.jobs import ENVIRONMENT, OWN_JARS, ClusterStep, Job, Run, ServerlessJob, State
from connector.package.emr import refuse_local
from connector.package.needs import needs
from sinks.errors import ConfigurationError, LakelockError
from sinks.plurals import plural
from sinks.s3.client import S3Options, bucket_and_prefix
from sinks.s3.client import client as s3_client

emr = typer.Typer(
    name="emr",
    help="Run pipelines on Amazon EMR.\n\nOn EMR Serverless, or as a step of a cluster. See docs/deploy.md.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_LOG_WITHIN = {"serverless": 120.0, "step": 600.0}
"""Seconds to wait for a log. EMR Serverless copies logs to S3 when a job ends, a cluster every five minutes."""


PipelineFile = Annotated[Path, typer.Argument(help="The pipeline file (YAML), on this machine.")]
S3Folder = Annotated[
    str,
    typer.Option(
        metavar="S3-URL",
        help="Where to put what the job needs: s3://bucket/lakelock. The job's role has to be able to read it.",
    ),
]
Application = Annotated[str | None, typer.Option(help="Run it on this application of EMR Serverless.")]
Role = Annotated[str | None, typer.Option(help="The role of the job on EMR Serverless; only with --application-id.")]
Cluster = Annotated[str | None, typer.Option(help="Or run it as a step of this cluster: j-...")]
Archives = Annotated[
    str | None,
    typer.Option(metavar="S3-URL", help="Python packages, made by venv-pack: s3://bucket/lakelock/environment.tar.gz."),
]
Jars = Annotated[
    list[str] | None,
    typer.Option(
        "--jars",
        metavar="S3-URLS",
        help="Jars that EMR lacks, those of Kafka and Avro: separated by commas; repeatable.",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A setting of Spark; repeatable. To set an environment variable of the driver, for ${env:NAME} in the "
        "file: spark.emr-serverless.driverEnv.NAME=VALUE.",
    ),
]
LogUri = Annotated[
    str | None,
    typer.Option(
        metavar="S3-URL",
        help="Where the driver's log goes. If left out: the cluster's own place, or logs/ in --s3-folder.",
    ),
]
JobName = Annotated[str | None, typer.Option(help="Name of the job; the pipeline's if left out.")]
Timeout = Annotated[
    int | None,
    typer.Option(min=1, metavar="MINUTES", help="Cancel the job if it takes longer, and end with exit code 1."),
]


@emr.callback()
def about() -> None:
    """Keep ``submit`` a command of its own: without a callback Typer would merge the only command into its group."""


@emr.command()
def submit(
    set_: Set,
    file: PipelineFile,
    s3_folder: S3Folder,
    application_id: Application = None,
    role_arn: Role = None,
    cluster_id: Cluster = None,
    archives: Archives = None,
    jars_: Jars = None,
    conf: Conf = None,
    log_uri: LogUri = None,
    name: JobName = None,
    timeout: Timeout = None,
    debug: Debug = False,
) -> None:
    """Run a pipeline on EMR, wait for it, and end as it ends.

    With its last lines and its exit code.

    The file is checked here first, without Kafka. Its ${env:NAME} and ${file:/path} may have values on the cluster
    only. Ctrl-C stops the waiting, not the job. It is always safe to submit again, even while the first job is at work.

    \b
      lakelock emr submit flights.yaml --s3-folder s3://jobs/lakelock \\
        --application-id 00f1abc --role-arn arn:aws:iam::123456789012:role/lakelock \\
        --archives s3://jobs/lakelock/environment.tar.gz --jars s3://jobs/lakelock/jars/kafka-clients.jar,...
    """
    with reported(debug):
        needed = needs(file, set_)
        refuse_local(needed.beside, needed.tables if application_id is not None else [])
        pipeline = needed.name
        settings = _settings(conf or [])
        folder = s3_url(s3_folder, "--s3-folder")
        logs = s3_url(log_uri, "--log-uri") if log_uri else None
        more_jars = [s3_url(jar, "--jars") for urls in jars_ or [] for jar in urls.split(",")]
        with _aws():
            job = _job(application_id, role_arn, cluster_id, logs, folder)
            s3 = s3_client(S3Options())
            overrides = [part for override in set_ for part in ("--set", override)]
            job.start(
                Run(
                    name=name or f"lakelock-{pipeline}",
                    entry_point=_put(s3, folder, Path(__file__).with_name("emr_driver.py")),
                    arguments=["run", _put(s3, folder, file), *overrides],
                    jars=[*(_put(s3, folder, jar) for jar in OWN_JARS), *more_jars],
                    archive=s3_url(archives, "--archives").removesuffix(f"#{ENVIRONMENT}") if archives else None,
                    conf=settings,
                )
            )
            err.print(f"{pipeline}: job {job.id} started. To look at it: {job.look}", soft_wrap=True)
            log_within = _LOG_WITHIN["serverless" if application_id else "step"]
            code = _followed(job, s3, pipeline, minutes=timeout, log_within=log_within, several=has_several(file))
        raise typer.Exit(code)


def _followed(job: Job, s3: Any, pipeline: str, *, minutes: int | None, log_within: float, several: bool) -> int:
    """Wait for the job, show its last lines, and return the exit code: the run's, or 1 if it took over ``minutes``.

    ``log_within``: seconds to wait for the log after the end. ``several``: the job runs several pipelines. Whatever
    ends the waiting early, the job goes on.
    """
    try:
        end, in_time = _wait(job, pipeline, minutes)
        code = _told(job, s3, end, log_within, several=several)
    except BaseException as why:
        err.print(
            f"\n{pipeline}: no longer waiting; job {job.id} may go on.\nlook at it: {job.look}\ncancel it:  {job.stop}",
            soft_wrap=True,
        )
        if isinstance(why, KeyboardInterrupt):
            raise typer.Exit(130) from None
        raise
    return code if in_time else 1


def _job(application: str | None, role: str | None, cluster: str | None, logs: str | None, folder: str) -> Job:
    """The job to start, on EMR Serverless or on a cluster. Raises ConfigurationError unless exactly one is named."""
    if (application is None) == (cluster is None):
        raise ConfigurationError(
            "Say where to run it: --application-id (EMR Serverless) or --cluster-id (a step of a cluster).",
            hint="`aws emr-serverless list-applications` and `aws emr list-clusters --active` list them.",
        )
    if cluster is not None:
        if role is not None:
            raise ConfigurationError(
                "--role-arn is for EMR Serverless; a step has the role of its cluster.", hint="Leave --role-arn out."
            )
        return ClusterStep(_client("emr"), cluster, logs)
    if role is None:
        raise ConfigurationError(
            "--role-arn is missing: the role that the job has on EMR Serverless, to read and write S3.",
            hint="Give its ARN, arn:aws:iam::<account>:role/<name>; deploy/emr has its policies.",
        )
    return ServerlessJob(_client("emr-serverless"), str(application), role, logs or f"{folder}/logs")


def _wait(job: Job, pipeline: str, minutes: int | None) -> tuple[State, bool]:
    """Wait for the job's end. Returns its last state, and whether it ended within ``minutes`` (else it is cancelled).

    Asks EMR after one second, then less and less often, at most every ten seconds.
    """
    began, every, last, in_time = time.monotonic(), 1.0, "", True

    def line(state: State) -> str:
        return f"{pipeline}: {state.word}, {time.monotonic() - began:.0f} s"

    with err.status(f"{pipeline}: submitted") as status:
        while True:
            state = job.state()
            if err.is_terminal:
                status.update(line(state))
            if state.word != last:
                last = state.word
                err.print(line(state) + (f": {escape(state.message)}" if state.message else ""), soft_wrap=True)
            if state.end is not None:
                return state, in_time
            if minutes is not None and in_time and time.monotonic() - began > minutes * 60:
                err.print(f"{pipeline}: cancelled after {plural(minutes, 'minute')} (--timeout)")
                job.cancel()
                in_time = False
            time.sleep(every)
            every = min(10.0, every * 1.5)


def _told(job: Job, s3: Any, end: State, within: float, *, several: bool) -> int:
    """Show the driver's last lines, and return the run's exit code; if no log says it, 0 or 1 by the job's state.

    Never 0 for a job that failed.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    fallback = 0 if end.end == "done" else 1
    url = job.log("stdout")
    if url is None:
        err.print("The cluster keeps no logs, so the step's state counts. Give --log-uri to see the run's last lines.")
        return fallback
    try:
        with err.status(f"waiting for {url}, for up to {within:.0f} s"):
            log = driver_log.wait_for_end(s3, url, within, several=several)
        code = driver_log.exit_code(log, several=several)
        if code or end.end != "done":
            err.print(escape(driver_log.read(s3, str(job.log("stderr")))), soft_wrap=True)
    except (BotoCoreError, ClientError) as error:
        # The job has ended. The run is not to blame if its log can't be read.
        err.print(
            f"The driver's log can't be read, so the job's state counts: {end.word}. {escape(str(error))}\n"
            f"Whoever submits the job needs s3:GetObject on {url}",
            soft_wrap=True,
        )
        return fallback
    if log:
        out.print(escape(log), soft_wrap=True)
    if code is None:
        err.print(
            f"The driver's log doesn't say how the run ended, so the job's state counts: {end.word}. See {url}, and "
            f"run: {job.look}",
            soft_wrap=True,
        )
        return fallback
    return code or fallback  # EMR may end the driver after its last line


def _put(s3: Any, folder: str, file: Path) -> str:
    """Upload a file under its checksum, and return its URL.

    A job that waits for its turn thus gets the file that it was submitted with.
    """
    content = file.read_bytes()
    bucket, prefix = bucket_and_prefix(folder)
    key = "/".join(filter(None, [prefix, "files", hashlib.sha256(content).hexdigest()[:16], file.name]))
    s3.put_object(Bucket=bucket, Key=key, Body=content)
    return f"s3://{bucket}/{key}"


def _settings(conf: Sequence[str]) -> dict[str, str]:
    """The settings of Spark from ``NAME=VALUE``. Raises ConfigurationError for anything else."""
    pairs = [setting.partition("=") for setting in conf]
    for name, equals, _ in pairs:
        if not equals or not name.startswith("spark."):
            raise ConfigurationError(f"--conf {name!r}: write NAME=VALUE, as in spark.executor.memory=4g.")
    return {name: value for name, _, value in pairs}


def _client(service: str) -> Any:
    """A client of one of AWS's services, which repeats refused requests up to ten times."""
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        service, config=Config(retries={"mode": "standard", "total_max_attempts": 10})
    )


_FIX = {
    "AccessDenied": "Give whoever submits the policy deploy/emr/iam/submitter.json, with your names in it.",
    "NoSuchBucket": "Check --s3-folder: its bucket has to exist.",
    "ResourceNotFound": "Check that --application-id exists in this region: `aws emr-serverless list-applications`.",
    "InvalidRequest": "Check that --cluster-id runs in this region: `aws emr list-clusters --active`.",
    "ExpiredToken": "Log in to AWS again.",
}


@contextmanager
def _aws() -> Iterator[None]:
    """Turn what boto3 raises into a LakelockError that says what to do."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

    try:
        yield
    except NoCredentialsError:
        raise ConfigurationError(
            "There are no credentials for AWS.",
            hint="Log in as you do for the `aws` command: `aws configure` or `aws sso login`.",
        ) from None
    except NoRegionError:
        raise ConfigurationError("The AWS region isn't known.", hint="Set AWS_REGION, or AWS_PROFILE.") from None
    except ClientError as error:
        code, status = error.response["Error"]["Code"], error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
        fix = next((fix for start, fix in _FIX.items() if code.startswith(start)), "")
        kind = ConfigurationError if 400 <= status < 500 and not re.search("Throttl|TooMany", code) else LakelockError
        raise kind(
            f"AWS refused {error.operation_name} ({code}): {error.response['Error'].get('Message', '')}", hint=fix
        ) from None
    except BotoCoreError as error:
        raise LakelockError(
            f"AWS can't be reached: {error}", hint="Check the network and AWS_REGION. It is safe to submit again."
        ) from None
