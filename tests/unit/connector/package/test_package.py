"""What ``lakelock package`` writes, and what it refuses. deploy/ holds what it makes of the examples there."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from connector.cli.app import app
from connector.package.needs import needs

DEPLOY = Path(__file__).parents[4] / "deploy"
SINK = "{type: delta_append, path: 's3a://lake/t'}"
TEXT = f"""
name: all_flights
source:
  topics: [flights]
  kafka:
    bootstrap.servers: ${{env:BROKERS}}
    security.protocol: SASL_SSL
    sasl.mechanism: SCRAM-SHA-512
    ssl.truststore.type: PEM
    ssl.truststore.location: /etc/certs/kafka.pem
    sasl.jaas.config: ${{env:JAAS}}
value: {{format: json, schema: "a INT"}}
sinks: [{SINK}]
"""
KUBERNETES = ("--for", "kubernetes", "--image", "r.example.com/lakelock@sha256:0f")
DATABRICKS = ("--for", "databricks", "--volume", "/Volumes/a/b/c", "--notify", "on-call@example.com")
EMR = (
    "--for", "emr", "--s3-folder", "s3a://jobs/lakelock/", "--application-id", "00f",
    "--role-arn", "arn:aws:iam::1:role/r", "--spark", "4.0.2",
)  # fmt: skip
BROKERS = ("--env", "BROKERS=b1:9093,b2:9093")


def packaged(*words: object) -> str:
    told = CliRunner().invoke(app, ["package", *map(str, words)])
    assert told.exit_code == 0, told.output
    return re.sub(r"\s+", " ", told.output)


def refused(*words: object) -> str:
    told = CliRunner().invoke(app, ["package", *map(str, words)])
    assert told.exit_code == 2, told.output
    return re.sub(r"\s+", " ", told.output)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "flights.yaml"
    file.write_text(TEXT, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("kubernetes/flights.yaml", ("--for", "kubernetes", "--image", "EXAMPLE-REGISTRY/lakelock:0.2.0")),
        (
            "databricks/pipelines/flights.yaml",
            (
                "--for", "databricks", "--volume", "/Volumes/main/lakelock/pipelines",
                "--notify", "data-team@example.com",
            ),
        ),
    ],
)  # fmt: skip
def test_the_examples_in_deploy_are_what_the_command_makes(file: str, options: Sequence[str], tmp_path: Path) -> None:
    packaged(DEPLOY / file, "--to", tmp_path, *options, "--env", "KAFKA_BOOTSTRAP=kafka.example.com:9093")
    there = DEPLOY / Path(file).parts[0]
    made = {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*") if each.is_file()}
    committed = {
        str(each.relative_to(there)) for each in there.rglob("*") if each.is_file() and "dist" not in each.parts
    }
    assert {name for name in made if not name.endswith(".whl")} == committed
    for name in committed:
        assert (tmp_path / name).read_text() == (there / name).read_text(), name


def test_a_pod_has_the_file_its_variables_and_its_secrets(file: Path, tmp_path: Path) -> None:
    file.write_text(TEXT.replace("${env:JAAS}", "${file:/run/kafka/jaas}\n    ssl.key.password: ${env:KEY_PASSWORD}"))
    told = packaged(file, "--to", tmp_path / "k", *KUBERNETES, *BROKERS)
    job = yaml.safe_load((tmp_path / "k/cronjob.yaml").read_text())
    assert job["metadata"]["name"] == "lakelock-all-flights"
    assert job["spec"]["schedule"] == "*/10 * * * *"
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "r.example.com/lakelock@sha256:0f"
    assert container["args"] == ["run", "/etc/lakelock/flights.yaml"]
    secret = {"name": "lakelock-all-flights", "key": "KEY_PASSWORD"}
    assert container["env"] == [
        {"name": "BROKERS", "value": "b1:9093,b2:9093"},
        {"name": "KEY_PASSWORD", "valueFrom": {"secretKeyRef": secret}},
    ]
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes[mounts["/run/kafka"]]["secret"]["secretName"] == secret["name"]
    assert (tmp_path / "k/flights.yaml").read_bytes() == file.read_bytes()
    assert "--from-file=jaas=./jaas --from-file=KEY_PASSWORD=./KEY_PASSWORD" in told
    assert "has to find there: /etc/certs/kafka.pem" in told


def objects(folder: Path) -> set[tuple[str, str]]:
    """The kind and the name of each object that `kubectl apply -k` makes."""
    made = yaml.safe_load((folder / "kustomization.yaml").read_text())
    read = (yaml.safe_load((folder / name).read_text()) for name in made["resources"])
    maps = {("ConfigMap", each["name"]) for each in made["configMapGenerator"]}
    return {(each["kind"], each["metadata"]["name"]) for each in read} | maps


def test_two_packages_share_no_object(file: Path, tmp_path: Path) -> None:
    """To apply the second one would take the rights from the account of the first."""
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        packaged(file, "--to", folder, *KUBERNETES, *BROKERS, "--secret", "JAAS", "--name", folder.name)
    assert len(objects(one)) == 3
    assert not objects(one) & objects(other)


def test_an_account_that_has_its_rights_stays_as_it_is(file: Path, tmp_path: Path) -> None:
    options = (file, "--to", tmp_path / "k", *KUBERNETES, "--secret", "JAAS", "--replace")
    packaged(*options, *BROKERS)
    account = tmp_path / "k/serviceaccount.yaml"
    made = account.read_text()
    name = "{name: lakelock-all-flights}"
    assert name in made
    role = made.replace(name, "{name: lakelock-all-flights, annotations: {eks.amazonaws.com/role-arn: 'arn:1'}}")
    account.write_text(role)
    packaged(*options, "--env", "BROKERS=others:9093")
    assert account.read_text() == role
    assert "others:9093" in (tmp_path / "k/cronjob.yaml").read_text()
    account.write_text(role.replace("lakelock-all-flights", "lakelock"))  # as Lakelock called it before
    assert "has annotations for the service account 'lakelock'" in refused(*options, *BROKERS)
    for own in (made + "# mine", "no: {yaml"):
        account.write_text(own)
        packaged(*options, *BROKERS)
        assert account.read_text() == made


def test_several_pipelines_are_one_job_of_their_folder(file: Path, tmp_path: Path) -> None:
    (tmp_path / "t.avsc").write_text("{}")
    other = file.with_name("other flights.yaml")
    other.write_text(
        TEXT.replace("all_flights", "other").replace(
            '{format: json, schema: "a INT"}', "{format: avro, schema_file: t.avsc}"
        )
    )
    named = ("--name", "all", "--every", "60")
    packaged(file, other, "--to", tmp_path / "k", *KUBERNETES, *BROKERS, *named)
    job = yaml.safe_load((tmp_path / "k/cronjob.yaml").read_text())
    assert job["spec"]["schedule"] == "0 * * * *"
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["run", "/etc/lakelock/flights.yaml", "/etc/lakelock/other flights.yaml"]
    (config,) = yaml.safe_load((tmp_path / "k/kustomization.yaml").read_text())["configMapGenerator"]
    assert config["files"] == ["flights.yaml", "other flights.yaml", "t.avsc"]
    assert (tmp_path / "k/t.avsc").is_file()
    assert "Package each of them" in refused(file, other, "--to", tmp_path / "e", *EMR, *BROKERS, *named)
    assert "--name is missing" in refused(file, other, "--to", tmp_path / "n", *KUBERNETES, *BROKERS)


def test_a_bundle_takes_secrets_from_their_scope(file: Path, tmp_path: Path) -> None:
    told = packaged(file, "--to", tmp_path / "d", *DATABRICKS, *BROKERS)
    bundle = yaml.safe_load((tmp_path / "d/databricks.yml").read_text())
    assert bundle["variables"]["brokers"]["default"] == "b1:9093,b2:9093"
    jobs = {}
    for each in ("job_cluster", "serverless"):
        text = (tmp_path / f"d/resources/{each}.yml").read_text()
        assert set(re.findall(r"\$\{var\.(\w+)\}", text)) <= bundle["variables"].keys()
        jobs[each] = next(iter(yaml.safe_load(text)["resources"]["jobs"].values()))
    cluster = jobs["job_cluster"]["job_clusters"][0]["new_cluster"]
    assert cluster["spark_env_vars"] == {"BROKERS": "${var.brokers}", "JAAS": "{{secrets/lakelock-all-flights/jaas}}"}
    given = jobs["serverless"]["tasks"][0]["spark_python_task"]["parameters"]
    assert given[:2] == ["BROKERS=${var.brokers}", "JAAS=secret:lakelock-all-flights/jaas"]
    assert given[3:5] == ["run", "${var.pipelines}/flights.yaml"]
    assert (tmp_path / "d/pipelines/flights.yaml").is_file()
    assert len([*(tmp_path / "d/dist").glob("lakelock-*+cluster-py3-none-any.whl")]) == 1
    assert "put-secret lakelock-all-flights jaas < jaas.txt" in told


def test_a_job_of_emr_names_what_its_folder_has(file: Path, tmp_path: Path) -> None:
    packaged(file, "--to", tmp_path / "e", *EMR, *BROKERS)
    text = (tmp_path / "e/job-run.json").read_text()
    script, pom = ((tmp_path / "e" / name).read_text() for name in ("make.sh", "pom.xml"))
    properties = json.loads(text)["configurationOverrides"]["applicationConfiguration"][0]["properties"]
    assert properties["spark.emr-serverless.driverEnv.BROKERS"] == "b1:9093,b2:9093"
    assert properties["spark.emr-serverless.driverEnv.JAAS"] == "EMR.secret@lakelock/lakelock-all-flights/jaas"
    made = {
        "environment.tar.gz",
        *(f"jars/{name}.jar" for name in re.findall(r"<includeA.*?>(.*)<", pom)[0].split(",")),
    }
    for name in re.findall(r"s3://jobs/lakelock/([^\s,\"#]+)", text):
        assert name in made or name == "logs/" or (tmp_path / "e/s3" / name).is_file(), name
    assert "<version>4.0.2</version>" in pom
    assert 's3 "s3://jobs/lakelock"' in script
    (wheel,) = (tmp_path / "e").glob("*.whl")
    assert wheel.name in script


@pytest.mark.parametrize(
    ("value", "brought"),
    [
        ("{format: json, schema: 'a INT'}", set()),
        ("{format: protobuf, registry: {url: 'http://r'}, message: a.B}", {"protobuf", "grpcio-tools"}),
        ("{format: json, registry: {url: 'http://r'}, validate: true}", {"jsonschema"}),
        ("{format: debezium, registry: {url: 'http://r'}}", {"fastavro"}),
    ],
)
def test_the_wheel_of_a_cluster_brings_what_the_format_needs(
    file: Path, tmp_path: Path, value: str, brought: set[str]
) -> None:
    file.write_text(TEXT.replace('{format: json, schema: "a INT"}', value), encoding="utf-8")
    packaged(file, "--to", tmp_path / "d", *DATABRICKS, *BROKERS)
    (wheel,) = (tmp_path / "d/dist").iterdir()
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (each for each in opened.namelist() if each.endswith("/METADATA"))
        metadata = opened.read(name).decode()
    required = set(re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata, flags=re.M))
    assert required & {"protobuf", "grpcio-tools", "jsonschema", "fastavro", "opentelemetry-sdk"} == brought
    assert not required & {"pyspark", "delta-spark"}
    assert "boto3" in required


@pytest.mark.parametrize("platform", [KUBERNETES, DATABRICKS, EMR])
def test_a_second_time_nothing_changes_and_what_was_edited_stays(
    file: Path, tmp_path: Path, platform: Sequence[str]
) -> None:
    to = tmp_path / "made"
    packaged(file, "--to", to, *platform, *BROKERS)
    assert f"{to}: 0 files written" in packaged(file, "--to", to, *platform, *BROKERS)
    edited = next(each for each in sorted(to.rglob("*")) if each.suffix in (".yaml", ".yml", ".json"))
    before = edited.read_text()
    edited.write_text(f"{before}\n")
    assert f"another content: {edited.relative_to(to)}. Nothing was written" in refused(
        file, "--to", to, *platform, *BROKERS
    )
    assert "1 file written" in packaged(file, "--to", to, *platform, *BROKERS, "--replace")
    assert edited.read_text() == before


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        (TEXT, KUBERNETES, "Give --env BROKERS=VALUE, or --secret BROKERS"),
        (TEXT, (*KUBERNETES, *BROKERS, "--env", "JAAS=x"), "a secret is written into no file"),
        (TEXT, (*KUBERNETES, *BROKERS, "--env", "OTHER=x"), "no pipeline file has ${env:OTHER}"),
        (TEXT, (*KUBERNETES, "--env", "BROKERS"), "--env: write NAME=VALUE"),
        (TEXT, ("--for", "kubernetes", *BROKERS), "--for kubernetes needs --image"),
        (TEXT, (*KUBERNETES, *BROKERS, "--notify", "a@b"), "--notify isn't for kubernetes"),
        (TEXT, (*KUBERNETES, *BROKERS, "--every", "7"), "--every 7: write one of 1, 2"),
        (TEXT, (*KUBERNETES, *BROKERS, "--name", "東京"), "--name: write a name with letters"),
        (TEXT.replace("s3a://lake/t", "lake/t"), (*KUBERNETES, *BROKERS), "sinks[0].path: 'lake/t' is a folder beside"),
        (TEXT.replace('schema: "a INT"', "schema_file: a.json"), (*KUBERNETES, *BROKERS), "'a.json' is no file in"),
        (TEXT.replace("${env:JAAS}", "${file:jaas}"), (*KUBERNETES, *BROKERS), "a pod has no secret there"),
        (TEXT.replace("${env:JAAS}", "${file:/jaas}"), (*EMR, *BROKERS), "Write ${env:NAME} instead"),
        (TEXT.replace("s3a://lake/t", "/mnt/t"), (*EMR, *BROKERS), "/mnt/t: a folder of a job on EMR Serverless ends"),
        (TEXT, (*EMR[:3], "jobs", *EMR[4:], *BROKERS), "--s3-folder: write s3://bucket/path"),
        (TEXT.replace("sinks:", "sink:"), (*KUBERNETES, *BROKERS), "sink: unknown option"),
        (f"{TEXT}trigger: {{interval: 10 seconds}}", (*EMR, *BROKERS), "on EMR Serverless is ended after an hour"),
        (f"{TEXT}trigger: {{interval: 0}}", (*DATABRICKS, *BROKERS), "Write trigger: available_now"),
    ],
)  # fmt: skip
def test_what_would_fail_there_is_refused_here(
    text: str, options: Sequence[str], told: str, file: Path, tmp_path: Path
) -> None:
    file.write_text(text)
    assert told in refused(file, "--to", tmp_path / "made", *options)
    assert not (tmp_path / "made").exists()


def test_a_pod_may_run_until_it_is_stopped(file: Path, tmp_path: Path) -> None:
    file.write_text(f"{TEXT}trigger: {{interval: 10 seconds}}")
    told = packaged(file, "--to", tmp_path / "k", *KUBERNETES, *BROKERS)
    # A change of a CronJob touches no job that it has started, and the next one waits until that ends.
    (label,) = re.findall(r"kubectl delete jobs -l (\S+)", told)
    job = yaml.safe_load((tmp_path / "k/cronjob.yaml").read_text())["spec"]["jobTemplate"]
    assert label.split("=") == list(*job["metadata"]["labels"].items())
    assert "Deadline" not in (tmp_path / "k/cronjob.yaml").read_text().replace("startingDeadline", "")


def test_a_run_that_ends_takes_a_change_by_itself(file: Path, tmp_path: Path) -> None:
    assert "kubectl delete" not in packaged(file, "--to", tmp_path / "k", *KUBERNETES, *BROKERS)


def test_a_file_goes_on_if_the_pipeline_of_one_topic_does(file: Path) -> None:
    overrides = "{flights: {trigger: {interval: 10 seconds}}}"
    sink = "{type: delta_append, path: 's3a://lake/{topic}'}"
    tables = f"tables: {{for_each: topic, sink: {sink}, overrides: {overrides}}}"
    file.write_text(TEXT.replace(f"sinks: [{SINK}]", tables))
    assert needs(file).never_ends


def test_a_variable_that_is_said_to_be_a_secret_is_taken_from_the_store(file: Path, tmp_path: Path) -> None:
    packaged(file, "--to", tmp_path / "k", *KUBERNETES, "--secret", "BROKERS")
    text = (tmp_path / "k/cronjob.yaml").read_text()
    assert "{name: BROKERS, valueFrom: {secretKeyRef: {name: lakelock-all-flights, key: BROKERS}}}" in text


@pytest.mark.parametrize("platform", [KUBERNETES, DATABRICKS, EMR])
def test_two_jobs_share_no_secret(file: Path, tmp_path: Path, platform: Sequence[str]) -> None:
    """Whoever stores the secrets of the second would replace those of the first, such as the salt of a mask."""
    stored = []
    for name in ("a", "a b"):
        told = packaged(file, "--to", tmp_path / name, *platform, *BROKERS, "--name", name)
        stored.append(set(re.findall(r"secrets (?:create|put)-\S+ \S+|secret generic \S+|as lakelock/\S+", told)))
    assert all(stored)
    assert not stored[0] & stored[1]


def test_what_one_topic_needs_is_told_apart_as_what_all_topics_need(file: Path, tmp_path: Path) -> None:
    for name in ("all.json", "own.json"):
        (tmp_path / name).write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    file.write_text(
        TEXT.replace(
            f"sinks: [{SINK}]",
            """
tables:
  for_each: topic
  sink: {type: delta_append, path: "s3a://lake/{topic}"}
  overrides:
    flights:
      notify: {url: "${env:HOOK}"}
      steps: [{mask: a, salt: "${env:SALT}"}]
      source: {kafka: {client.id: "${env:CLIENT}", ssl.truststore.location: /etc/certs/own.pem}}
      value: {schema_file: own.json}
""",
        ).replace('schema: "a INT"', "schema_file: all.json")
    )
    found = needs(file)
    assert (found.secrets, found.variables) == (["JAAS", "HOOK", "SALT"], ["BROKERS", "CLIENT"])
    assert found.there == ["/etc/certs/kafka.pem", "/etc/certs/own.pem"]
    assert found.beside == ["all.json", "own.json"]


def test_jobs_whose_names_differ_share_nothing_on_the_platform(file: Path, tmp_path: Path) -> None:
    long = "orders of all the shops in the east and the "
    names = [long + "north", long + "south", "straße", "stra e"]
    called = []
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        packaged(file, "--to", folder, *KUBERNETES, *BROKERS, "--name", name, "--secret", "JAAS")
        called.append(yaml.safe_load((folder / "cronjob.yaml").read_text())["metadata"]["name"])
    assert len(set(called)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", each) and len(each) <= 52 for each in called)
