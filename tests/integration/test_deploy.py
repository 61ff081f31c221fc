"""What can be found out of deploy/ without Databricks and AWS: files fit together, and a server that checks requests as
AWS does takes them."""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import boto3
import pytest
import typer
import yaml
from conftest import Store

from connector.cli.app import app
from connector.config import load
from connector.emr.jobs import Run, command
from connector.package.wheel import cluster_wheel

DEPLOY = Path(__file__).parents[2] / "deploy"
JOBS = "s3://EXAMPLE-JOBS/lakelock"
JARS = (
    "lakelock-s3", "lakelock-kafka", "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13",
    "kafka-clients", "commons-pool2",
)  # fmt: skip
RUN = Run(
    "lakelock-flights",
    f"{JOBS}/run.py",
    ["run", f"{JOBS}/pipelines/pipeline.yaml"],
    jars=[f"{JOBS}/jars/{name}.jar" for name in JARS],
    archive=f"{JOBS}/environment.tar.gz",
)


def read(name: str) -> Any:
    file = DEPLOY / name
    text = file.read_text(encoding="utf-8")
    return json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)


def aws(service: str, endpoint: str) -> Any:
    return boto3.client(service, endpoint_url=endpoint, region_name="us-east-1")


@pytest.mark.parametrize("file", ["emr/pipeline.yaml", "databricks/pipelines/flights.yaml"])
def test_the_pipelines_are_right(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "kafka.example.com:9093")
    module = "kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule"
    monkeypatch.setenv("KAFKA_JAAS", f'{module} required username="u" password="p";')
    assert load(DEPLOY / file).name == "flights"


def test_the_cron_job_finds_its_pipeline_and_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = read("kubernetes/kustomization.yaml")
    by_kind = {each["kind"]: each for each in (read(f"kubernetes/{name}") for name in made["resources"])}
    (config,) = made["configMapGenerator"]
    job = by_kind["CronJob"]["spec"]["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["serviceAccountName"] == by_kind["ServiceAccount"]["metadata"]["name"]
    assert job["podFailurePolicy"]["rules"][0]["onExitCodes"]["containerName"] == container["name"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    mounted = {each["mountPath"]: volumes[each["name"]] for each in container["volumeMounts"]}
    assert mounted[container["workingDir"]]["emptyDir"], "the rest of the file system is read-only"
    command, path = container["args"]
    assert command == "run"
    folder, name = path.rsplit("/", 1)
    assert mounted[folder]["configMap"]["name"] == config["name"]
    assert config["files"] == [name]
    text = (DEPLOY / "kubernetes" / name).read_text(encoding="utf-8")
    for secret in re.findall(r"\$\{file:(.+?)\}", text):
        assert mounted[secret.rsplit("/", 1)[0]]["secret"]["secretName"]
        text = text.replace(secret, str(tmp_path / "secret"))
    (tmp_path / "secret").write_text("hidden")
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    (tmp_path / name).write_text(text)
    assert load(tmp_path / name).name == "flights"


def test_emr_serverless_takes_the_job(s3: Store) -> None:
    job = read("emr/job-run.json")
    client = aws("emr-serverless", s3.endpoint)
    application = client.create_application(name="a", releaseLabel="emr-6.15.0", type="SPARK", clientToken="t")
    started = client.start_job_run(**{**job, "applicationId": application["applicationId"]})
    assert started["jobRunId"]
    properties = job["configurationOverrides"]["applicationConfiguration"][0]["properties"]
    assert RUN.settings.items() <= properties.items(), "what `lakelock emr submit` starts"


def test_emr_takes_the_step(s3: Store) -> None:
    (step,) = steps = read("emr/step.json")
    client = aws("emr", s3.endpoint)
    cluster = client.run_job_flow(Name="c", Instances={"MasterInstanceType": "m5.xlarge", "InstanceCount": 1})
    assert client.add_job_flow_steps(JobFlowId=cluster["JobFlowId"], Steps=steps)["StepIds"]
    arguments = step["HadoopJarStep"]["Args"]
    made = command(RUN)
    assert arguments[: len(made)] == made, "what `lakelock emr submit` starts"


WITHOUT_RESOURCE = {"glue:GetSchemaVersion"}
"""A record names a version of a schema by its id alone: AWS checks that against no registry."""


@pytest.mark.parametrize(
    "name", ["emr/iam/job", "emr/iam/glue", "emr/iam/msk", "emr/iam/submitter", "eventbridge/role"]
)
def test_policies_are_accepted_and_give_no_more_than_is_named(name: str, s3: Store) -> None:
    iam = aws("iam", s3.endpoint)
    policy = read(f"{name}.json")
    iam.create_policy(PolicyName=name.replace("/", "-"), PolicyDocument=json.dumps(policy))
    for statement in policy["Statement"]:
        assert statement["Effect"] == "Allow"
        assert not [action for action in statement["Action"] if "*" in action]
        if set(statement["Action"]) <= WITHOUT_RESOURCE:
            continue
        for resource in statement["Resource"]:
            assert resource.split(":", 5)[-1].strip("/").split("/")[0] not in ("", "*"), resource


@pytest.mark.parametrize("name", ["emr/iam/job-trust", "eventbridge/role-trust"])
def test_roles_are_for_one_service_and_one_account(name: str, s3: Store) -> None:
    trust = read(f"{name}.json")
    aws("iam", s3.endpoint).create_role(RoleName=name.replace("/", "-"), AssumeRolePolicyDocument=json.dumps(trust))
    (statement,) = trust["Statement"]
    assert isinstance(statement["Principal"]["Service"], str)
    assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": "123456789012"}


def test_the_job_may_read_and_write_what_it_names() -> None:
    job, (lake, *_) = read("emr/job-run.json"), read("emr/pipeline.yaml")["sinks"]
    granted = {
        (action, resource)
        for statement in read("emr/iam/job.json")["Statement"]
        for action in statement["Action"]
        for resource in statement["Resource"]
    }

    def may(action: str, url: str) -> bool:
        arn = re.sub(r"^s3a?://", "arn:aws:s3:::", url)
        return any(name == action and arn.startswith(on.removesuffix("*")) for name, on in granted)

    for url in re.findall(r"s3://[^\s,\"#]+", json.dumps(job["jobDriver"]) + json.dumps(RUN.settings)):
        assert may("s3:GetObject", url), url
    logs = job["configurationOverrides"]["monitoringConfiguration"]["s3MonitoringConfiguration"]["logUri"]
    assert may("s3:PutObject", logs)
    assert may("s3:PutObject", f"{lake['path']}/")
    assert not may("s3:PutObject", f"{JOBS}/run.py")


def test_the_schedule_starts_the_same_job(s3: Store) -> None:
    schedule = read("eventbridge/schedule.json")
    client = aws("scheduler", s3.endpoint)
    client.create_schedule(**schedule)
    made = client.get_schedule(Name=schedule["Name"])
    assert (made["ScheduleExpression"], made["Target"]["Arn"]) == (
        "rate(10 minutes)", "arn:aws:scheduler:::aws-sdk:emrserverless:startJobRun",
    )  # fmt: skip

    def as_boto3(value: Any, of_spark: bool = False) -> Any:
        """The scheduler wants names as SDKs for Java have them: JobDriver, where boto3 says jobDriver."""
        if isinstance(value, list):
            return [as_boto3(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            name if of_spark else name[0].lower() + name[1:]: as_boto3(each, name == "Properties")
            for name, each in value.items()
        }

    job = as_boto3(json.loads(schedule["Target"]["Input"]))
    assert job == {**read("emr/job-run.json"), "clientToken": "<aws.scheduler.execution-id>"}


@pytest.mark.parametrize("name", ["job_cluster", "serverless"])
def test_the_databricks_bundle_fits_together(name: str) -> None:
    bundle = read("databricks/databricks.yml")
    text = (DEPLOY / f"databricks/resources/{name}.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{var\.(\w+)\}", text)) <= bundle["variables"].keys()
    assert [Path(each).parent.name for each in bundle["include"]] == ["resources"]
    ((_, job),) = yaml.safe_load(text)["resources"]["jobs"].items()
    (task,) = job["tasks"]
    assert job["schedule"]["quartz_cron_expression"] == "0 0/10 * * * ?"
    assert job["max_concurrent_runs"] == 1
    assert job["email_notifications"]["on_failure"] == ["${var.notify}"]
    assert task["max_retries"] > 0
    wheel = "../dist/*.whl"
    if name == "serverless":
        (environment,) = job["environments"]
        assert task["environment_key"] == environment["environment_key"]
        assert environment["spec"]["dependencies"] == [wheel]
        assert (DEPLOY / "databricks/resources" / task["spark_python_task"]["python_file"]).is_file()
        given = " ".join(task["spark_python_task"]["parameters"])
    else:
        (cluster,) = job["job_clusters"]
        assert task["job_cluster_key"] == cluster["job_cluster_key"]
        assert task["libraries"] == [{"whl": wheel}]
        assert task["python_wheel_task"]["entry_point"] == "lakelock"
        given = " ".join(cluster["new_cluster"]["spark_env_vars"])
    pipeline = (DEPLOY / "databricks/pipelines/flights.yaml").read_text(encoding="utf-8")
    for variable in re.findall(r"\$\{env:(\w+)\}", pipeline):
        assert variable in given
    (sink,) = yaml.safe_load(pipeline)["sinks"]
    assert sink["table"].count(".") == 2


@pytest.mark.breadth
def test_serverless_compute_gets_its_secrets_from_their_scope(tmp_path: Path) -> None:
    """dbutils is Databricks' own, and stood in for here."""
    package = tmp_path / "databricks" / "sdk"
    package.mkdir(parents=True)
    (package / "runtime.py").write_text(
        "class dbutils:\n    class secrets:\n        get = staticmethod({('lakelock', 'kafka-jaas'): 'j'}.get)\n"
        "dbutils.secrets.get = staticmethod(lambda scope, key: {('lakelock', 'kafka-jaas'): 'j'}[scope, key])\n"
    )
    file = tmp_path / "flights.yaml"
    file.write_text("name: ${env:PLAIN}\nnonsense: ${env:KAFKA_JAAS}\n")
    run = [sys.executable, str(DEPLOY / "databricks/run.py"), "PLAIN=flights", "KAFKA_JAAS=secret:lakelock/kafka-jaas"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(DEPLOY.parent)])}
    done = subprocess.run([*run, "--", "check", str(file)], capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert "nonsense: unknown option" in done.stderr
    assert "isn't set" not in done.stderr
    assert subprocess.run([*run, "--", "--help"], capture_output=True, env=environment).returncode == 0


@pytest.mark.breadth
@pytest.mark.parametrize(("command", "ended_well"), [(["init"], True), (["check", "nowhere.yaml"], False)])
def test_a_wheel_task_takes_a_good_end_for_one(command: list[str], ended_well: bool) -> None:
    """It is a cell of IPython that calls the entry point, with its parameters in sys.argv."""
    there = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell
sys.argv = ["lakelock", *{command}]
cell = "from connector.cli.app import main; main()"
print("ended well:", InteractiveShell.instance().run_cell(cell).success, file=sys.stderr)
"""
    environment = {**os.environ, "PYTHONPATH": str(DEPLOY.parent)}
    done = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, env=environment, check=True)
    assert f"ended well: {ended_well}" in done.stderr


@pytest.mark.breadth
@pytest.mark.parametrize(("command", "ended_well"), [(["init"], True), (["check", "nowhere.yaml"], False)])
def test_serverless_compute_takes_a_good_end_for_one(command: list[str], ended_well: bool) -> None:
    """It runs a task as a cell of IPython, where an exit is an error, whatever its code."""
    there = f"""
import sys
from IPython.core.interactiveshell import InteractiveShell
sys.argv = ["run.py", "KAFKA_BOOTSTRAP=b:9092", "--", *{command}]
text = open({str(DEPLOY / "databricks/run.py")!r}).read()
cell = f"exec(compile({{text!r}}, 'run.py', 'exec'))"
print("ended well:", InteractiveShell.instance().run_cell(cell).success, file=sys.stderr)
"""
    environment = {**os.environ, "PYTHONPATH": str(DEPLOY.parent)}
    done = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, env=environment, check=True)
    assert f"ended well: {ended_well}" in done.stderr


def test_the_page_names_tests_and_files_that_exist() -> None:
    page = DEPLOY.parent / "docs" / "deploy.md"
    text = page.read_text(encoding="utf-8")
    tests = "\n".join(file.read_text(encoding="utf-8") for file in (DEPLOY.parent / "tests").rglob("*.py"))
    assert not [name for name in re.findall(r"`(test_\w+)`", text) if f"def {name}(" not in tests]
    assert not [link for link in re.findall(r"\]\((\.\.[^)]+)\)", text) if not (page.parent / link).exists()]


def test_the_dag_is_python_and_its_options_are_there() -> None:
    text = (DEPLOY / "airflow/lakelock_flights.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    compile(tree, "lakelock_flights.py", "exec")
    used = {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and str(node.value).startswith("--")
    }
    submit = typer.main.get_command(app).commands["emr"].commands["submit"]  # type: ignore[attr-defined]
    known = {option for parameter in submit.params for option in parameter.opts}
    assert used <= known


@pytest.mark.breadth
def test_the_wheel_for_clusters_leaves_their_spark_alone(tmp_path: Path) -> None:
    name, content = cluster_wheel(())
    assert cluster_wheel(()) == (name, content)
    made = tmp_path / name
    made.write_bytes(content)
    with zipfile.ZipFile(made) as files:
        (record,) = (name for name in files.namelist() if name.endswith("/RECORD"))
        listed = list(csv.reader(files.read(record).decode().splitlines()))
        assert sorted(name for name, _, _ in listed) == sorted(files.namelist())
        for name, digest, size in listed[:-1]:
            content = files.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={expected}", str(len(content)))
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, made]
    subprocess.run(pip, check=True)
    installed = next(iter(Distribution.discover(name="lakelock", path=[str(site)])))
    assert installed.version.endswith("+cluster")
    required = [re.split(r"[^\w.-]", each)[0] for each in installed.requires or [] if "extra ==" not in each]
    assert "boto3" in required
    assert not {"pyspark", "delta-spark"} & set(required)
    assert (site / "bin" / "lakelock").is_file()
    assert (site / "connector" / "package" / "templates" / "emr" / "make.sh.template").is_file()
