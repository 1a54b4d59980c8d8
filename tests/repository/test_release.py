"""What a release consists of: version, changelog, citation, the workflow that publishes it, and the wheel."""

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


def test_a_tag_is_built_and_checked_before_it_is_published() -> None:
    assert PUBLISH[True] == {"push": {"tags": ["v*"]}}, "YAML reads the key 'on' as true"
    assert PUBLISH["jobs"]["publish"]["needs"] == "build"
    assert any("make check-dist" in step.get("run", "") for step in steps_of("build"))
    kept, taken = (
        next(step["with"] for step in steps_of(job) if f"/{what}-artifact@" in step.get("uses", ""))
        for job, what in (("build", "upload"), ("publish", "download"))
    )
    assert (kept["name"], kept["path"]) == (taken["name"], taken["path"]) == ("dist", "dist/")


def test_only_the_job_that_publishes_may_ask_for_an_identity_and_it_runs_no_code_of_ours() -> None:
    assert PUBLISH["permissions"] == {"contents": "read"}
    assert "permissions" not in PUBLISH["jobs"]["build"]
    assert PUBLISH["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    used = [step["uses"].partition("@")[0] for step in steps_of("publish")]
    assert used == ["actions/download-artifact", "pypa/gh-action-pypi-publish"]
    assert "with" not in steps_of("publish")[-1], "no user, password or token: PyPI trusts the workflow"


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


def test_the_citation_names_this_version_and_the_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["cff-version"], cited["type"], cited["version"]) == (
        "1.2.0",
        "software",
        __version__,
    )
    assert isinstance(cited["date-released"], date)
    paper = cited["preferred-citation"]
    assert paper["type"] == "conference-paper"
    authors = " ".join(author["family-names"] for author in paper["authors"])
    assert authors == "Labbi Tiapkin Mancini Mangold Moulines"
    assert paper["year"] == 2025
    assert "AISTATS" in paper["collection-title"]


def test_security_md_says_how_to_report_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "Report a vulnerability" in text
    for target, _, part in (link.partition("#") for link in re.findall(r"\]\(([^)]+)\)", text)):
        page = (ROOT / target).read_text(encoding="utf-8")
        headings = [line.lstrip("# ").lower().replace(" ", "-") for line in page.splitlines() if line.startswith("#")]
        assert not part or part in headings


@pytest.mark.parametrize(
    "path",
    [path for path in TEMPLATES if path.stem != "config"],
    ids=lambda path: path.name,
)
def test_an_issue_template_asks_something_and_every_question_has_a_name_of_its_own(
    path: Path,
) -> None:
    """The fields that GitHub's issue forms require."""
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert all(isinstance(form[key], str) and form[key] for key in ("name", "description"))
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    assert any(part.get("validations", {}).get("required") for part in asked)
    assert {part["type"] for part in asked} <= {
        "textarea",
        "input",
        "dropdown",
        "checkboxes",
    }
    assert all(part["attributes"]["label"] for part in asked)
    ids = [part["id"] for part in asked]
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
def test_the_wheel_holds_what_it_needs_and_nothing_else(tmp_path: Path) -> None:
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
