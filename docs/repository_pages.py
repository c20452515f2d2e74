"""mkdocs reads the pages where they are in the repository, beside the code: so a link works in both."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = ("*.md", "docs/**/*.md", "hummock/**/*.md", "relational/**/*.md", "stream/**/*.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """All pages under their paths in the repository, in place of those of docs/ under paths in it."""
    root = Path(config.docs_dir).parent
    for page in files.documentation_pages():
        files.remove(page)
    for path in sorted({found for pattern in PAGES for found in root.glob(pattern)}):
        files.append(File.generated(config, str(path.relative_to(root)), abs_src_path=str(path)))
    return files
