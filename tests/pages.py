"""Pages of the documentation as scripts: their files are written, and their commands and Python run, as they stand."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from connector.cli.app import app

ROOT = Path(__file__).parents[1]
BROKER = "127.0.0.1:9092"
"""The pages' own."""


@dataclass(frozen=True)
class Block:
    """What a page shows between two lines of backquotes."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name that its first line gives it, as a comment."""
        found = re.match(r"# (\S+\.(?:yaml|py))\n", self.text)
        return found and found[1]

    @property
    def commands(self) -> list[str]:
        """Without what they print, and their remarks."""
        lines = [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ ")]
        return [re.split(r"\s+#\s", line)[0].strip() for line in lines]


def blocks(page: str, section: str = "") -> list[Block]:
    """``section``: a heading of second order; all of the page if left out."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if section:
        (text,) = (part for part in re.split(r"^## ", text, flags=re.M) if part.startswith(f"{section}\n"))
    return [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.M | re.S)]


def written(page: str, folder: Path) -> Path:
    """The folder, with the files that the page shows."""
    for block in blocks(page):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
    return folder


@dataclass
class Reader:
    """Somebody who does what a page says, in the working directory, with a broker elsewhere."""

    bootstrap: str
    names: dict[str, Any] = field(default_factory=dict)
    """What Python knows by now."""
    said: list[str] = field(default_factory=list)
    """What each command printed."""

    def follow(self, page: str, section: str = "") -> None:
        for block in blocks(page, section):
            if block.file:
                self.write(block.file, block.text)
            elif block.language == "python":
                exec(compile(self._here(block.text), page, "exec"), self.names)
            elif block.language == "console":
                for command in block.commands:
                    self.run(command)

    def write(self, name: str, text: str) -> None:
        Path(name).write_text(self._here(text) if name.endswith(".py") else self._to_broker(text), encoding="utf-8")

    def _to_broker(self, text: str) -> str:
        return text.replace(BROKER, self.bootstrap)

    def _here(self, text: str) -> str:
        """A checkpoint, which Spark itself is given, would be in the directory where the shared session began."""
        return self._to_broker(text).replace('"lake/_checkpoints', f'"{Path.cwd()}/lake/_checkpoints')

    def run(self, command: str) -> None:
        program, *arguments = shlex.split(command)
        if program != "lakelock":
            subprocess.run([program, *arguments], check=True)
            return
        if "--from-topic" in arguments:
            arguments += ["--kafka", f"bootstrap.servers={self.bootstrap}"]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, f"{command}\n{result.output}"
        self.said.append(result.output)
        for name in arguments:
            # What `init` has written asks the pages' broker, too.
            if arguments[0] == "init" and Path(name).is_file():
                self.write(name, Path(name).read_text(encoding="utf-8"))


def yaml_blocks() -> list[tuple[str, Block]]:
    """The YAML of README and docs, each with a name: whole pipeline files, and parts of one."""
    pages = [file.relative_to(ROOT).as_posix() for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]]
    return [
        (f"{page}-{number}", block)
        for page in pages
        for number, block in enumerate(blocks(page), start=1)
        if block.language == "yaml"
    ]


WHOLE = {
    "name": "p",
    "source": {"topics": ["t"], "kafka": {"bootstrap.servers": "b:9092"}},
    "value": {"format": "json", "schema": "origin STRING, dep_delay INT, event_time TIMESTAMP"},
    "sinks": [{"type": "delta_append", "path": "lake/p"}],
}


def completed(part: Any) -> dict[str, Any]:
    """A pipeline with this part: a list is its sinks, and ``kafka`` is of its source."""
    if isinstance(part, list):
        return {**WHOLE, "sinks": part}
    if "kafka" in part:
        return {**WHOLE, "source": {**WHOLE["source"], **part}}  # type: ignore[dict-item]
    return {**WHOLE, **part}
