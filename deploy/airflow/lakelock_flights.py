"""Every ten minutes on EMR Serverless, by `lakelock emr submit`: what it prints is the log, and its exit code says
whether to try again. The worker needs `pip install lakelock` and a role with deploy/emr/iam/submitter.json."""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta

from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk import dag, task

JOBS = "s3://EXAMPLE-JOBS/lakelock"
JARS = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2")
SUBMIT = [
    *("lakelock", "emr", "submit", "/opt/airflow/pipelines/flights.yaml"),
    *("--application-id", "00example0000000"),
    *("--role-arn", "arn:aws:iam::123456789012:role/lakelock-job"),
    *(
        "--s3-folder",
        JOBS,
        "--archives",
        f"{JOBS}/environment.tar.gz",
        "--jars",
        ",".join(f"{JOBS}/jars/{each}.jar" for each in JARS),
    ),
    *("--conf", "spark.emr-serverless.driverEnv.KAFKA_BOOTSTRAP=kafka.example.com:9094"),
    *("--timeout", "55"),
]


@dag(
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1),
    # What a missed run would have taken, the next one takes.
    catchup=False,
    # Two at once are safe (one is fenced), and a waste.
    max_active_runs=1,
    # Safe: a run that was killed, or that Airflow lost sight of, left whole epochs; the next one goes on after them.
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1), "execution_timeout": timedelta(hours=1)},
)
def lakelock_flights() -> None:
    @task
    def run() -> None:
        code = subprocess.run(SUBMIT, check=False).returncode
        if code == 2:
            raise AirflowFailException("a wrong configuration: no retry can help")
        if code == 3:
            raise AirflowSkipException("fenced: another run of the pipeline took over, and goes on")
        if code:
            raise AirflowException(f"failed, exit code {code}")

    run()


lakelock_flights()
