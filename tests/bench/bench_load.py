"""What `%load_ext ipyagent` adds to a kernel, and the first `%%agent` three seconds later."""

from __future__ import annotations

import os
import re
import statistics
import sys
import tempfile
import time

KERNELS = 5
LOADING = """
import sys, time
_began = time.perf_counter()
get_ipython().run_line_magic("load_ext", "ipyagent")
print("MS", (time.perf_counter() - _began) * 1e3, "anthropic" in sys.modules)
"""


def rows() -> list[tuple[str, str, str]]:
    """Name, measured, target."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(__file__)), "kernel"))
    from kernels import Kernel

    loads, firsts = [], []
    for _ in range(KERNELS):
        with tempfile.TemporaryDirectory() as folder:
            os.environ.update(IPYAGENT_HOME=os.path.join(folder, "home"), IPYAGENT_MODEL="practice")
            kernel = Kernel()
            try:
                kernel.run("import IPython")
                found = re.search(r"MS ([\d.]+) (\w+)", kernel.run(LOADING).streams)
                assert found is not None
                assert found[2] == "False", "anthropic was imported by loading"
                loads.append(float(found[1]))
                kernel.run(f"import os; os.chdir({folder!r})")
                time.sleep(3)
                began = time.monotonic()
                kernel.run("%%agent\nhello", timeout=60)
                firsts.append(time.monotonic() - began)
            finally:
                kernel.close()
    return [
        ("%load_ext ipyagent in a kernel, median", f"{statistics.median(loads):.1f} ms", "at most 50 ms"),
        ("first %%agent 3 s after loading, median", f"{statistics.median(firsts):.2f} s", "no import of the SDK in it"),
    ]


if __name__ == "__main__":
    for row in rows():
        print("  ".join(row))
