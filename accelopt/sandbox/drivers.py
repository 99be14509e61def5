"""What a child that uses an accelerator must reach: device files, the driver's libraries and settings.

Everything else stays closed to it: no key, no network, no home. Sources: the NVIDIA container
toolkit's list of device nodes and mounts; the Neuron SDK's installation guide (/opt/aws).
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from accelopt.sandbox.policy import Policy

# What the C library and the dynamic loader look up; no host secret lies in these.
_LOOKED_UP = (
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/os-release",
)
_MACHINE = (
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/version",
    "/proc/devices",
    "/proc/modules",
    "/proc/filesystems",
    "/proc/driver",
    "/proc/sys",
    "/sys",
)
_PREFIX_FOLDERS = ("bin", "lib", "lib64", "libexec", "include", "nvvm", "targets", "*-linux-*")
# Its own threads, which the CUDA driver gives names: without it cuInit fails (seen on an H200: 304).
_THREADS = ("/proc/self/task",)


@dataclass(frozen=True)
class Driver:
    """`devices` are patterns below /dev, `variables` names or, with `_` at the end, beginnings
    of names in the caller's environment."""

    devices: tuple[str, ...]
    readable: tuple[str, ...]
    variables: tuple[str, ...]

    def allow(self, policy: Policy) -> Policy:
        """`policy` with what this driver needs on this machine, programs that compile included."""
        devices = tuple(sorted(map(str, (p for d in self.devices for p in Path("/dev").glob(d)))))
        named = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        installed = (*filter(None, named), *_compiler_folders())
        return replace(
            policy,
            readable=(*policy.readable, *_LOOKED_UP, *_MACHINE, *self.readable, *installed),
            writable=(*policy.writable, *devices, *_THREADS),
            variables=(*policy.variables, *self.variables),
            processes=True,
        )


NVIDIA = Driver(
    devices=("nvidia*", "nvidia-caps/*", "dri/renderD*"),
    readable=("/opt/nvidia", "/etc/OpenCL", "/etc/vulkan", "/run/nvidia-persistenced"),
    variables=("CUDA_", "NVIDIA_", "NCCL_", "TRITON_", "TORCH_", "PYTORCH_", "CC"),
)
NEURON = Driver(
    devices=("neuron*",),
    readable=("/opt/aws",),
    variables=("NEURON_",),
)


def _compiler_folders() -> tuple[str, ...]:
    """Where the C compiler and CUDA's tools are installed, when that is not with the system: the
    folders of their prefixes, not the prefixes, which may be somebody's home."""
    programs = [os.environ.get("CC", "cc").partition(" ")[0], "gcc", "clang", "ptxas", "nvcc"]
    found = [Path(place) for program in programs if (place := shutil.which(program))]
    prefixes = {real.parents[1] for place in found for real in (place, place.resolve())}
    if home := os.environ.get("CUDA_HOME"):
        prefixes |= {Path(home), Path(home).resolve()}
    return tuple(
        str(folder)
        for prefix in sorted(prefixes)
        if prefix not in (Path("/"), Path("/usr"))
        for pattern in _PREFIX_FOLDERS
        for folder in sorted(prefix.glob(pattern))
    )
