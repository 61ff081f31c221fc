"""An asset bundle with two jobs: one on a cluster of its own, and the same one on serverless compute, paused."""

from __future__ import annotations

import json
from collections.abc import Iterator

from connector.package.job import Folder, Job, driver, filled, listed, quoted
from connector.package.wheel import cluster_wheel


def folder(job: Job, volume: str, notify: str) -> Folder:
    """The bundle. ``volume``: the folder of the pipeline files, in Unity Catalog; ``notify``: who hears of failures.

    Raises ConfigurationError.
    """
    job.refuse_endless("Databricks")
    wheel, content = cluster_wheel(job.all_of(lambda each: each.extras))
    run = ["run", *(f"${{var.pipelines}}/{each.file.name}" for each in job.pipelines), "--log-format", "json"]
    volume = volume.rstrip("/")
    schedule = {
        "name": job.name,
        "key": job.name.replace("-", "_"),
        "every": job.how_often,
        "cron": "0 0 * * * ?" if job.every == 60 else f"0 0/{job.every} * * * ?",
    }
    return Folder(
        {
            **{f"pipelines/{name}": text for name, text in job.files.items()},
            "databricks.yml": filled(
                "databricks/databricks.yml",
                name=job.name,
                volume=quoted(volume),
                notify=quoted(notify),
                variables="".join(_declared(job)),
            ),
            "resources/job_cluster.yml": filled(
                "databricks/resources/job_cluster.yml",
                environment="".join(_environment(job)),
                arguments=listed(run),
                **schedule,
            ),
            "resources/serverless.yml": filled(
                "databricks/resources/serverless.yml", arguments=listed([*_variables(job), "--", *run]), **schedule
            ),
            "run.py": driver("databricks_driver.py"),
            f"dist/{wheel}": content,
        },
        [
            f"databricks fs cp --recursive --overwrite FOLDER/pipelines dbfs:{volume}",
            *_secret_steps(job),
            "cd FOLDER && databricks bundle validate && databricks bundle deploy -t prod",
            f"databricks bundle run -t prod {schedule['key']}",
        ],
    )


def _declared(job: Job) -> Iterator[str]:
    for name, value in job.variables.items():
        yield f"  {name.lower()}:\n    description: {name} of the pipeline files.\n    default: {json.dumps(value)}\n"


def _environment(job: Job) -> Iterator[str]:
    if not (job.variables or job.secrets):
        return
    yield "            spark_env_vars:\n"
    for name in job.variables:
        yield f"              {name}: ${{var.{name.lower()}}}\n"
    if job.secrets:
        yield f"              # Of scope {job.name}: the secrets themselves stand nowhere.\n"
    for name in job.secrets:
        yield f'              {name}: "{{{{secrets/{_secret(job, name)}}}}}"\n'


def _variables(job: Job) -> Iterator[str]:
    """What ``run.py`` sets in the environment."""
    yield from (f"{name}=${{var.{name.lower()}}}" for name in job.variables)
    yield from (f"{name}=secret:{_secret(job, name)}" for name in job.secrets)


def _secret(job: Job, variable: str) -> str:
    """The scope and the key."""
    return "/".join(job.secret(variable))


def _secret_steps(job: Job) -> Iterator[str]:
    if job.secrets:
        yield f"databricks secrets create-scope {job.name}"
    for scope, key in map(job.secret, job.secrets):
        yield f"databricks secrets put-secret {scope} {key} < {key}.txt"
