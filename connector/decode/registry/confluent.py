"""Confluent's schema registry, by its REST API."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Literal, TypeAlias
from urllib.parse import quote

import requests

from connector.config.registry import ConfluentRegistry
from connector.config.registry_login import logged_in
from connector.decode.registry.answers import Answer
from connector.decode.registry.registry import Language, Part, Reference, Schema, WriterSchema
from connector.decode.registry.wire_format import ConfluentWire
from connector.source.asked_again import asked_again
from sinks.errors import ConfigurationError, RegistryUnreachable, UnknownSchema, UnusableSchema

_TIMEOUT = (5, 15)
"""Seconds to connect, and seconds without a byte of the answer."""
_ATTEMPTS = 5
_NOT_FOUND = {40401: "subject", 40402: "version", 40403: "schema"}
_ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"
_LONGEST_CHAIN = 50
"""References of references that are followed. Python needs stack frames for each."""
_NO_JSON = object()
_CUT_SHORT = (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)
_CHECK_URL = "Check registry.url. Some registries have their API under a path, as in /apis/ccompat/v7."

_Path: TypeAlias = str
"""What is asked for, as the part of a URL after the registry's own."""


def _wait(rounds: int) -> float:
    """Chance keeps the retries of several runs apart."""
    return random.uniform(0, min(10.0, 0.5 * 2 ** (rounds - 1)))


class Confluent(Generic[Schema]):
    """A registry with Confluent's REST API, and the schemas in it of one language. See ``Registry``."""

    wire = ConfluentWire()

    def __init__(
        self,
        options: ConfluentRegistry,
        language: Language[Schema],
        *,
        attempts: int = _ATTEMPTS,
        wait: Callable[[int], float] = _wait,
    ) -> None:
        """``attempts`` is the number of rounds over all URLs, ``wait`` gives the seconds after so many of them."""
        self._language = language
        self._urls = list(options.url)
        self._subject = options.subject
        self._attempts, self._wait = attempts, wait
        self._session = logged_in(options)
        self._session.headers["Accept"] = _ACCEPTED
        self._answers: dict[_Path, Answer] = {}
        self._schemas: dict[_Path, WriterSchema[Schema]] = {}

    def schema(self, schema_id: str) -> WriterSchema[Schema]:
        """See ``Registry.schema``."""
        subject, path = self._subject or "", f"schemas/ids/{schema_id}"
        if _context(subject):  # which has IDs of its own
            path += f"?subject={quote(subject, safe='')}"
        return self._read(path, subject, schema_id)

    def known(self, topic: str, part: Part) -> Mapping[str, WriterSchema[Schema]]:
        """See ``Registry.known``."""
        found = self._versions(self._subject_of(topic, part))
        return {each.id: each for each in found}

    def former(self, topic: str, part: Part) -> Sequence[WriterSchema[Schema]]:
        """See ``Registry.former``."""
        subjects = self._subject_of(topic, part), f"{_context(self._subject or '')}{topic}-{part}"
        return [each for subject in dict.fromkeys(subjects) for each in self._versions(subject, "?deleted=true")]

    def _versions(self, subject: str, which: str = "") -> Sequence[WriterSchema[Schema]]:
        """The usable ones, oldest first. ``which``: the query."""
        listed = f"subjects/{quote(subject, safe='')}/versions{which}"
        self._answers.pop(listed, None)  # since the last time it may have got more versions
        try:
            versions = self._get(listed).items()
        except UnknownSchema:
            return []
        found = []
        for version in [each.whole_number() for each in versions]:
            try:
                found.append(self._read(_version(subject, version) + which, subject))
            except (UnknownSchema, UnusableSchema):
                # Deleted in the meantime, or not usable: a record with this schema will be reported.
                continue
        return found

    def latest(self, topic: str, part: Part) -> WriterSchema[Schema]:
        """See ``Registry.latest``."""
        subject = self._subject_of(topic, part)
        return self._read(_version(subject, "latest"), subject)

    def _subject_of(self, topic: str, part: Part) -> str:
        """The subject by TopicNameStrategy, the producers' default."""
        return self._subject or f"{topic}-{part}"

    def _read(
        self, path: _Path, subject: str, schema_id: str | None = None, chain: tuple[_Path, ...] = ()
    ) -> WriterSchema[Schema]:
        """The schema at a path. ``subject``: one in the same context. ``schema_id``: its ID, if the answer doesn't say
        it. ``chain``: what refers to it."""
        if path not in self._schemas:
            answer = self._get(path)
            if path in chain:
                raise answer.unusable(f"its references lead back to it: {' -> '.join([*chain, path])}")
            if len(chain) > _LONGEST_CHAIN:
                raise answer.unusable(f"more than {_LONGEST_CHAIN} schemas refer to each other before it")
            id = str(answer.number("id")) if schema_id is None else schema_id
            kind = "AVRO" if answer.is_absent("schemaType") else answer.text("schemaType")
            if kind != self._language.kind:
                raise answer.of_another_language(id, kind, self._language.kind)
            try:
                references = [self._referred(each, subject, (*chain, path)) for each in self._references(answer)]
            except UnknownSchema as unknown:
                raise answer.unusable(
                    f"it refers to a schema that isn't there. {unknown.message.rstrip('.')}"
                ) from None
            self._schemas[path] = WriterSchema(id, self._language.parse(answer.text("schema"), references, answer.of))
        return self._schemas[path]

    def _referred(self, answer: Answer, subject: str, chain: tuple[_Path, ...]) -> Reference[Schema]:
        named = answer.text("subject")
        if not _context(named):
            named = f"{_context(subject)}{named}"
        found = self._read(_version(named, answer.number("version")), named, chain=chain)
        name = answer.body.get("name")  # only Protobuf needs it
        return Reference(name if isinstance(name, str) else "", found.schema)

    def _references(self, answer: Answer) -> list[Answer]:
        none = answer.is_absent("references") or not self._language.follows_references
        return [] if none else answer.items("references")

    def _get(self, path: _Path) -> Answer:
        if path not in self._answers:
            self._answers[path] = asked_again(
                lambda: self._get_from_any(path),
                may_pass=lambda error: isinstance(error, RegistryUnreachable),
                wait=self._wait,
                attempts=self._attempts,
            )
        return self._answers[path]

    def _get_from_any(self, path: _Path) -> Answer:
        said, unknown = [], None
        for url in list(self._urls):
            try:
                return self._get_from(url, path)
            except UnknownSchema as error:
                unknown = error  # unless another node has it: this one may lag behind
            except _Unavailable as unavailable:
                said.append(f"{url}: {unavailable}")
                # The next request starts with a URL that may answer.
                self._urls.remove(url)
                self._urls.append(url)
        if unknown is not None:
            raise unknown
        raise RegistryUnreachable(
            f"The schema registry gave no answer to GET /{path} ({'; '.join(said)}). "
            "Nothing of this epoch was written.",
            hint="Check that registry.url is right and reachable from this machine. Then start the run again.",
        )

    def _get_from(self, url: str, path: _Path) -> Answer:
        of = f"the schema registry's answer to GET {url}/{path}"
        try:
            answer = self._session.get(f"{url}/{path}", timeout=_TIMEOUT)
        except requests.exceptions.SSLError as error:
            raise ConfigurationError(
                f"The schema registry at {url} has a certificate that isn't trusted: {_innermost(error)}.",
                hint="Give the certificate authority that signed it: registry.ca, the path of a PEM file.",
            ) from None
        except (requests.ConnectionError, requests.Timeout, *_CUT_SHORT) as error:
            raise _Unavailable(_innermost(error)) from None
        except requests.RequestException as error:
            raise ConfigurationError(
                f"The server at {url} isn't a schema registry: GET /{path} failed with {type(error).__name__}: "
                f"{_innermost(error)}.",
                hint=_CHECK_URL,
            ) from None
        status = answer.status_code
        if status >= 500 or status in (408, 429):
            raise _Unavailable(f"HTTP status {status}")
        try:
            body = answer.json()
        except RecursionError:
            raise Answer(of, None).unusable("it is nested too deeply") from None
        except ValueError:
            body = _NO_JSON
        code = body.get("error_code") if isinstance(body, dict) else None
        what = _NOT_FOUND.get(code) if isinstance(code, int) else None
        if status == 404 and what is not None:
            raise UnknownSchema(
                f"The schema registry has no such {what}: GET /{path} found nothing.",
                hint="Check registry.subject. By default the subject is the topic's name with -key or -value."
                if what == "subject"
                else "",
            )
        if status in (401, 403):
            raise ConfigurationError(
                f"The schema registry at {url} refuses access (HTTP status {status}).",
                hint="Check registry.username and registry.password, or registry.token, and their permissions.",
            )
        if isinstance(code, int) and code // 100 == status and status != 200:
            raise Answer(of, None).unusable(f"it is HTTP status {status}, with the registry's error code {code}")
        if status != 200 or body is _NO_JSON:
            raise ConfigurationError(
                f"The server at {url} isn't a schema registry: GET /{path} gave HTTP status {status}"
                + (" and no JSON." if body is _NO_JSON else "."),
                hint=_CHECK_URL,
            )
        return Answer(of, body)


def _context(subject: str) -> str:
    """The context before a subject's name, as ``:.dr:``. Empty: it is in the default one."""
    end = subject.find(":", 1)
    return subject[: end + 1] if subject.startswith(":.") and end > 0 else ""


def _version(subject: str, version: int | Literal["latest"]) -> _Path:
    return f"subjects/{quote(subject, safe='')}/versions/{version}"


class _Unavailable(Exception):
    """Raised when one URL doesn't answer for now."""


def _innermost(error: BaseException) -> str:
    """The system's message, which `requests` wraps several times."""
    reason = error.args[0] if error.args else error
    reason = getattr(reason, "reason", reason)
    return str(reason).split("object at 0x")[-1].split(">: ")[-1] or type(error).__name__
