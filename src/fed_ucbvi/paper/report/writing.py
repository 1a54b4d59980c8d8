"""Writing a report into a folder: the page, verdicts, pictures, data, and a manifest of them all.

The same report always gives the same bytes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import MANIFEST, read_manifest, write_manifest
from fed_ucbvi.core.text import with_printable_texts
from fed_ucbvi.paper.report.content import PageContent, check_report
from fed_ucbvi.paper.report.files import (
    FIGURE_FILES,
    PAGE,
    REPORT_FILE,
    TABLE_FILES,
    VERDICTS,
    FigureFiles,
    TableFiles,
)
from fed_ucbvi.paper.report.page import render_page

FORMAT = "fed-ucbvi/report"
FORMAT_VERSION = 1

Contents = Mapping[str, Callable[[], bytes]]
"""Functions that compute the content of each file, by its name in the folder."""
Progress = Callable[[int, int], None]
"""Called with the number of figures drawn and the number of all figures."""


def write_report(report: PageContent, folder: Path, progress: Progress | None = None) -> list[Path]:
    """Write a report and replace an earlier one, if there is one; other files in ``folder`` are not touched.

    All files are first written to a temporary place and moved only when all of them are complete; a figure that
    cannot be drawn is an error before that.

    Returns:
        The files: ``index.html``, ``verdicts.json``, for each figure ``figures/ID.svg``, ``.png``, ``.pdf`` and
        ``.parquet``, for each table ``tables/ID.csv`` and ``.parquet``.
    """
    report = with_printable_texts(report)
    check_report(report)
    folder = Path(folder)
    earlier = earlier_files(folder)
    contents = _contents(report)
    for name in contents:
        if name not in earlier and (folder / name).exists():
            raise InputError(f"{folder / name} exists and is not an earlier report's; choose another folder.")
    draft = folder / ".report.partial"
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _write_draft(draft, contents, progress, figures=len(report.figures))
        _write_file_list(folder, draft, {*earlier, *contents})
        for name in contents:
            (folder / name).parent.mkdir(exist_ok=True)
            (draft / name).replace(folder / name)
        for name in earlier - set(contents):
            (folder / name).unlink(missing_ok=True)
        _write_file_list(folder, draft, contents)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return [folder / name for name in contents]


def earlier_files(folder: Path) -> set[str]:
    """The files of an earlier report in ``folder``, by its manifest; an error if the folder holds something else."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} exists and is not a folder; choose another name.")
    if not (folder / MANIFEST).exists():
        return set()
    listed = read_manifest(folder, FORMAT).get("files")
    if not isinstance(listed, list):
        raise InputError(f"{folder / MANIFEST} is damaged: it does not list the files of the report.")
    return {name for name in listed if isinstance(name, str) and REPORT_FILE.fullmatch(name)}


def _contents(report: PageContent) -> Contents:
    contents: dict[str, Callable[[], bytes]] = {
        PAGE: lambda: render_page(report).encode(),
        VERDICTS: lambda: _verdicts_json(report).encode(),
    }
    for figure in report.figures:
        figure_files = FigureFiles(figure)
        for kind in FIGURE_FILES:
            contents[f"figures/{figure.id}.{kind}"] = partial(figure_files.content, kind)
    for table in report.tables:
        table_files = TableFiles(table)
        for kind in TABLE_FILES:
            contents[f"tables/{table.id}.{kind}"] = partial(table_files.content, kind)
    return contents


def _verdicts_json(report: PageContent) -> str:
    verdicts = [{"section": section.id, **asdict(verdict)} for section, verdict in report.judged]
    return f"{json.dumps(verdicts, indent=1, ensure_ascii=False)}\n"


def _write_draft(draft: Path, contents: Contents, progress: Progress | None, *, figures: int) -> None:
    drawn = 0
    for name, content in contents.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).write_bytes(content())
        if name.startswith("figures/") and name.endswith(FIGURE_FILES[-1]):
            drawn += 1
            if progress is not None:
                progress(drawn, figures)


def _write_file_list(folder: Path, draft: Path, names: Iterable[str]) -> None:
    """Write the manifest with these files, in one step; at no time does it lack a file that exists."""
    write_manifest(draft, {"format": FORMAT, "format_version": FORMAT_VERSION, "files": sorted(names)})
    (draft / MANIFEST).replace(folder / MANIFEST)
