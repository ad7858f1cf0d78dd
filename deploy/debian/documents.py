#!/usr/bin/env python3
"""Copies documents for a package: documents.py SOURCE FOLDER DOCUMENT...

SOURCE is the tree, FOLDER gets the documents, DOCUMENT is a path in the tree. All documents of a package lie in one
folder. So a link to one of them becomes a link in that folder, a link to a folder of INSTALLED becomes one to its place,
and of each other link to the tree only the text remains, because the package has no such file."""

import os
import pathlib
import re
import sys

# Package → folder of the tree → where the package installs it, as a link from the folder of its documents.
INSTALLED = {
    "loam": {"deploy/monitoring": "/usr/share/loam/monitoring"},
    "libloam-dev": {"client-lib/example": "examples"},
}
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"(?ms)^( *)(`{3,})[^\n]*\n.*?^\1\2[^\n]*$")


def convert(text, document, documents, folders):
    """The text of a document with its links as they are in the package."""
    def link(match):
        words, target = match[1], match[2]
        path, mark, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path:
            return match[0]
        path = os.path.normpath(os.path.join(os.path.dirname(document), path))
        if path in documents:
            return f"[{words}]({os.path.basename(path)}{mark}{anchor})"
        for folder, place in folders.items():
            if path == folder or path.startswith(folder + "/"):
                return f"[{words}]({place}{path[len(folder):]})"
        return words

    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(link, text[end:fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(link, text[end:])])


def main():
    source, folder, *documents = sys.argv[1:]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    for document in documents:
        text = pathlib.Path(source, document).read_text()
        converted = convert(text, document, documents, INSTALLED.get(folder.name, {}))
        (folder / os.path.basename(document)).write_text(converted)


if __name__ == "__main__":
    main()
