"""The program that spark-submit starts on EMR: `lakelock`, with a pipeline file from S3.

spark-submit run.py run s3://bucket/lakelock/pipelines/flights.yaml --set source.start=latest
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

from connector.cli.app import main
from sinks.s3.client import S3Options, bucket_and_prefix, client


def fetched(url: str) -> str:
    """Download a file from S3, and return its path. It keeps its name: the run's last line may begin with it."""
    bucket, key = bucket_and_prefix(url)
    file = Path(mkdtemp()) / Path(key).name
    client(S3Options()).download_file(bucket, key, str(file))
    return str(file)


if __name__ == "__main__":
    command, pipeline, *options = sys.argv[1:]
    sys.argv[1:] = [command, fetched(pipeline) if pipeline.startswith(("s3://", "s3a://")) else pipeline, *options]
    main()
