"""The wheel for clusters that bring their own Spark: the same, but that pip doesn't install pyspark and delta-spark.

    python -m build --wheel
    python deploy/cluster_wheel.py dist/lakelock-0.2.0-py3-none-any.whl deploy/databricks/dist

pip would put pyspark from PyPI in front of the one that belongs to the cluster, and where a cluster is told of its
wheels there is no place for --no-deps. So those two requirements are left out, and the version says so: 0.2.0+cluster.
"""

import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path

BROUGHT = ("pyspark", "delta-spark")


def cluster_wheel(wheel: Path, folder: Path) -> Path:
    name, version, rest = wheel.name.split("-", 2)
    info, new_info = f"{name}-{version}.dist-info", f"{name}-{version}+cluster.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"{name}-{version}+cluster-{rest}"
    record = []
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:

        def write(entry: str, content: bytes) -> None:
            new.writestr(entry, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{entry},sha256={digest},{len(content)}\n")

        for entry in old.namelist():
            content = old.read(entry)
            if entry == f"{info}/RECORD":
                continue
            if entry == f"{info}/METADATA":
                content = _metadata(content.decode(), version).encode()
            write(entry.replace(info, new_info, 1), content)
        new.writestr(f"{new_info}/RECORD", "".join([*record, f"{new_info}/RECORD,,\n"]))
    return made


def _metadata(text: str, version: str) -> str:
    head, blank, readme = text.partition("\n\n")
    head = head.replace(f"\nVersion: {version}", f"\nVersion: {version}+cluster")
    required = re.compile(rf"Requires-Dist: ({'|'.join(BROUGHT)})\b(?!-)")
    return "\n".join(line for line in head.splitlines() if not required.match(line)) + blank + readme


if __name__ == "__main__":
    print(cluster_wheel(Path(sys.argv[1]), Path(sys.argv[2])))
