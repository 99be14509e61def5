"""Allow-lists of what a solution's host code may name, as `source_rules` reads them.

Names are dotted as they are where they are defined: `torch.nn.functional.silu`, whatever the source
calls its modules. `*` stands for one name that is public.
"""

from __future__ import annotations

from accelopt.kernels.gpu.bench.source.operators import FUNCTIONALS, TORCH_OPERATORS

# Modules that may be imported; a name in them has to stand in one of the tables below.
MODULES = {
    "__future__", "abc", "bisect", "cmath", "collections", "collections.abc", "contextlib", "copy",
    "dataclasses", "enum", "fractions", "functools", "hashlib", "heapq", "inspect", "itertools",
    "json", "logging", "math", "numbers", "numpy", "operator", "os", "os.path", "packaging",
    "packaging.version", "platform", "random", "re", "statistics", "string", "struct", "sys",
    "textwrap", "time", "torch", "torch.autograd", "torch.cuda", "torch.cuda.amp", "torch.nn",
    "torch.nn.functional", "torch.amp", "torch.autograd.function", "torch.compiler",
    "torch.cuda.nvtx", "torch.testing", "torch.types", "torch.version", "traceback", "triton",
    "triton.experimental", "triton.experimental.gluon", "triton.experimental.gluon.language",
    "triton.language", "triton.language.core", "triton.language.libdevice", "triton.language.extra", "triton.language.extra.cuda",
    "triton.language.extra.cuda.libdevice", "triton.language.extra.libdevice",
    "triton.language.math", "triton.language.random", "triton.language.standard", "triton.runtime",
    "triton.runtime.autotuner", "triton.runtime.driver", "triton.runtime.errors",
    "triton.runtime.jit", "triton.tools", "triton.tools.tensor_descriptor", "types", "typing",
    "typing_extensions", "uuid", "warnings",
}  # fmt: skip

NUMPY = """
abs all any arange argmax argmin argsort array asarray ascontiguousarray broadcast_to ceil clip
concatenate cos cumprod cumsum diff divmod dot empty empty_like exp exp2 expand_dims eye flatnonzero
float16 float32 float64 floor full full_like int16 int32 int64 int8 isfinite isinf isnan lcm linspace
log log10 log2 max maximum mean median min minimum ndim nonzero ones ones_like power prod repeat
reshape round searchsorted sign sin sort split sqrt square squeeze stack sum tanh tile transpose uint16
uint32 uint64 uint8 unique where zeros zeros_like bool_ float_ int_
""".split()

OPERATORS = "add and_ eq floordiv ge gt le lt mod mul ne neg or_ pow sub truediv xor".split()

# What a call of a solution must not reach: it could tell by them whether it is watched.
TELLING = {
    "time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.perf_counter_ns", "time.time",
    "traceback.format_exc", "traceback.print_exc",
}  # fmt: skip
# What may be called, decorators included.
CALLS = {
    "abc.abstractmethod", "bisect.*", "cmath.*", "collections.Counter", "collections.OrderedDict",
    "collections.defaultdict", "collections.deque", "collections.namedtuple",
    "contextlib.contextmanager", "contextlib.nullcontext", "contextlib.suppress",
    "contextlib.ExitStack", "copy.copy", "copy.deepcopy", "dataclasses.dataclass",
    "dataclasses.field", "dataclasses.replace", "enum.auto", "enum.unique", "fractions.Fraction",
    "functools.cache", "functools.cached_property", "functools.lru_cache", "functools.partial",
    "functools.reduce", "functools.wraps", "hashlib.md5", "hashlib.sha256", "heapq.*",
    "inspect.signature", "itertools.*", "json.dumps", "json.loads", "logging.getLogger",
    "logging.debug", "logging.info", "logging.warning", "logging.error", "math.*",
    "numpy.random.*", "operator.itemgetter", *(f"operator.{name}" for name in OPERATORS),
    "os.environ.copy", "os.environ.get", "os.environ.setdefault", "os.getenv",
    "os.path.abspath", "os.path.basename", "os.path.dirname", "os.path.join",
    "packaging.version.Version", "packaging.version.parse", "platform.machine",
    "platform.python_version", "platform.system", "random.*", "re.compile", "re.escape",
    "re.findall", "re.finditer", "re.fullmatch", "re.match", "re.search", "re.split", "re.sub",
    "statistics.mean", "statistics.median", "struct.calcsize", "struct.pack", "struct.unpack",
    "textwrap.dedent", *TELLING,
    "types.MappingProxyType", "types.SimpleNamespace",
    *(f"{module}.{name}" for module in ("typing", "typing_extensions") for name in (
        "NamedTuple", "NewType", "ParamSpec", "TypeVar", "TypedDict", "assert_never", "cast", "final",
        "overload", "runtime_checkable")),
    "uuid.uuid4", "warnings.catch_warnings", "warnings.filterwarnings", "warnings.simplefilter",
    "warnings.warn",
    "torch.Generator", "torch.Size", "torch.amp.autocast", "torch.amp.custom_bwd",
    "torch.amp.custom_fwd", "torch.autocast", "torch.compiler.disable", "torch.cuda._DeviceGuard",
    "torch.cuda.amp.autocast", "torch.cuda.amp.custom_bwd", "torch.cuda.amp.custom_fwd",
    "torch.cuda.current_device",
    "torch.cuda.current_stream", "torch.cuda.device", "torch.cuda.device_count",
    "torch.cuda.device_of", "torch.cuda.empty_cache", "torch.cuda.get_device_capability",
    "torch.cuda.get_device_name", "torch.cuda.get_device_properties", "torch.cuda.is_available",
    "torch.cuda.is_bf16_supported", "torch.cuda.is_initialized", "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all", "torch.cuda.nvtx.range_pop", "torch.cuda.nvtx.range_push",
    "torch.cuda.set_device", "torch.cuda.synchronize", "torch.device", "torch.enable_grad",
    "torch.Tensor", "torch.autograd.grad", "torch.nn.*", "torch.set_printoptions",
    "torch.testing.assert_close", "torch.finfo", "torch.iinfo", "torch.inference_mode", "torch.linalg.norm",
    "torch.linalg.vector_norm", "torch.no_grad", "torch.special.expit", "torch.special.logsumexp", "torch.sym_int",
    "triton.Config", "triton.autotune", "triton.cdiv", "triton.heuristics", "triton.jit",
    "triton.next_power_of_2", "triton.set_allocator", "triton.runtime.autotuner.Config",
    "triton.runtime.driver.active.get_active_torch_device",
    "triton.runtime.driver.active.get_current_device",
    "triton.runtime.driver.active.get_current_target",
    "triton.runtime.driver.active.utils.get_device_properties", "triton.runtime.jit.jit",
    "triton.tools.tensor_descriptor.TensorDescriptor",
    "triton.tools.tensor_descriptor.TensorDescriptor.from_tensor",
    "triton.experimental.gluon.jit", "triton.experimental.gluon.constexpr_function",
    "triton.constexpr_function", "triton.reinterpret",
    *(f"torch.{name}" for name in TORCH_OPERATORS),
    *(f"torch.ops.aten.{name}{form}" for name in (*TORCH_OPERATORS, *FUNCTIONALS) for form in ("", ".default")),
    *(f"torch.nn.functional.{name}" for name in FUNCTIONALS),
    *(f"numpy.{name}" for name in NUMPY),
}  # fmt: skip

# Plain values: numbers, names of formats, versions. Nothing of them can be changed or reached into.
DTYPES = r"(u?int\d+|float\d*(_\w+)?|bfloat16|half|double|long|short|int|bool|byte|complex\d+|cfloat|chalf)"
VALUES = {
    "math.e", "math.inf", "math.nan", "math.pi", "math.tau", "numpy.inf", "numpy.nan",
    "numpy.newaxis", "numpy.pi", "os.linesep", "os.sep", "string.ascii_letters", "string.digits",
    "sys.byteorder", "sys.maxsize", "sys.platform", "sys.version", "sys.version_info",
    "torch.__version__", "torch.channels_last", "torch.contiguous_format", "torch.inf", "torch.jagged",
    "torch.nan", "torch.newaxis", "torch.pi", "torch.preserve_format", "torch.strided",
    "torch.version.cuda", "torch.version.hip", "triton.__version__", "typing.TYPE_CHECKING",
    *(f"operator.{name}" for name in OPERATORS), "logging.DEBUG", "logging.INFO", "logging.WARNING", "logging.ERROR", "re.IGNORECASE",
}  # fmt: skip

# Classes: in an annotation, after `isinstance`, as a base, or in `except`; never as a value.
CLASSES = {
    "collections.abc.*", "abc.ABC", "enum.Enum", "enum.IntEnum", "numbers.*", "typing.*",
    "typing_extensions.*", "numpy.ndarray", "numpy.integer", "numpy.floating", "types.ModuleType",
    "torch.BFloat16Tensor", "torch.BoolTensor", "torch.FloatTensor", "torch.Generator",
    "torch.HalfTensor", "torch.IntTensor", "torch.LongTensor", "torch.OutOfMemoryError",
    "torch.Size", "torch.SymInt", "torch.Tensor", "torch.autograd.Function",
    "torch.autograd.function.FunctionCtx", "torch.cuda.OutOfMemoryError", "torch.device", "torch.dtype", "torch.nn.Module",
    "torch.nn.Parameter", "torch.types.*", "triton.Config", "triton.OutOfResources",
    "triton.language.constexpr", "triton.language.dtype", "triton.language.tensor",
    "triton.compiler.CompilationError", "triton.runtime.errors.OutOfResources",
    "triton.runtime.autotuner.OutOfResources", "triton.runtime.jit.JITFunction",
    "triton.runtime.JITFunction", "triton.tools.tensor_descriptor.TensorDescriptor",
}  # fmt: skip
BASES = {
    "abc.ABC", "enum.Enum", "enum.IntEnum", "torch.autograd.Function", "torch.nn.Module",
    "typing.NamedTuple", "typing.Protocol", "typing.TypedDict",
}  # fmt: skip

# The kernel's own language, compiled for the device: public names one below these.
_GLUON = "triton.experimental.gluon.language.nvidia"
DEVICE_LANGUAGES = (
    "triton.language", "triton.language.libdevice", "triton.language.math", "triton.language.random",
    "triton.language.standard", "triton.language.extra.cuda",
    "triton.language.extra.cuda.libdevice", "triton.language.extra.libdevice",
    "triton.experimental.gluon.language",
    *(f"{_GLUON}.{name}" for name in (
        "ampere", "gluon_ir", "ampere.async_copy", "blackwell", "blackwell.tma", "hopper", "hopper.mbarrier",
        "hopper.tma")),
)  # fmt: skip
# What those modules have of others: modules, functions of the host, and functions by their symbols, of which
# one is LLVM's for the clock.
OF_THE_HOST = {
    "amd", "ampere", "annotations", "async_copy", "blackwell", "builtin", "builtins", "clc",
    "cluster", "core", "cuda", "dataclass", "extern_elementwise", "extra", "field", "fpsan",
    "functools", "gluon_ir", "hip", "hopper", "ir", "jit", "knobs", "libdevice", "math", "mbarrier",
    "nvidia", "random", "semantic", "standard", "target_info", "tl", "tma", "torch", "triton",
    "ttgl", "typing", "unflatten_ir_values", "utils", "warnings", "wraps",
}  # fmt: skip
DEVICE_CLOCKS = {"clock", "clock64", "globaltimer"}
ASSEMBLY_CALLS = {
    "triton.language.inline_asm_elementwise",
    "triton.experimental.gluon.language.inline_asm_elementwise",
}
DEVICE_EXPERIMENTAL = {
    "triton.language._experimental_descriptor_load",
    "triton.language._experimental_descriptor_store",
    "triton.language._experimental_make_tensor_descriptor",
}

BUILTINS = {
    "abs", "all", "any", "ascii", "bin", "bool", "bytearray", "bytes", "callable", "chr",
    "classmethod", "complex", "dict", "divmod", "enumerate", "filter", "float", "format", "frozenset",
    "hash", "hex", "id", "int", "isinstance", "issubclass", "iter", "len", "list", "map", "max", "min",
    "next", "object", "oct", "ord", "pow", "print", "property", "range", "repr", "reversed", "round",
    "set", "slice", "sorted", "staticmethod", "str", "sum", "super", "tuple", "zip", "Ellipsis",
    "NotImplemented", "__name__", "__file__", "__doc__",
}  # fmt: skip
# Only where they are called, by their own names, with a literal.
BY_LITERAL = {"getattr", "hasattr", "setattr", "delattr"}

OWN_METHODS = {
    "__init__", "__call__", "__enter__", "__exit__", "__eq__", "__getitem__", "__hash__", "__iter__",
    "__len__", "__lt__", "__next__", "__post_init__", "__repr__", "__setitem__", "__str__",
    "__contains__", "__bool__", "__add__", "__mul__", "__sub__",
}  # fmt: skip
# Those whose second argument is like the first.
COMPARISONS = {"__eq__", "__lt__", "__add__", "__mul__", "__sub__"}
# What named tuples and compiled kernels give under such names.
HARMLESS_UNDERSCORED = {"_asdict", "_fields", "_init_handles", "_make", "_replace"}
# What a module or a class may say about itself.
OWN_DUNDERS = OWN_METHODS | {"__all__", "__author__", "__doc__", "__slots__", "__version__"}
HARMLESS_DUNDERS = {"__name__", "__doc__", "__init__", "__version__"}
# Settings of the compiler and the libraries; anything else in the environment is the harness's.
ENVIRONMENT = r"(TRITON|TORCH|PYTORCH)_\w+(?<!_MANAGER)"  # no classes to run
