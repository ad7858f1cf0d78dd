"""Prints the index of an APT repository that is one folder. It runs on the hosts: package_index.py FOLDER"""

import hashlib
import pathlib
import subprocess
import sys

for path in sorted(pathlib.Path(sys.argv[1]).glob("*.deb")):
    control = subprocess.run(["dpkg-deb", "--field", path], check=True, capture_output=True, text=True).stdout
    content = path.read_bytes()
    print(control.rstrip(), f"Filename: ./{path.name}", f"Size: {len(content)}",
          f"SHA256: {hashlib.sha256(content).hexdigest()}", "", sep="\n")
