#!/bin/sh
# Makes what EMR lacks, and uploads all of it. Run it on the Linux of the release (emr-spark-8.0.0: Amazon Linux 2023),
# with the Python of the release, Maven and the AWS CLI.
set -eu
cd "$(dirname "$0")"

# Python with Lakelock, without Spark: the release has its own.
${PYTHON:-python3.11} -m venv environment
environment/bin/pip install --quiet venv-pack "./%wheel"
environment/bin/venv-pack --force --quiet -p environment -o s3/environment.tar.gz

# Kafka's jars, in the versions that Spark's connector for Kafka names.
mvn --quiet --batch-mode --file pom.xml dependency:copy-dependencies

aws s3 cp --recursive --only-show-errors s3 "%s3_folder"
