"""Files and lines of Python by package, now and at other commits, with what each package is.

    python -m benchmarks.tree                 the files that git tracks, as they are now
    python -m benchmarks.tree REV [REV ...]   beside how they were at these commits
    python -m benchmarks.tree -o tree.html    as a page, or Markdown

`short` counts the modules of fewer than 80 lines, `__init__` left out.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from blazes.document import blocks as b
from blazes.document import html, markdown, terminal

ROOT: Final = Path(__file__).resolve().parent.parent
SHORT: Final = 80
"""Lines; a module with fewer is seldom a concept of its own."""
PRODUCT: Final = ("annotations", "blazes", "codegen", "flux_runtime", "flux_lab")
OTHERS: Final = ("benchmarks", "docs", "examples", "tests")


@dataclass(slots=True)
class Size:
    """How much of Python there is in a package."""

    files: int = 0
    lines: int = 0
    short: int = 0

    def add(self, file: PurePosixPath, text: str) -> None:
        """Count a file in."""
        lines = text.count("\n")
        self.files += 1
        self.lines += lines
        self.short += lines < SHORT and file.name != "__init__.py"


def git(*arguments: str) -> str:
    """What git says of this tree."""
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def texts(revision: str | None) -> Iterator[tuple[PurePosixPath, str]]:
    """Every Python file of a commit; None: those that are there now."""
    if revision is None:
        for name in git("ls-files", "--", "*.py").splitlines():
            if (ROOT / name).is_file():
                yield PurePosixPath(name), (ROOT / name).read_text(encoding="utf-8")
        return
    for name in git("ls-tree", "-r", "--name-only", revision).splitlines():
        if name.endswith(".py"):
            yield PurePosixPath(name), git("show", f"{revision}:{name}")


def package_of(file: PurePosixPath) -> str:
    """The package that a file is counted in; those of the product have parts of their own."""
    top, *parts = file.parts[:-1] or (".",)
    return f"{top}.{parts[0]}" if top in PRODUCT and parts else top


def sizes(revision: str | None) -> Mapping[str, Size]:
    """Package -> its size."""
    found: dict[str, Size] = defaultdict(Size)
    for file, text in texts(revision):
        found[package_of(file)].add(file, text)
    return found


def meaning(package: str) -> str:
    """The first sentence of a package's docstring."""
    file = ROOT.joinpath(*package.split("."), "__init__.py")
    if package in OTHERS or not file.is_file():
        return ""
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(said.partition("\n\n")[0].split())


def document(revisions: tuple[str | None, ...]) -> b.Document:
    """The table."""
    by_revision = [sizes(revision) for revision in revisions]
    names = sorted({name for found in by_revision for name in found}, key=_place)
    heads = [
        f"{column}{f' {revision}' if revision else ''}"
        for revision in revisions
        for column in ("files", "lines", "short")
    ]
    rows: list[tuple[b.Words, ...]] = []
    for title, chosen in (
        *((name, [name]) for name in names),
        ("the product", [name for name in names if name.split(".")[0] in PRODUCT]),
        ("all", names),
    ):
        cells = [
            f"{sum(getattr(found.get(name, Size()), column) for name in chosen):,}"
            for found in by_revision
            for column in ("files", "lines", "short")
        ]
        name = b.Span(title, "" if len(chosen) == 1 else "strong")
        rows.append((name, *cells, meaning(title)))
    table = b.Table(("package", *heads, "what it is"), tuple(rows), right=heads)
    return b.Document("Python by package", (table,))


def _place(package: str) -> tuple[int, str]:
    top = package.partition(".")[0]
    return (PRODUCT.index(top) if top in PRODUCT else len(PRODUCT)), package


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", metavar="REV", nargs="*")
    parser.add_argument("-o", "--output", type=Path, help="PATH.html or PATH.md")
    arguments = parser.parse_args()
    shown = document((*arguments.revisions, None))
    if arguments.output is None:
        print(terminal.text(shown, terminal.Layout.of(sys.stdout, most=200)), end="")
        return
    page = html.page if arguments.output.suffix == ".html" else markdown.page
    arguments.output.write_text(page(shown), encoding="utf-8")


if __name__ == "__main__":
    main()
