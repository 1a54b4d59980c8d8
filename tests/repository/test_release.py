"""Parts of a release: version, changelog, citation, the workflow that publishes it, and the wheel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from fed_ucbvi import __version__
from repository import ROOT
from shipped_wheel import about, check_contents

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
PUBLISH: dict[Any, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8"))


def steps_of(job: str) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = PUBLISH["jobs"][job]["steps"]
    return steps


# ------------------------------------------------------------------------------------------------------- publishing


def test_a_tag_starts_the_publication() -> None:
    assert PUBLISH[True] == {"push": {"tags": ["v*"]}}, "YAML reads the key 'on' as true"


def test_packages_are_checked_before_they_are_published() -> None:
    assert PUBLISH["jobs"]["publish"]["needs"] == "build"
    assert any("make check-dist" in step.get("run", "") for step in steps_of("build"))


def artifact_of(job: str, action: str) -> dict[str, Any]:
    """The parameters of the step of a job that uploads or downloads an artifact."""
    for step in steps_of(job):
        if f"/{action}-artifact@" in step.get("uses", ""):
            parameters: dict[str, Any] = step["with"]
            return parameters
    raise AssertionError(f"{job} does not {action} an artifact")


def test_the_packages_that_are_published_are_those_that_were_built() -> None:
    built = artifact_of("build", "upload")
    published = artifact_of("publish", "download")
    assert (built["name"], built["path"]) == ("dist", "dist/")
    assert published["name"] == "dist"
    assert published["path"] == "dist/"


def test_only_the_job_that_publishes_may_request_an_identity() -> None:
    assert PUBLISH["permissions"] == {"contents": "read"}
    assert "permissions" not in PUBLISH["jobs"]["build"]
    assert PUBLISH["jobs"]["publish"]["permissions"] == {"id-token": "write"}


def test_the_job_that_publishes_runs_no_code_of_the_repository() -> None:
    actions = [step["uses"].partition("@")[0] for step in steps_of("publish")]
    assert actions == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]


def test_packages_are_published_without_a_password() -> None:
    assert "with" not in steps_of("publish")[-1], "PyPI trusts the workflow"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_version(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    used = [step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+(\.\d+)*", action), action


@pytest.mark.parametrize(("tag", "code"), [(f"v{__version__}", 0), ("v9.9.9", 1), (__version__, 1)])
def test_a_tag_that_is_not_the_version_is_not_built(tag: str, code: int) -> None:
    (check,) = (step["run"] for step in steps_of("build") if "GITHUB_REF_NAME" in step.get("run", ""))
    env = {**os.environ, "GITHUB_REF_NAME": tag}
    assert subprocess.run(["sh", "-c", check], cwd=ROOT, env=env, timeout=300).returncode == code


# --------------------------------------------------------------------------------------------------------- documents


@pytest.fixture
def citation() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    return content


def test_the_citation_names_this_version(citation: dict[str, Any]) -> None:
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert citation["version"] == __version__
    assert isinstance(citation["date-released"], date)


def test_the_citation_names_the_paper(citation: dict[str, Any]) -> None:
    paper = citation["preferred-citation"]
    authors = " ".join(author["family-names"] for author in paper["authors"])
    assert paper["type"] == "conference-paper"
    assert authors == "Labbi Tiapkin Mancini Mangold Moulines"
    assert paper["year"] == 2025
    assert "AISTATS" in paper["collection-title"]


def test_security_md_explains_how_to_report() -> None:
    assert "Report a vulnerability" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_the_links_of_security_md_lead_to_headings() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        target, _, heading = link.partition("#")
        headings = [""]
        for line in (ROOT / target).read_text(encoding="utf-8").splitlines():
            if line.startswith("#"):
                headings.append(line.lstrip("# ").lower().replace(" ", "-"))
        assert heading in headings


FORMS = pytest.mark.parametrize(
    "path",
    [path for path in TEMPLATES if path.stem != "config"],
    ids=lambda path: path.name,
)


def questions_of(path: Path) -> list[dict[str, Any]]:
    """The fields of one of GitHub's issue forms, without its texts."""
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [part for part in form["body"] if part["type"] != "markdown"]


@FORMS
def test_an_issue_template_has_a_name_with_a_description(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    for key in ("name", "description"):
        assert isinstance(form[key], str)
        assert form[key]


@FORMS
def test_an_issue_template_has_a_required_question(path: Path) -> None:
    assert any(question.get("validations", {}).get("required") for question in questions_of(path))


@FORMS
def test_questions_of_an_issue_template_are_of_known_types(path: Path) -> None:
    for question in questions_of(path):
        assert question["type"] in ("textarea", "input", "dropdown", "checkboxes")
        assert question["attributes"]["label"]


@FORMS
def test_questions_of_an_issue_template_have_distinct_names(path: Path) -> None:
    ids = [question["id"] for question in questions_of(path)]
    assert len(set(ids)) == len(ids)


KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def test_the_changelog_is_kept_as_keep_a_changelog_says() -> None:
    """Releases from the newest to the oldest, each with its date, and in each the kinds of changes, none empty."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", text, flags=re.MULTILINE)
    assert len(releases) == len(re.findall(r"^## ", text, flags=re.MULTILINE))
    dated = [name for name, _ in releases if name != "Unreleased"]
    assert dated[0] == __version__
    assert dated == sorted(dated, key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    for name, when in releases:
        assert (when == "") == (name == "Unreleased")
        assert not when or date.fromisoformat(when).year >= 2026
    for kind, entries in re.findall(r"^### (.+)\n\n((?:(?!#).*\n?)*)", text, flags=re.MULTILINE):
        assert kind in KINDS
        assert entries.startswith("- ")


# --------------------------------------------------------------------------------------------------------- the wheel


@pytest.mark.full
@pytest.mark.slow
def test_the_contents_of_the_wheel(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(tmp_path),
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    check_contents(wheel)
    assert about(wheel).version == __version__
    subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(wheel)],
        check=True,
        timeout=300,
    )
