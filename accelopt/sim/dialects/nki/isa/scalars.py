"""Instructions of nki.isa on registers."""

from __future__ import annotations

from typing import Any

from accelopt.sim.dialects.neuronxcc.builder import fail
from accelopt.sim.dialects.nki import registers
from accelopt.sim.dialects.nki.call_conventions import call, instruction
from accelopt.sim.errors import KernelTypeError


@call
def register_alloc(x: Any = None) -> registers.VirtualRegister:
    """A new register, holding a number or a tensor's only element where one is given."""
    return registers.made(x)


@call
def scalar_load(src: Any) -> registers.NkiScalar:
    """The only element of an int32 tensor in SBUF or HBM, as a number that arithmetic can be written on."""
    return registers.scalar_of(src)


@call
def scalar_store(dst: Any, value: Any) -> None:
    """The only element of dst, an int32 tensor in SBUF or HBM, = a scalar."""
    registers.store_scalar(dst, value)


@instruction
def register_move(dst: Any, src: Any = None, imm: Any = None) -> None:
    """dst = a number or another register's value; `imm` is its name before NKI 0.4."""
    value = imm if src is None else src
    if value is None:
        fail(KernelTypeError("register", "register_move needs a number or a register as src."))
    registers.write(registers.writable(dst), value)


@instruction
def register_load(dst: Any, src: Any) -> None:
    """dst = the only element of a tensor in SBUF or HBM."""
    registers.load(registers.writable(dst), src)


@instruction
def register_store(dst: Any, src: Any) -> None:
    """The only element of dst, in SBUF or HBM, = a register's value."""
    registers.store(dst, registers.register(src, "src"))
