"""How long anything may take, in seconds of the wall clock: the one place where that is said.

How much memory goes with it is said where the process is started. A pause, or a time that is measured for,
limits nothing and stands where it is used.
"""

from __future__ import annotations

# A kernel for a NeuronCore, and what is asked of it
TRACE_SECONDS = 120.0
"""Tracing or compiling a kernel; `--timeout` of the commands."""
EVALUATION_SECONDS = 900.0
"""A whole evaluation. Waiting for a busy processor does not count, up to four times as long
(`sandbox.child`)."""
START_SECONDS = 5.0
"""For a child that traces to begin, on top: it keeps the limit itself, and says where it was."""
RETRACE_SECONDS = 60.0
"""Tracing a kernel once more, only to tell more of it."""
ARGUMENTS_SECONDS = 300.0
"""What a reference takes and gives."""
INSPECTION_SECONDS = 120.0
"""The simulated time of one kernel, and what a planner reads."""
BRIEFING_SECONDS = 300.0
"""The same with its what-ifs: each schedules the kernel once more."""
FAULTS_SECONDS = 300.0
"""Where a wrong kernel differs."""
LIFT_SECONDS = 60.0
"""Finding what one kernel computes."""
SAME_SECONDS = 20.0
"""Finding what one kernel computes, to say that it is what its reference computes."""
SOON_SECONDS = 10.0
"""Finding what one kernel computes, or its reference, where the other says it."""
REWRITE_SECONDS = 60.0
"""Looking for a faster loop nest, beside a profile."""
WRITE_SECONDS = 1800.0
"""Writing a kernel from its reference: the search, and the referee on what it finds."""
DEVICE_SECONDS = 300.0
"""One run on a NeuronCore that is there."""
CAPTURE_SECONDS = 300.0
"""One call of the profiler."""
VERSION_SECONDS = 20.0
"""The profiler, to say its version."""
CALIBRATION_SECONDS = 300.0
"""Compiling one microkernel."""

# A kernel for a GPU
CALL_SECONDS = 300.0
"""Any request to a child of the referee, calls of the solution included; as published."""
SEARCH_SECONDS = 120.0
"""The same in a search: a candidate that takes longer gains nothing."""
SPEC_SECONDS = 900.0
"""The same for the kernel of a spec file."""
GPU_START_SECONDS = 180.0
"""For a child with PyTorch to begin."""
GPU_EVALUATION_SECONDS = 3600.0
"""A whole evaluation, waits for the GPU's lock included; the kernel's own limit is far below."""
COMPILE_CHECK_SECONDS = 60.0
"""Compiling one solution for a GPU that is not there."""
NVCC_SECONDS = 120.0
"""One call of a CUDA compiler."""
PROBLEM_SECONDS = 300.0
"""Running a PyTorch module once, to see what it takes and gives."""
NCU_SECONDS = 300.0
"""For `ncu` to start, and to count, as published: on an H200 6 and 3; 60 to start on a busy host."""

# Children, workers and machines
CHILD_SECONDS = 120.0
"""A confined child of which nothing else is said."""
CLUSTER_SECONDS = 10.0
"""For the head of a cluster to answer."""
END_SECONDS = 30.0
"""For a process that was told to end, before it is killed."""
THREAD_SECONDS = 1800.0
"""Work of our own in a thread, that of children which it waits for included."""
COMMAND_SECONDS = 1800.0
"""What a command does in a process of its own, but for the trace, which has its own limit."""
PORTRAIT_SECONDS = 300.0
"""What the page of a report shows of one kernel."""
DIAGRAM_SECONDS = 60.0
"""Drawing the state machine, by Graphviz."""

# Models, state machines, data bases
MODEL_SECONDS = 600.0
"""One request to a model; `timeout` of its configuration."""
CONNECT_SECONDS = 5.0
"""For an endpoint to take a connection: one that is there does in less."""
GREETING_SECONDS = 10.0
"""For a server to list its models."""
DOCTOR_SECONDS = 30.0
"""The one request of `doctor`."""
WORKERS_SECONDS = 1800.0
"""What the workers of one round have together."""
TERMINATE_SECONDS, KILL_SECONDS = 5.0, 2.0
"""What a worker has after each signal."""
TEST_SECONDS = 30.0
"""The user's own test."""
DATABASE_SECONDS = 30.0
"""What a SQLite database may be busy with another writer."""
SHELF_SECONDS = 10.0
"""The same for the shelf of verdicts."""
