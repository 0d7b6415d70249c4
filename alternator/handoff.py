"""Hands a graph to its backend, in the form that backends know from TorchDynamo."""

from __future__ import annotations

import collections
import contextlib
import copy
import inspect
import itertools
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, cast

import torch
import torch.fx.experimental._config
from torch._guards import CompileContext, CompileId, GuardSource, Source, TracingContext, compile_context, tracing

from . import config, events, logs
from ._load import load_core
from .backends import Backend
from .backwards import Refused, came_from_backward, impure_backwards, old_values_saved, written_through_data
from .events import Graph, Listener
from .exc import backend_failed
from .graph_module import GraphModule
from .pieces import InPieces, needs_examples

# A callable that runs the graph, and whether it takes a list; None: the recorded program itself. (NotImplemented: see takes_numpy_scalars.)
Answer = tuple[Callable[..., Any], bool] | None

_graph_numbers = itertools.count()
_Flags = load_core().fake.Flags
_thread_kept = load_core().fake.ThreadKept()


# Why a graph is AOT-incompatible.
_AOT_INCOMPATIBLE = (
    "it makes a leaf that requires grad or a tensor with a hook, gives a tensor other memory, transposes an argument in place, writes to "
    "memory of an array or of several inputs, or applies an autograd.Function that keeps on ctx what may change until its backward()"
)
_SUBCLASS_INPUT = "a tensor subclass is among its inputs"


class InputSource(Source):
    """The source of a graph input, for backends that distinguish inputs by it. The guards are Alternator's: they prove which inputs
    are one object, so that the additional guards of AOTAutograd hold already."""

    text: str

    def __init__(self, text: str) -> None:
        self.__dict__["text"] = text  # a Source is a frozen dataclass, whose __setattr__ is slow

    @property
    def _name_template(self) -> str:
        return self.text

    @property
    def guard_source(self) -> GuardSource:
        return GuardSource.CONSTANT

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputSource) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[type[InputSource], tuple[str]]:
        return InputSource, (self.text,)  # Inductor's FX graph cache pickles them


def _uses_cuda() -> bool:
    is_initialized: Callable[[], bool] = torch.cuda.is_initialized
    return is_initialized()


@contextlib.contextmanager
def _state_kept() -> Iterator[None]:
    """A backend may draw random numbers, switch modes and raise the recursion limit (Inductor does): all of it is restored."""
    python_rng, torch_rng = random.getstate(), torch.get_rng_state()
    device_rng = torch.cuda.get_rng_state_all() if _uses_cuda() else None
    grad, flags = torch.is_grad_enabled(), _Flags.now()
    depth = sys.getrecursionlimit()
    key = torch._C._TorchDispatchModeKey.FAKE
    fake_mode = torch._C._get_dispatch_mode(key)
    try:
        yield
    finally:
        # A KeyboardInterrupt may have been raised while FakeTensorMode was entered or left.
        if torch._C._get_dispatch_mode(key) is not fake_mode:
            torch._C._unset_dispatch_mode(key)
            if fake_mode is not None:
                torch._C._set_dispatch_mode(fake_mode)
        if sys.getrecursionlimit() != depth:
            sys.setrecursionlimit(depth)
        random.setstate(python_rng)
        torch.set_rng_state(torch_rng)
        if device_rng is not None:
            torch.cuda.set_rng_state_all(device_rng)
        torch._C._set_grad_enabled(grad)
        if flags is not None:
            flags.apply()  # flags that nodes of a graph have set before one of them failed


@contextlib.contextmanager
def _torchs_lock() -> Iterator[None]:
    """The lock that TorchDynamo holds while a torch backend compiles."""
    from torch._dynamo.convert_frame import compile_lock

    with compile_lock:
        yield


@contextlib.contextmanager
def differentiable_lstm() -> Iterator[None]:
    """torch's decomposition uses oneDNN's layer, which is for inference only, unless the *input* requires a gradient. TorchDynamo
    never captures an LSTM; where one is captured, the weights count too."""
    from torch._decomp import decompositions

    select = getattr(decompositions, "select_one_layer_lstm_function", None)
    if select is None:
        yield
        return

    def stricter(given: Any, hidden: Any, params: Any) -> Any:
        learns = torch.is_grad_enabled() and any(
            tensor.requires_grad for tensor in itertools.chain(hidden, *params) if isinstance(tensor, torch.Tensor)
        )
        return decompositions.one_layer_lstm if learns else select(given, hidden, params)

    decompositions.select_one_layer_lstm_function = stricter
    try:
        yield
    finally:
        decompositions.select_one_layer_lstm_function = select


def _takes_a_list(compiled: Any) -> bool:
    """Whether it takes its inputs as one list, which it may clear. AOTAutograd copies `_boxed_call` to wrappers that take them one by
    one."""
    if getattr(compiled, "_boxed_call", False) is not True:
        return False
    call = compiled if isinstance(compiled, (FunctionType, MethodType)) else getattr(type(compiled), "__call__", None)  # noqa: B004
    code = getattr(call, "__code__", None)
    if code is None or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return False
    is_bound = isinstance(call, MethodType) or call is not compiled
    return bool(code.co_argcount - is_bound == 1)


def _module_of(compiled: Any) -> GraphModule | None:
    """The graph module whose generated code is all that a call runs, without hooks or code of the backend; or None."""
    if isinstance(compiled, GraphModule):
        hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        return None if any(getattr(compiled, name) for name in hooks) else compiled
    module = getattr(compiled, "__self__", None)
    if not isinstance(compiled, MethodType) or not isinstance(module, GraphModule):
        return None
    cls: Any = type(module)
    return module if compiled.__func__ in (cls.forward, cls._lazy_forward) else None


def _results(call: Callable[..., Any], inputs: list[torch.Tensor]) -> list[Any]:
    """The outputs of a graph for copies of its inputs. The random state is the same in every run."""
    copies = [value.detach().clone().requires_grad_(value.requires_grad) for value in inputs]
    with torch.random.fork_rng():
        return list(call(copies) if _takes_a_list(call) else call(*copies))


def _wants_code() -> bool:
    """Whether something inspects the generated code while it runs."""
    return bool(getattr(torch.fx.experimental._config, "enrich_profiler_metadata", False))


def _begin_step() -> None:
    from torch._dynamo.mutation_guard import GenerationTracker

    GenerationTracker.generation += 1


def _is_numpy_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.number)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_subclass(value: Any) -> bool:
    """Whether it is of a tensor subclass other than Parameter, which may override anything that FakeTensorMode reads."""
    bases = type(value).__mro__
    return torch.Tensor in bases[1:] and torch.nn.Parameter not in bases


_WRITE_LAST = {"aot_eager", "aot_eager_decomp_partition", "aot_eager_default_partitioner"}

# Errors of AOTAutograd for graphs that eager runs, or rejects only in a backward pass that may never run: writes to inputs that share
# memory, or to tensors that a backward pass would need, and results whose autograd history an `autograd.grad()` has freed.
_REFUSALS = (
    "aot_autograd() does not yet handle",
    "one of the variables needed for gradient computation has been modified by an inplace operation",
    "Trying to backward through the graph a second time",
    "a leaf Variable that requires grad is being used in an in-place operation",
    "outs_to_grad length (",
    "that has internal overlap",
    "more than one element of the written-to tensor refers to a single memory location",
    "mutating a non-functional tensor",  # the fused steps of optimizers
    "Could not guard on data-dependent expression",  # its own code needs the value of an unbacked symbol
)


def _is_refusal(error: BaseException | None) -> bool:
    return isinstance(error, Refused) or (
        isinstance(error, Exception) and any(text in str(error) for text in _REFUSALS)
    )


@contextlib.contextmanager
def _warnings_held() -> Iterator[None]:
    """Warnings that torch issues while it compiles are shown afterwards, and not at all for a graph that it rejects. Like
    warnings.catch_warnings(), but the filters are unchanged, and so are the warnings of other threads."""
    module: Any = warnings
    thread = threading.get_ident()
    before = module.showwarning, module._showwarnmsg_impl
    held: list[Any] = []

    def hold(message: Any) -> None:
        show, show_impl = before
        if threading.get_ident() == thread:
            held.append(message)
        elif show is module._showwarning_orig:
            show_impl(message)
        else:
            show(message.message, message.category, message.filename, message.lineno, message.file, message.line)

    module.showwarning, module._showwarnmsg_impl = module._showwarning_orig, hold
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        module.showwarning, module._showwarnmsg_impl = before
        if not _is_refusal(failure):
            for message in held:
                module._showwarnmsg(message)


def _with_versions_kept(call: Callable[..., Any], takes_a_list: bool, places: Sequence[int]) -> Callable[..., Any]:
    """Wraps `call` so that the version counters of these inputs are restored after it."""

    def run(*given: Any) -> Any:
        tensors = tuple((given[0] if takes_a_list else given)[place] for place in places)
        versions = tuple(tensor._version for tensor in tensors)
        try:
            return call(*given)
        finally:
            torch._C._autograd._unsafe_set_version_counter(tensors, versions)

    return run


def _forget_tensors(fake_mode: Any) -> None:
    """Clears the weak references of a mode that the compiled code keeps alive: torch.utils.swap_tensors() rejects tensors with any."""
    if fake_mode is None:
        return
    describer = fake_mode.fake_tensor_converter.meta_converter.describer
    describer.lookup_tensor.clear()
    describer.lookup_storage.clear()


class Handoff:
    """The core calls it with each new graph; see csrc/backend/handoff.h."""

    def __init__(self, backend: Backend, listener: Listener, shared: object = None) -> None:
        self.backend = backend
        self.listener = listener
        self.shared = shared  # the shared cache: kept alive by its users
        self.looks_inside = False  # whether the backend transforms graphs: see _gives_back

    def __call__(
        self,
        export: Callable[..., Any],
        is_as_exported: Callable[[Any], bool],
        inputs: list[Any],
        sources: list[tuple[str, bool]],
        code: CodeType,
        shape_env: Any,
        asserts: bool,
        aot_incompatible: bool,
        segmented: bool,
        subclasses: bool,
    ) -> Answer:
        self.listener.check_recompile()
        compile_id = self.listener.compile_id()
        name = f"__compiled_fn_{next(_graph_numbers)}"
        uncompiled = self.backend.compiler is None
        subclass_input = any(map(_is_subclass, inputs))
        if self.backend.is_torch_backend and (aot_incompatible or subclass_input or subclasses):
            uncompiled = True
            why = (
                _AOT_INCOMPATIBLE
                if aot_incompatible
                else _SUBCLASS_INPUT
                if subclass_input
                else "it makes a tensor of a subclass"
            )
            self._report_uncompiled(name, self.backend.name, why)
        segmented = segmented and not getattr(self.backend.compiler, "whole_graphs", False)
        # Unbacked symbols are not passed from one piece to the next, and pieces need examples of all inputs.
        uncompiled = uncompiled or (
            segmented and (shape_env is not None or aot_incompatible or subclass_input or subclasses)
        )
        if uncompiled and not asserts and not events.wants_graphs():
            return None
        with _thread_kept, contextlib.ExitStack() as stack:
            stack.enter_context(_state_kept())
            if self.backend.is_torch_backend:
                stack.enter_context(_torchs_lock())
                stack.enter_context(differentiable_lstm())
                stack.enter_context(old_values_saved())
            stack.enter_context(compile_context(CompileContext(compile_id)))
            began = time.perf_counter()
            fake_mode = None if subclass_input and not asserts else self._fake_mode(shape_env, asserts)
            static: list[Any] = []
            if fake_mode is not None:
                try:
                    static = self._static_examples(fake_mode, inputs)
                except Exception as error:
                    # FakeTensorMode cannot convert one of them: its gradient is of another size, or its base of another type.
                    if asserts:
                        raise
                    if self.backend.is_torch_backend:
                        self._report_refused(name, error)
                        uncompiled = True
                    else:
                        fake_mode = None  # a user callable does without examples
            context = TracingContext(fake_mode)
            if fake_mode is not None or aot_incompatible:
                stack.enter_context(tracing(context))
            gm = export(fake_mode)
            if segmented and fake_mode is None and needs_examples(gm):
                fake_mode = self._fake_mode(shape_env, needed=True)
                gm = export(fake_mode)
            if self.backend.is_torch_backend and not uncompiled and any(map(_requires_grad, inputs)):
                impure = impure_backwards(gm)
                if impure:
                    uncompiled = True
                    why = f"{impure[0].__qualname__}.backward reads or writes more than its arguments"
                    self._report_uncompiled(name, self.backend.name, why)
            if asserts:
                self._insert_asserts(gm, shape_env, name)
            self._describe(gm, inputs, sources, compile_id, name)
            graph = self.listener.graph(
                name=name,
                backend=self.backend.name,
                module=gm,
                code=code,
                inputs=tuple(text for text, _ in sources),
                seconds={"export": time.perf_counter() - began},
            )
            if uncompiled:
                if not asserts:
                    return None
                gm.recompile()
                return gm.forward, False
            with self._timed(graph), logs.progress(graph):
                if segmented and self._gives_back(gm, is_as_exported, inputs):
                    answer = None
                elif segmented and any(map(_is_numpy_scalar, inputs)):
                    return cast(Answer, NotImplemented)  # the core then traces again with them as constants
                elif segmented:
                    if self.looks_inside:  # the backend may have changed the module
                        gm = export(fake_mode)
                        self._describe(gm, inputs, sources, compile_id, name)
                    answer = self._compile_pieces(gm, inputs, sources, fake_mode, compile_id, name, code)
                else:
                    answer = self._compile(gm, is_as_exported, inputs, name, code)
                    if (
                        answer is None and asserts
                    ):  # the backend may have changed the module; the runtime assertions are still needed
                        gm = export(fake_mode)
                        self._insert_asserts(gm, shape_env, name)
                        gm.recompile()
                        answer = gm.forward, False
            static.clear()
            _forget_tensors(fake_mode)
            if aot_incompatible and not asserts and answer is not None and context.fw_metadata is not None:
                self._report_uncompiled(name, "AOTAutograd", _AOT_INCOMPATIBLE)  # a user callable that uses it
                return None
            return answer

    @property
    def is_torch_backend(self) -> bool:
        """Whether it is a torch backend: where its code raises, the call falls back to eager, and raises what eager would."""
        return self.backend.is_torch_backend

    @property
    def takes_numpy_scalars(self) -> bool:
        """Whether graphs may have numpy scalar inputs: only if the graph runs uncompiled. For a compiler they are constants. A backend
        that turns out to be a compiler answers NotImplemented for the first graph with such inputs."""
        whole = getattr(self.backend.compiler, "whole_graphs", False)
        return not (self.backend.is_torch_backend or self.looks_inside or whole or config.is_set("verify_correctness"))

    @property
    def writes_last(self) -> bool:
        """Whether its code writes to its inputs last, by torch operators: where it raises before that, nothing was mutated. Inductor's
        kernels write at any time."""
        return self.backend.is_torch_backend and self.backend.name in _WRITE_LAST

    @property
    def begin_step(self) -> Callable[[], None] | None:
        """A function to call before each outermost call: CUDA graphs then may overwrite the outputs of the previous one. The core
        reads it after each compilation."""
        return _begin_step if self.backend.is_torch_backend and _uses_cuda() else None

    @contextlib.contextmanager
    def _timed(self, graph: Graph) -> Iterator[None]:
        began, clock = time.time(), time.perf_counter()
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            self.listener.compiled(graph, began, time.perf_counter() - clock, failure)

    def _fake_mode(self, shape_env: Any, needed: bool) -> Any:
        """The mode of the example values. Creating one loads torch._dynamo: if it is not loaded yet, a user callable gets no example
        values."""
        wanted = config.example_values
        if wanted is None:
            wanted = "torch._dynamo" in sys.modules
        if not (wanted or needed or self.backend.is_torch_backend):
            return None
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        return FakeTensorMode(shape_env=shape_env or ShapeEnv())

    def _insert_asserts(self, gm: Any, shape_env: Any, name: str) -> None:
        """torch's symbolic shapes rely on facts about unbacked symbols: each run checks them."""
        from torch.fx.passes.runtime_assert import insert_deferred_runtime_asserts

        insert_deferred_runtime_asserts(gm, shape_env, name)

    def _static_examples(self, fake_mode: Any, inputs: list[Any]) -> list[Any]:
        """While these are alive, the mode returns them to AOTAutograd: sizes are static, those of a view's base too."""
        with torch._C.DisableTorchFunctionSubclass():  # no user __torch_function__ is called
            wanted = [
                value
                for value in inputs
                if isinstance(value, torch.Tensor) and (self.backend.is_torch_backend or value._is_view())
            ]
        return [fake_mode.from_tensor(value, static_shapes=True) for value in wanted]

    def _describe(
        self, gm: Any, inputs: list[Any], sources: list[tuple[str, bool]], compile_id: CompileId, name: str
    ) -> None:
        """Adds the metadata that AOTAutograd and Inductor read from a graph."""
        placeholders = gm.graph.find_nodes(op="placeholder")
        met: collections.Counter[str] = collections.Counter()
        set_new = object.__setattr__  # Node.__setattr__ looks the node up in its graph
        for node, value, (text, is_state) in zip(placeholders, inputs, sources, strict=True):
            met[text] += 1  # after a break, variables of several frames may have the same name
            set_new(node, "_dynamo_source", InputSource(text if met[text] == 1 else f"{text} ({met[text]})"))
            # Its address rarely changes: CUDA graphs record again when it does, instead of copying it every time. No guard
            # checks addresses, and a graph serves several modules: so never "guarded", whatever the tensor's mark is.
            marked = getattr(value, "_dynamo_static_input_type", None) is not None
            attributes = node.meta.setdefault("tensor_dict", {})
            if marked or is_state or isinstance(value, torch.nn.Parameter):
                attributes["_dynamo_static_input_type"] = "unguarded"
        gm.meta["dynamo_compile_id"] = compile_id
        gm.meta["dynamo_flat_name_to_original_fqn"] = {}
        gm.meta["backend_id"] = name
        state = itertools.chain(gm.named_parameters(remove_duplicate=False), gm.named_buffers(remove_duplicate=False))
        gm._param_name_to_source = {key: InputSource(f"constant {key}") for key, _ in state}
        gm._source_to_user_stacks = {}
        # Part of the key of FX graph caches: a graph that was compiled without old_values_saved() must not be reused.
        gm._saves_old_values = True

    def _compile(
        self,
        gm: Any,
        is_as_exported: Callable[[Any], bool],
        inputs: list[torch.Tensor],
        name: str,
        code: CodeType,
    ) -> Answer:
        assert self.backend.compiler is not None
        try:
            # Copying a tensor subclass may run user code.
            verifies = config.is_set("verify_correctness") and not any(
                torch._subclasses.fake_tensor.is_fake(value) or _is_subclass(value) for value in inputs
            )
            expected = _results(copy.deepcopy(gm).forward, inputs) if verifies else None
            with _warnings_held() if self.backend.is_torch_backend else contextlib.nullcontext():
                through_data = written_through_data(gm, inputs) if self.backend.is_torch_backend else []
                try:
                    compiled = self.backend.compiler(gm, inputs)
                except Exception as error:
                    if self.backend.is_torch_backend and came_from_backward(error, gm):
                        raise Refused(f"a backward() raises {type(error).__name__}: {error}") from error
                    raise
            if not callable(compiled):
                raise TypeError(f"a backend must return a callable, not {compiled!r}")
            if expected is not None:
                torch.testing.assert_close(_results(compiled, inputs), expected, equal_nan=True)
            module = _module_of(compiled)
            if module is not None:
                if module._needs_recompile() and is_as_exported(module) and not _wants_code():
                    return None  # the recorded program does the same, and no code has to be generated
                module.real_recompile()  # now, not in the first call
                compiled = module.forward
            takes_a_list = _takes_a_list(compiled)
            if through_data:
                compiled = _with_versions_kept(compiled, takes_a_list, through_data)
            return compiled, takes_a_list
        except RecursionError:
            raise  # the C stack is too deep for a compilation: the call falls back to eager
        except Exception as error:
            if self._asks_to_skip(error):
                return None
            if self.backend.is_torch_backend and _is_refusal(error):
                self._report_refused(name, error)
                return None
            where = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
            failed = backend_failed(self.backend.name, name, where, error)
            if not config.is_set("suppress_errors"):
                raise failed.with_traceback(error.__traceback__) from None
            logs.log.warning("%s\nThe graph runs the recorded program, uncompiled.", failed)
            return None

    def _gives_back(self, gm: Any, is_as_exported: Callable[[Any], bool], inputs: list[Any]) -> bool:
        """Whether a third-party backend returns a graph with separate segments unchanged: then it gets the whole graph, and the
        recorded program runs. A backend that transformed one is not tried again."""
        if self.backend.is_torch_backend or self.looks_inside or config.is_set("verify_correctness"):
            return False
        if any(isinstance(value, torch.Generator) for value in inputs):
            return False  # the backend might run the graph, and advance the generator
        assert self.backend.compiler is not None
        try:
            module = _module_of(self.backend.compiler(gm, inputs))
            if module is gm and is_as_exported(gm) and not _wants_code():
                return True
        except RecursionError:
            raise
        except Exception:
            pass  # it raises again for a piece
        self.looks_inside = True
        return False

    def _compile_pieces(
        self,
        gm: Any,
        inputs: list[Any],
        sources: list[tuple[str, bool]],
        fake_mode: Any,
        compile_id: CompileId,
        name: str,
        code: CodeType,
    ) -> Answer:
        known = dict(zip(gm.graph.find_nodes(op="placeholder"), sources, strict=True))
        numbers = itertools.count()

        def compile_piece(piece: Any, examples: list[Any], origins: list[Any]) -> Callable[..., Any]:
            piece_name = f"{name}_{next(numbers)}"
            origin_texts = [known.get(node, (f"{piece_name}:{node.name}", False)) for node in origins]
            self._describe(piece, examples, origin_texts, compile_id, piece_name)
            with tracing(TracingContext(fake_mode)):
                answer = self._compile(piece, lambda _: False, examples, piece_name, code)
            if answer is None:
                forward: Callable[..., Any] = piece.forward
                return forward
            call, takes_a_list = answer
            return (lambda *given: call(list(given))) if takes_a_list else call

        return InPieces(gm, inputs, fake_mode, compile_piece), False

    @staticmethod
    def _report_uncompiled(name: str, compiler: str, why: str) -> None:
        logs.log.warning("%s runs the recorded program, not through %s: %s", name, compiler, why)

    def _report_refused(self, name: str, error: Exception) -> None:
        self._report_uncompiled(name, self.backend.name, (str(error).splitlines() or [type(error).__name__])[0])

    @staticmethod
    def _asks_to_skip(error: Exception) -> bool:
        exc: Any = sys.modules.get("torch._dynamo.exc")
        return exc is not None and isinstance(error, exc.SkipFrame)
