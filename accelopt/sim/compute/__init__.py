"""(Program, arrays) to arrays: what every instruction computes, and the executor."""

from accelopt.sim.compute.executor import Executable, compile_program, execute

__all__ = ["Executable", "compile_program", "execute"]
