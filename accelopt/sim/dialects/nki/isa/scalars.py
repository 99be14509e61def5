"""Instructions of nki.isa on registers."""

from __future__ import annotations

from typing import Any

from accelopt.sim.dialects.nki import registers
from accelopt.sim.dialects.nki.call_conventions import call, instruction


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
def register_move(dst: Any, src: Any) -> None:
    """dst = a number or another register's value."""
    registers.write(registers.writable(dst), src)


@instruction
def register_load(dst: Any, src: Any) -> None:
    """dst = the only element of a tensor in SBUF or HBM."""
    registers.load(registers.writable(dst), src)


@instruction
def register_store(dst: Any, src: Any) -> None:
    """The only element of dst, in SBUF or HBM, = a register's value."""
    registers.store(dst, registers.register(src, "src"))
