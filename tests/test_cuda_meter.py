"""The counting allocator on CUDA, with a CUDA runtime whose memory is the host's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

SOURCE = Path(__file__).parent.parent / "src"

RUNTIME = """
#include <stdlib.h>
int cudaMalloc(void **address, size_t nbytes) { return !(*address = malloc(nbytes)); }
int cudaFree(void *address) { free(address); return 0; }
"""

COUNT = """
from checkmate.runtime.counting import CountingAllocator
from checkmate.runtime.protocol import Settings
allocator = CountingAllocator(Settings("cuda"))
print(allocator.in_use_nbytes, allocator.n_allocations)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.skipif(
    not hasattr(onnxruntime, "preload_dlls") or not getattr(onnxruntime, "cuda_version", ""),
    reason="needs an onnxruntime-gpu that loads CUDA libraries",
)
def test_a_fresh_process_loads_the_cuda_runtime_before_it_counts(tmp_path: Path) -> None:
    (tmp_path / "runtime.c").write_text(RUNTIME)
    major = onnxruntime.cuda_version.split(".")[0]
    library = f"libcudart.so.{major}"
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", library, "runtime.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "0 0"
