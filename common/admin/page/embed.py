"""Writes a C++ source that holds the files of the status page, compressed by gzip.

Usage: embed.py OUTPUT FILE…

`index.html` has the path `/`; every other file has `/page/NAME`. The output depends on the files only.
"""

import gzip
import pathlib
import sys

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_HEAD = """// Made by common/admin/page/embed.py.
#include "common/admin/page_files.h"

#include <algorithm>
#include <array>

namespace loam {
namespace {

"""

_TAIL = """}  // namespace

const PageFile* find_page_file(std::string_view path) {
  const auto* const found = std::ranges::find(kFiles, path, &PageFile::path);
  return found == kFiles.end() ? nullptr : found;
}

}  // namespace loam
"""


def embed(paths):
    """Returns the text of the source."""
    arrays = []
    entries = []
    for number, path in enumerate(paths):
        packed = gzip.compress(path.read_bytes(), 9, mtime=0)
        rows = [", ".join(map(str, packed[i : i + 24])) for i in range(0, len(packed), 24)]
        arrays.append(f"constexpr unsigned char kFile{number}[] = {{\n" + ",\n".join(rows) + "};\n")
        where = "/" if path.name == "index.html" else f"/page/{path.name}"
        bytes_of = f"std::string_view(reinterpret_cast<const char*>(kFile{number}), {len(packed)})"
        entries.append(f'    PageFile{{"{where}", "{_TYPES[path.suffix]}", {bytes_of}}},\n')
    table = f"const std::array<PageFile, {len(entries)}> kFiles = {{{{\n" + "".join(entries) + "}};\n\n"
    return _HEAD + "\n".join(arrays) + "\n" + table + _TAIL


def main():
    output, *files = map(pathlib.Path, sys.argv[1:])
    output.write_text(embed(files), encoding="ascii")


if __name__ == "__main__":
    main()
