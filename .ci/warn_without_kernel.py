"""Say clearly when the compiled kernel is missing: nsqd does not start without it."""

import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "penstock"


def missing_modules(source: Path) -> list[str]:
    """Cython modules that have no compiled form beside them."""
    return [
        pyx.relative_to(source).as_posix()
        for pyx in sorted(source.rglob("*.pyx"))
        if not any(pyx.parent.glob(f"{pyx.stem}.*.so"))
    ]


def main() -> int:
    missing = missing_modules(SOURCE)
    if missing:
        print(
            f"WARNING: {len(missing)} modules are not compiled: {', '.join(missing[:3])}, ...\n"
            "         nsqd does not start, and most tests fail.\n"
            "         Install a C compiler and Python's headers, then: make clean build",
            file=sys.stderr,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
