"""A CronJob, its configuration and its service account, for ``kubectl apply -k``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath

import yaml

from connector.package.job import Folder, Job, filled, listed, quoted
from sinks.errors import ConfigurationError

_ACCOUNT = "serviceaccount.yaml"
_FILES = "/etc/lakelock"
"""Where the pod has the pipeline files."""


def folder(job: Job, image: str) -> Folder:
    """The objects of the job. Raises ConfigurationError."""
    secret_files = job.all_of(lambda each: each.secret_files)
    folders = _folders(secret_files)
    arguments = ["run", *(f"{_FILES}/{each.file.name}" for each in job.pipelines)]
    pipelines = job.files
    places = {
        "name": job.name,
        "every": job.how_often,
        "cron": "0 * * * *" if job.every == 60 else f"*/{job.every} * * * *",
        "image": quoted(image),
        "args": listed(arguments),
        "env": "".join(_environment(job)),
        "mounts": "".join(
            f"                - {{name: {name}, mountPath: {quoted(path)}, readOnly: true}}\n"
            for path, name in folders.items()
        ),
        "volumes": "".join(
            f"            - name: {name}\n              secret: {{secretName: {job.name}, defaultMode: 0440}}\n"
            for name in folders.values()
        ),
    }
    return Folder(
        {
            **pipelines,
            "cronjob.yaml": filled("kubernetes/cronjob.yaml", **places),
            "kustomization.yaml": filled(
                "kubernetes/kustomization.yaml", name=job.name, files=listed(sorted(pipelines))
            ),
            _ACCOUNT: filled("kubernetes/serviceaccount.yaml", name=job.name),
        },
        [
            *_secret_step(job, secret_files),
            f"Give the service account `{job.name}` its rights: {_ACCOUNT} names each cloud's annotation.",
            "kubectl apply -k FOLDER",
            f"kubectl create job --from=cronjob/{job.name} try-1 && kubectl logs -f job/try-1",
            *_restart_step(job),
        ],
        completed=lambda name, there: name == _ACCOUNT and _has_rights(there, job.name),
    )


def _has_rights(there: bytes, account: str) -> bool:
    """Whether somebody has given the account of a package its rights. Raises ConfigurationError for another account,
    which the pod wouldn't run as."""
    try:
        found = yaml.safe_load(there)
    except (yaml.YAMLError, UnicodeDecodeError):
        return False
    metadata = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("annotations"):
        return False
    if metadata.get("name") != account:
        raise ConfigurationError(
            f"{_ACCOUNT} has annotations for the service account {metadata.get('name')!r}, and that of this job is "
            f"called {account!r}. Nothing was written.",
            hint=f"Write `name: {account}` there, and give this account the rights in the cloud.",
        )
    return True


def _environment(job: Job) -> Iterator[str]:
    if not (job.variables or job.secrets):
        return
    yield "              env:\n"
    for name, value in job.variables.items():
        yield f"                - {{name: {name}, value: {json.dumps(value)}}}\n"
    for name in job.secrets:
        key = f"{{name: {job.name}, key: {name}}}"
        yield f"                - {{name: {name}, valueFrom: {{secretKeyRef: {key}}}}}\n"


def _folders(secret_files: list[str]) -> dict[str, str]:
    """The folders of the secret's files in the pod, and the names of their volumes. Raises ConfigurationError."""
    names: dict[str, str] = {}
    for each in map(PurePosixPath, secret_files):
        if not each.is_absolute():
            raise ConfigurationError(
                f"${{file:{each}}} is relative to the pipeline file, and a pod has no secret there.",
                hint=f"Write an absolute path, as in ${{file:/run/secrets/lakelock/{each.name}}}.",
            )
        if names.setdefault(each.name, str(each)) != str(each):
            raise ConfigurationError(
                f"{names[each.name]} and {each} would be one entry of the pod's secret.", hint="Rename one of them."
            )
    folders = dict.fromkeys(str(each.parent) for each in map(PurePosixPath, secret_files))
    return {path: "secrets" if number == 0 else f"secrets-{number + 1}" for number, path in enumerate(folders)}


def _restart_step(job: Job) -> Iterator[str]:
    """A change of a CronJob touches no job that it has started, and while that goes on, it starts no other."""
    if any(pipeline.never_ends for pipeline in job.pipelines):
        yield (
            f"kubectl delete jobs -l app.kubernetes.io/instance={job.name}   # after the try, and after each change: a "
            "run with an interval goes on with the old file, image and secret; the schedule starts the next one"
        )


def _secret_step(job: Job, secret_files: list[str]) -> Iterator[str]:
    names = [*(PurePosixPath(each).name for each in secret_files), *job.secrets]
    if names:
        given = " ".join(f"--from-file={name}=./{name}" for name in names)
        yield f"kubectl create secret generic {job.name} {given}   # from files, not from the command line"
