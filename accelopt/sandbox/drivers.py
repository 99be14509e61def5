"""What a child that uses an accelerator must reach: device files, the driver's libraries and settings.

Everything else stays closed to it: no key, no network, no home. Sources: the NVIDIA container
toolkit's list of device nodes and mounts; the Neuron SDK's installation guide (/opt/aws).
"""

from __future__ import annotations

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
        return replace(
            policy,
            readable=(*policy.readable, *_LOOKED_UP, *_MACHINE, *self.readable),
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
