"""Every atomic access names its memory order."""

import re

from checks import cpp
from checks.tree import Finding

WHAT = "every atomic access names its memory order"

_CALL = re.compile(
    r"(?:\.|->)(load|store|exchange|compare_exchange_weak|compare_exchange_strong|fetch_\w+|test_and_set|load_low|load_high|store_low|store_high)\s*(\()"
)
_NAMED_ORDER = re.compile(r"memory_order|\bk(?:Relaxed|Acquire|Release|AcqRel|SeqCst)\b|\border\b|\b\w+_order\b")
# A declaration such as `std::atomic<uint64_t> next_{0};` or `Env::Atomic<Head*> head_;`
_DECLARATION = re.compile(r"\b(?:std::atomic|Atomic)(?:_flag|<[^;{}()]*>)\s+(\w+)\s*(?:[;{=]|LOAM_)")
_ESCAPE = "not atomic:"


def _pair(tree, path):
    """Returns the text of the file and of its header or source, which may declare the atomics that the file uses."""
    stem = path.rsplit(".", 1)[0].removesuffix("_test").removesuffix("_stress").removesuffix("_bench")
    return "\n".join(cpp.blank(tree.text(p) or "") for p in {path, stem + ".h", stem + ".cc"} if p in tree.paths)


def run(tree):
    findings = []
    for path in tree.cpp():
        text = tree.text(path) or ""
        code = cpp.blank(text)
        pair = _pair(tree, path)

        def report(offset, message):
            line = cpp.line_of(text, offset)
            if _ESCAPE not in cpp.line_text(text, line):
                findings.append(Finding(path, line, message))

        if re.search(r"\b[Aa]tomic", pair):
            for match in _CALL.finditer(code):
                if not _NAMED_ORDER.search(cpp.arguments(code, match.start(2))):
                    report(
                        match.start(),
                        f"{match.group(1)}() names no memory order: pass one, with the reason in a comment"
                        " (if the object is not atomic, add the comment '// not atomic: REASON')",
                    )
        # Only members (name_) are checked: a local variable or a parameter of the same name may not be atomic.
        for name in {n for n in _DECLARATION.findall(pair) if n.endswith("_")}:
            plain = rf"(?:\+\+|--)\s*{name}\b|(?<![\w.>]){name}\s*(?:\+\+|--|[-+|&^]?=(?!=))"
            for match in re.finditer(plain, code):
                report(match.start(), f"'{match.group()}' on an atomic has the implicit order seq_cst: use load/store/fetch_… with an order")
        for match in re.finditer(r"\batomic_(?:thread|signal)_fence\b", code):
            report(match.start(), "stand-alone fences are invisible to ThreadSanitizer: put the order on the operation")
    return findings
