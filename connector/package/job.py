"""A job to package, and the folder that it becomes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from string import Template

from connector.package.needs import Needs, needs
from sinks.errors import ConfigurationError
from sinks.plurals import plural

EVERY = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)
"""Minutes between two runs: what divides an hour, as the schedules of all platforms can say it."""


_LONGEST = 40
"""Characters of a job's name, without what is put around it: Kubernetes allows a CronJob 52 in all."""


@dataclass(frozen=True)
class Job:
    """Pipelines that one process runs again and again."""

    name: str
    pipelines: Sequence[Needs]
    variables: Mapping[str, str]
    """The value of each variable that the pipeline files name, without secrets."""
    secrets: Sequence[str]
    """The variables that the platform takes from its own store of secrets."""
    every: int = 10
    """Minutes between two runs: one of ``EVERY``."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """The pipeline files, and what goes along with them, by name. Raises ConfigurationError."""
        found: dict[str, bytes] = {}
        for file in self._paths():
            content = file.read_bytes()
            if found.setdefault(file.name, content) != content:
                raise ConfigurationError(
                    f"Two different files have the name {file.name}, and a job has one folder for all of them.",
                    hint="Rename one of them.",
                )
        return found

    def all_of(self, what: Callable[[Needs], Iterable[str]]) -> list[str]:
        """What any pipeline needs, each once."""
        return list(dict.fromkeys(each for pipeline in self.pipelines for each in what(pipeline)))

    @property
    def how_often(self) -> str:
        """As a text says it: `10 minutes`."""
        return "hour" if self.every == 60 else "minute" if self.every == 1 else f"{self.every} minutes"

    def secret(self, variable: str) -> tuple[str, str]:
        """The job's own place in a store of secrets, and the name of a variable there: KAFKA_JAAS is kafka-jaas.

        Two jobs never share one. Whoever stores the secrets of the second would replace those of the first, such as the
        salt of a mask."""
        return self.name, variable.lower().replace("_", "-")

    def refuse_endless(self, platform: str) -> None:
        """For a platform whose jobs are ended after an hour, as failures. Raises ConfigurationError."""
        for pipeline in self.pipelines:
            if pipeline.never_ends:
                raise ConfigurationError(
                    f"{pipeline.file}: a run of it goes on until it is stopped, and the job on {platform} is ended "
                    "after an hour, as a failure.",
                    hint="Write trigger: available_now, in overrides of tables as well: each run then reads what "
                    "Kafka holds, and ends. --every says how often the job runs.",
                )

    def _paths(self) -> Iterable[Path]:
        for pipeline in self.pipelines:
            yield pipeline.file
            yield from (pipeline.file.parent / name for name in pipeline.beside)


@dataclass(frozen=True)
class Folder:
    """What is to be written, by relative path, and what is left to do by hand."""

    files: Mapping[str, bytes]
    steps: Sequence[str] = field(default_factory=list)
    completed: Callable[[str, bytes], bool] = lambda *_: False
    """Whether a file of this name, which is there with this content, was completed by hand. It stays as it is."""

    def write(self, to: Path, *, replace: bool) -> list[str]:
        """Write the files, and return the names of those that are new or changed. Raises ConfigurationError.

        A file that is there with another content is replaced only if ``replace``, and not if it was completed. Nothing
        is written before all are known to be writable.
        """
        changed = {
            name: content for name, content in self.files.items()
            if not _has(to / name, content)
            and not ((to / name).is_file() and self.completed(name, (to / name).read_bytes()))
        }  # fmt: skip
        if not replace and (kept := [name for name in changed if (to / name).exists()]):
            raise ConfigurationError(
                f"{to} has {plural(len(kept), 'file')} with another content: {', '.join(kept)}. Nothing was written.",
                hint="Give another folder, or --replace.",
            )
        for name, content in changed.items():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            (to / name).write_bytes(content)
        return list(changed)


def job(
    paths: Sequence[Path],
    *,
    name: str | None,
    variables: Mapping[str, str],
    secrets: Sequence[str],
    every: int,
) -> Job:
    """The job that runs these pipeline files. ``variables``: their values; ``secrets``: those that are one, too.

    Raises ConfigurationError.
    """
    pipelines = [needs(path) for path in paths]
    if every not in EVERY:
        raise ConfigurationError(f"--every {every}: write one of {', '.join(map(str, EVERY))} (minutes).")
    if name is None and len(pipelines) > 1:
        raise ConfigurationError("--name is missing: the name of the job that runs these pipelines.")
    hidden = list(dict.fromkeys([*(each for one in pipelines for each in one.secrets), *secrets]))
    wanted = list(dict.fromkeys(each for one in pipelines for each in one.variables if each not in hidden))
    for each in variables:
        if each in hidden:
            raise ConfigurationError(
                f"--env {each}: the pipeline files have a secret there, and a secret is written into no file.",
                hint="Leave it out: the job takes it from the platform's store of secrets.",
            )
        if each not in wanted:
            raise ConfigurationError(f"--env {each}: no pipeline file has ${{env:{each}}}.")
    if missing := [each for each in wanted if each not in variables]:
        raise ConfigurationError(
            f"The pipeline files take {', '.join(missing)} from the environment, and the job has to set "
            f"{'it' if len(missing) == 1 else 'them'}.",
            hint=f"Give --env {missing[0]}=VALUE, or --secret {missing[0]} if it is one.",
        )
    called = _called(name or pipelines[0].name)
    return Job(called, pipelines, {each: variables[each] for each in wanted}, hidden, every)


def _called(name: str) -> str:
    """What the platform calls the job of this name. Two names that differ in their letters and digits never share it:
    two jobs that do would replace each other.

    Raises ConfigurationError for a name without any letter or digit that a platform takes.
    """
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not words:
        raise ConfigurationError("--name: write a name with letters from a to z.")
    if len(words) <= _LONGEST and name.isascii():
        return f"lakelock-{words}"
    return f"lakelock-{words[: _LONGEST - 9].strip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


class _Text(Template):
    """A template whose places are written %name: the platforms have their own use for the dollar."""

    delimiter = "%"


def filled(file: str, **places: str) -> bytes:
    """A file made of its template in ``templates``, with the places filled."""
    text = files("connector.package").joinpath("templates", *f"{file}.template".split("/")).read_text(encoding="utf-8")
    return _Text(text).substitute(places).encode()


def quoted(text: str) -> str:
    """A text as YAML and JSON write it, whatever it holds; plain where that is clear."""
    return text if re.fullmatch(r"[A-Za-z/]([\w./:@-]*\w)?", text) and text not in _WORDS else json.dumps(text)


_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "True", "False", "Yes", "No", "On", "Off"}


def listed(texts: Iterable[str]) -> str:
    """Texts as a list of YAML, in one line."""
    return f"[{', '.join(map(quoted, texts))}]"


def _has(file: Path, content: bytes) -> bool:
    return file.is_file() and file.read_bytes() == content


def driver(name: str) -> bytes:
    """The text of a program that starts ``lakelock`` on a platform."""
    return files("connector.cli").joinpath(name).read_bytes()
