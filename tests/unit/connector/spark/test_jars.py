"""The jars' folders, and fetching them: Maven is played by a script, so no network and no Java."""

import hashlib
import shutil
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest

from connector.spark import jars
from connector.spark.jars import built_for, digests
from connector.spark.session import _jars as spark_jars
from sinks.errors import ConfigurationError, JarsMissing

POM = Path(jars.__file__).parent


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAKELOCK_JARS", str(tmp_path / "jars"))
    return tmp_path / "jars"


class Maven:
    """A `mvn` on the PATH that does what a test wants, and writes down how it was called."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.poms = folder / "poms"
        self.poms.mkdir(parents=True)
        for pom in POM.glob("*.xml"):
            shutil.copy(pom, self.poms)
        monkeypatch.setattr(jars, "_POMS", self.poms)
        self.behave("")
        monkeypatch.setenv("PATH", str(folder))

    def behave(self, then: str, *made: str) -> None:
        """Put jars of these names where Maven is told to, then run a line of Python. The digests are theirs."""
        for pom in self.poms.glob("*.xml"):
            digests.file_for(pom).write_text("".join(f"{hashlib.sha256().hexdigest()}  {name}\n" for name in made))
        script = f"""#!{sys.executable}
import pathlib, sys
with open({str(self.folder / "calls")!r}, "a") as calls:
    print(*sys.argv[1:], sep="\\t", file=calls)
options = dict(word[2:].split("=", 1) for word in sys.argv if word.startswith("-D"))
for name in {made!r}:
    pathlib.Path(options["outputDirectory"], name).touch()
{then}
"""
        (self.folder / "mvn").write_text(script, encoding="utf-8")
        (self.folder / "mvn").chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        file = self.folder / "calls"
        return [line.split("\t") for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maven:
    return Maven(tmp_path / "maven bin", monkeypatch)


def names(found: list[Path]) -> list[str]:
    return [jar.name for jar in found]


def test_the_jars_are_in_the_virtual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKELOCK_JARS", raising=False)
    assert jars.folder("spark") == Path(sys.prefix, "share", "lakelock", "jars", "spark")


def test_a_variable_puts_them_elsewhere(home: Path) -> None:
    assert [jars.folder(kind) for kind in jars.KINDS] == [home / "spark", home / "s3", home / "kafka"]


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKELOCK_JARS", "")
    assert jars.folder("kafka") == Path(sys.prefix, "share", "lakelock", "jars", "kafka")


def test_find_lists_jars_sorted_and_nothing_else(home: Path) -> None:
    assert jars.find("kafka") == []
    (home / "kafka").mkdir(parents=True)
    for name in ("b.jar", "a.jar", "pom.xml"):
        (home / "kafka" / name).touch()
    assert jars.find("kafka") == [home / "kafka" / "a.jar", home / "kafka" / "b.jar"]


def test_fetch_says_how_to_go_on_without_maven(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JarsMissing, match="`mvn` isn't on the PATH") as error:
        jars.fetch("spark")
    assert "LAKELOCK_JARS" in error.value.hint
    assert not home.exists()


def test_fetch_brings_the_jars_and_nothing_remains_beside_them(home: Path, maven: Maven) -> None:
    maven.behave("", "b.jar", "a.jar")
    assert names(jars.fetch("spark")) == ["a.jar", "b.jar"]
    assert [path.name for path in home.iterdir()] == ["spark"]
    assert (home / "spark" / "pom.xml").read_bytes() == (POM / built_for.installed().pom).read_bytes()


def test_maven_works_on_a_copy_outside_of_the_package(home: Path, maven: Maven) -> None:
    maven.behave("", "a.jar")
    jars.fetch("kafka")
    (call,) = maven.calls
    assert {"-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"} <= set(call)
    assert Path(call[call.index("-f") + 1]).is_relative_to(home)


def test_a_second_fetch_does_nothing(home: Path, maven: Maven) -> None:
    maven.behave("", "a.jar")
    assert jars.fetch("spark") == jars.fetch("spark") == [home / "spark" / "a.jar"]
    assert len(maven.calls) == 1


def test_a_complete_folder_needs_no_maven(home: Path, maven: Maven, monkeypatch: pytest.MonkeyPatch) -> None:
    maven.behave("", "a.jar")
    jars.fetch("spark")
    monkeypatch.setenv("PATH", str(home))
    assert names(jars.fetch("spark")) == ["a.jar"]


def test_another_pom_replaces_the_folder_as_a_whole(home: Path, maven: Maven) -> None:
    maven.behave("", "old.jar")
    jars.fetch("spark")
    (home / "spark" / "pom.xml").write_text("<project/>")
    maven.behave("", "new.jar")
    assert names(jars.fetch("spark")) == ["new.jar"]
    assert [path.name for path in home.iterdir()] == ["spark"]


def test_a_fetch_that_fails_halfway_leaves_the_old_jars(home: Path, maven: Maven) -> None:
    maven.behave("", "old.jar")
    jars.fetch("spark")
    (home / "spark" / "pom.xml").write_text("<project/>")
    maven.behave("sys.exit(1)", "half.jar")
    with pytest.raises(JarsMissing):
        jars.fetch("spark")
    assert names(jars.find("spark")) == ["old.jar"]
    assert [path.name for path in home.iterdir()] == ["spark"]


def test_a_first_fetch_that_fails_leaves_nothing(home: Path, maven: Maven) -> None:
    maven.behave("sys.exit(1)", "half.jar")
    with pytest.raises(JarsMissing):
        jars.fetch("spark")
    assert list(home.iterdir()) == []


def test_success_without_jars_is_a_failure(home: Path, maven: Maven) -> None:
    with pytest.raises(JarsMissing):
        jars.fetch("spark")


def test_the_error_has_mavens_cause_without_its_boilerplate_and_passwords(home: Path, maven: Maven) -> None:
    said = [
        "\x1b[0m[ERROR] Could not find artifact a:b:jar:1 in mirror (https://me:secret@127.0.0.1/maven)",
        "[ERROR] ",
        "[ERROR] Re-run Maven using the -X switch to enable full debug logging.",
        "[ERROR] [Help 1] http://127.0.0.1/help",
    ]
    maven.behave(f"print({chr(10).join(said)!r}); sys.exit(7)")
    with pytest.raises(JarsMissing) as error:
        jars.fetch("kafka")
    assert error.value.message == (
        "Maven could not download the kafka jars (exit code 7):\n"
        "Could not find artifact a:b:jar:1 in mirror (https://***@127.0.0.1/maven)"
    )


def test_jars_that_somebody_else_put_there_are_not_deleted(home: Path, maven: Maven) -> None:
    (home / "spark").mkdir(parents=True)
    (home / "spark" / "mine.jar").touch()
    with pytest.raises(JarsMissing, match="not those of a completed download"):
        jars.fetch("spark")
    assert names(jars.find("spark")) == ["mine.jar"]
    assert maven.calls == []


@pytest.mark.parametrize("pom", [pair.pom for pair in built_for.PAIRS])
def test_sparks_jars_bring_nothing_with_them(pom: str) -> None:
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    for dependency in ET.parse(POM / pom).iterfind(".//m:dependency", space):
        excluded = [dependency.findtext(f".//m:exclusion/m:{part}", "", space) for part in ("groupId", "artifactId")]
        assert excluded == ["*", "*"], dependency.findtext("m:artifactId", "", space)


@pytest.mark.parametrize(
    ("jar", "folder", "package"),
    [
        (jars.LOG_STORE_JAR, "log_store", "lakelock"),
        (jars.READER_JAR, "reader", "lakelock/reader"),
        (jars.PROTOBUF_JAR, "protobuf", "lakelock/protobuf"),
        (jars.JSON_JAR, "json", "lakelock/json"),
    ],
    ids=["log store", "reader", "protobuf", "json"],
)
def test_our_jars_were_built_from_the_sources_next_to_them(jar: Path, folder: str, package: str) -> None:
    sources = list((POM / "java" / folder).glob("*.java"))
    with zipfile.ZipFile(jar) as archive:
        assert {name for name in archive.namelist() if name.endswith(".java")} == {
            f"{package}/{s.name}" for s in sources
        }
        for source in sources:
            assert archive.read(f"{package}/{source.name}") == source.read_bytes(), "make jars"
            assert f"{package}/{source.stem}.class" in archive.namelist()


def installed(monkeypatch: pytest.MonkeyPatch, spark: str, delta: str) -> None:
    versions = {"pyspark": spark, "delta-spark": delta}
    monkeypatch.setattr(built_for, "version", versions.__getitem__)
    monkeypatch.setattr("connector.spark.session.version", versions.__getitem__)


@pytest.mark.parametrize(
    ("spark", "delta", "named"),
    [
        ("4.2.0", "4.4.0", ["io.delta:delta-spark_4.2_2.13:4.4.0", "org.apache.spark:spark-avro_2.13:4.2.0"]),
        ("4.1.1", "4.4.0", ["io.delta:delta-spark_4.1_2.13:4.4.0", "org.apache.spark:spark-avro_2.13:4.1.1"]),
        ("3.5.7", "3.3.2", ["io.delta:delta-spark_2.12:3.3.2", "org.apache.spark:spark-avro_2.12:3.5.7"]),
    ],
)
def test_jars_are_those_of_the_spark_that_is_installed(
    spark: str, delta: str, named: list[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, spark, delta)
    assert set(named) < set(spark_jars({}, False)["spark.jars.packages"].split(","))
    pom = (POM / built_for.installed().pom).read_text(encoding="utf-8")
    assert f"<version>{spark}</version>" in pom
    assert f"<version>{delta}</version>" in pom


def test_s3a_is_that_of_the_hadoop_which_spark_brings(
    monkeypatch: pytest.MonkeyPatch, home: Path, maven: Maven
) -> None:
    maven.behave("", "hadoop-aws.jar")
    for spark, delta, hadoop in (("4.2.0", "4.4.0", "3.5.0"), ("4.1.1", "4.4.0", "3.4.2")):
        installed(monkeypatch, spark, delta)
        jars.fetch("s3")
        assert f"<version>{hadoop}</version>" in (home / "s3" / "pom.xml").read_text(encoding="utf-8")
    installed(monkeypatch, "3.5.7", "3.3.2")
    with pytest.raises(JarsMissing, match="no S3A with conditional writes for Spark"):
        jars.fetch("s3")


@pytest.mark.parametrize(
    ("spark", "delta"), [("3.5.7", "4.4.0"), ("4.2.0", "3.3.2"), ("4.0.1", "4.0.0"), ("4.3.0", "4.4.0")]
)
def test_a_spark_and_a_delta_lake_that_are_no_pair_are_refused(
    spark: str, delta: str, home: Path, maven: Maven, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, spark, delta)
    for use in (lambda: spark_jars({}, False), lambda: jars.fetch("spark")):
        with pytest.raises(ConfigurationError, match=f"pyspark {spark} and delta-spark {delta}") as error:
            use()
        assert '"pyspark==3.5.*" "delta-spark==3.3.*"' in error.value.hint
    assert maven.calls == []


def test_tables_on_s3_need_spark_4_unless_their_commits_are_kept_apart_otherwise(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, "3.5.7", "3.3.2")
    with pytest.raises(ConfigurationError, match="Tables on S3 need Spark 4"):
        spark_jars({}, True)
    kept_apart = {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}
    assert "org.apache.hadoop:hadoop-aws:" in spark_jars(kept_apart, True)["spark.jars.packages"]


@pytest.mark.spark4("S3A's conditional writes")
def test_where_there_are_no_jars_spark_fetches_s3a_only_for_who_needs_it(home: Path) -> None:
    hadoop = {"4.1": "3.4.2", "4.2": "3.5.0"}[built_for.installed().spark]
    for s3 in (False, True):
        settings = spark_jars({}, s3)
        assert (f"org.apache.hadoop:hadoop-aws:{hadoop}" in settings["spark.jars.packages"].split(",")) is s3
        assert settings["spark.jars"] == ",".join(
            map(str, (jars.LOG_STORE_JAR, jars.PROTOBUF_JAR, jars.JSON_JAR, jars.READER_JAR))
        )


def test_where_there_are_jars_spark_is_given_them_all(home: Path) -> None:
    for kind in jars.KINDS:
        (home / kind).mkdir(parents=True)
        (home / kind / f"{kind}.jar").touch()
    every = [f"{home}/spark/spark.jar", f"{home}/s3/s3.jar", *map(str, jars.own())]
    for one_jvm in ({}, {"spark.master": "local[2]"}):
        assert spark_jars(one_jvm, False) == {"spark.driver.extraClassPath": ":".join(every)}
    for several in ({"spark.master": "spark://there:7077"}, {"spark.remote": "local[2]"}):
        assert spark_jars(several, False) == {"spark.jars": ",".join(every)}


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (
            "pathlib.Path(options['outputDirectory'], 'a.jar').write_text('x')",
            "a.jar has the SHA-256 digest 2d7116",
        ),
        ("pathlib.Path(options['outputDirectory'], 'a.jar').unlink()", "a.jar is missing"),
        ("pathlib.Path(options['outputDirectory'], 'c.jar').touch()", "c.jar was never asked for"),
    ],
)
def test_jars_that_were_not_tested_are_refused_and_the_old_ones_stay(
    home: Path, maven: Maven, then: str, said: str
) -> None:
    maven.behave("", "old.jar")
    jars.fetch("kafka")
    (home / "kafka" / "pom.xml").write_text("<project/>")
    maven.behave(then, "a.jar", "b.jar")
    with pytest.raises(JarsMissing, match=said) as error:
        jars.fetch("kafka")
    assert "fetch them again" in error.value.hint
    assert names(jars.find("kafka")) == ["old.jar"]


@pytest.mark.parametrize("pom", sorted(POM.glob("*.xml")), ids=lambda pom: pom.stem)
def test_the_digests_are_those_of_the_jars_that_the_pom_names(pom: Path) -> None:
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    named = ET.parse(pom).findall("m:dependencies/m:dependency", space)
    assert named
    known = digests.expected(pom)
    for dependency in named:
        artifact, version = (dependency.findtext(f"m:{part}", namespaces=space) for part in ("artifactId", "version"))
        assert f"{artifact}-{version}.jar" in known, "make locks"


@pytest.mark.parametrize(
    "kind", ["spark", pytest.param("s3", marks=pytest.mark.spark4("S3A's conditional writes")), "kafka"]
)
def test_the_digests_are_those_of_the_jars_of_this_environment(kind: jars.Kind) -> None:
    """With which all tests run."""
    digests.check(jars.folder(kind), jars.pom_of(kind))
