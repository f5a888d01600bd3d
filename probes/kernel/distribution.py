"""BCC comes from the distribution, not from PyPI: find it there, and take nothing else along.

Its Python part is plain ctypes, so that any CPython may import it. A virtual environment does not see the
distribution's packages, and one of pyenv not even with --system-site-packages; to put that folder on the path would
shadow whatever else is installed there.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from cachemodel.errors import UserError

FOLDERS = (
    Path("/usr/lib/python3/dist-packages"),  # Debian, Ubuntu
    *(Path(f"/usr/lib/python3.{minor}/site-packages") for minor in range(8, 16)),  # Fedora, RHEL, Arch
    *(Path(f"/usr/lib64/python3.{minor}/site-packages") for minor in range(8, 16)),
)
PACKAGE = "python3-bpfcc (Debian, Ubuntu: apt install python3-bpfcc) or python3-bcc (Fedora: dnf install python3-bcc)"


def folder(folders: Sequence[Path] = FOLDERS) -> Path | None:
    """Where the distribution has BCC. PyPI's unrelated `bcc` has no libbcc.py."""
    return next((one for one in folders if (one / "bcc" / "libbcc.py").is_file()), None)


def load(folders: Sequence[Path] = FOLDERS) -> ModuleType:
    """The distribution's `bcc`. Raises UserError that names the package where it, or its library, is missing."""
    found = folder(folders)
    if found is None:
        raise UserError(
            f"BCC is not installed: it needs {PACKAGE}; pip's `bcc` is another project and does not help"
        )
    known = sys.modules.get("bcc")
    if known is not None and Path(known.__file__ or "").parent != found / "bcc":
        raise UserError(
            f"another package named bcc is loaded from {known.__file__}: it is not BCC: pip uninstall bcc"
        )
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(
        "bcc", found / "bcc" / "__init__.py", submodule_search_locations=[str(found / "bcc")]
    )
    if spec is None or spec.loader is None:
        raise UserError(f"{found}/bcc cannot be imported: install {PACKAGE} again")
    module = sys.modules["bcc"] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (OSError, ImportError) as error:  # libbcc.so.0 is a package of its own
        del sys.modules["bcc"]
        raise UserError(f"BCC in {found} does not load ({error}): install {PACKAGE} again") from error
    return module
