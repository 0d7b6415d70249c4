"""The way of a graph to its backend, in the form that backends know from TorchDynamo."""

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
from .backwards import Refused, came_from_backward, changing_backwards, old_values_saved, written_unseen
from .events import Graph, Listener
from .exc import backend_failed
from .graph_module import GraphModule
from .pieces import InPieces, needs_examples

# What runs a graph, and whether it takes a list; None: the recorded program itself. (NotImplemented: see takes_numbers.)
Answer = tuple[Callable[..., Any], bool] | None

_graph_numbers = itertools.count()
_Flags = load_core().fake.Flags
_thread_kept = load_core().fake.ThreadKept()


# Why a graph is not for AOTAutograd.
_LEAVES = (
    "it makes a leaf that requires grad or a tensor with a hook, gives a tensor other memory, turns an argument, writes next to an array "
    "or to what several inputs share, or applies an autograd.Function that keeps on ctx what may change until its backward()"
)
_ODD_INPUT = "a tensor of a subclass is among its inputs"


class InputSource(Source):
    """Where an input of a graph came from, for backends that tell inputs apart by it. The guards are Alternator's: they prove
    which inputs are one object, so that what AOTAutograd asks for in addition already holds."""

    text: str

    def __init__(self, text: str) -> None:
        self.__dict__["text"] = text  # a Source is a frozen dataclass, which checks each attribute that is set

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
        return InputSource, (self.text,)  # Inductor's cache of graphs holds them


def _uses_cuda() -> bool:
    is_initialized: Callable[[], bool] = torch.cuda.is_initialized
    return is_initialized()


@contextlib.contextmanager
def _state_kept() -> Iterator[None]:
    """A backend may draw random numbers, switch modes and want more stack (Inductor does): the program does not see it."""
    numbers, torch_numbers = random.getstate(), torch.get_rng_state()
    device_numbers = torch.cuda.get_rng_state_all() if _uses_cuda() else None
    grad, flags = torch.is_grad_enabled(), _Flags.now()
    depth = sys.getrecursionlimit()
    key = torch._C._TorchDispatchModeKey.FAKE
    fake_mode = torch._C._get_dispatch_mode(key)
    try:
        yield
    finally:
        # An interrupt may have come while FakeTensorMode was entered or left.
        if torch._C._get_dispatch_mode(key) is not fake_mode:
            torch._C._unset_dispatch_mode(key)
            if fake_mode is not None:
                torch._C._set_dispatch_mode(fake_mode)
        if sys.getrecursionlimit() != depth:
            sys.setrecursionlimit(depth)
        random.setstate(numbers)
        torch.set_rng_state(torch_numbers)
        if device_numbers is not None:
            torch.cuda.set_rng_state_all(device_numbers)
        torch._C._set_grad_enabled(grad)
        if flags is not None:
            flags.apply()  # those that nodes of a graph set, where one of them has failed


@contextlib.contextmanager
def _torchs_lock() -> Iterator[None]:
    """The lock that TorchDynamo holds while a backend of torch's works."""
    from torch._dynamo.convert_frame import compile_lock

    with compile_lock:
        yield


@contextlib.contextmanager
def differentiable_lstm() -> Iterator[None]:
    """torch's decomposition takes oneDNN's layer, which is for inference only, unless the *input* wants a gradient. TorchDynamo
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
    """Whether its inputs come as one list, which it may empty. AOTAutograd copies the mark to wrappers that take them one by one."""
    if getattr(compiled, "_boxed_call", False) is not True:
        return False
    call = compiled if isinstance(compiled, (FunctionType, MethodType)) else getattr(type(compiled), "__call__", None)  # noqa: B004
    code = getattr(call, "__code__", None)
    if code is None or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return False
    is_bound = isinstance(call, MethodType) or call is not compiled
    return bool(code.co_argcount - is_bound == 1)


def _module_of(compiled: Any) -> GraphModule | None:
    """The graph module whose generated code is all that a call runs: no hook, no method of the backend's own."""
    if isinstance(compiled, GraphModule):
        hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        return None if any(getattr(compiled, name) for name in hooks) else compiled
    module = getattr(compiled, "__self__", None)
    if not isinstance(compiled, MethodType) or not isinstance(module, GraphModule):
        return None
    cls: Any = type(module)
    return module if compiled.__func__ in (cls.forward, cls._lazy_forward) else None


def _results(call: Callable[..., Any], inputs: list[torch.Tensor]) -> list[Any]:
    """What a graph gives for copies of its inputs. Random numbers are the same in every run."""
    copies = [value.detach().clone().requires_grad_(value.requires_grad) for value in inputs]
    with torch.random.fork_rng():
        return list(call(copies) if _takes_a_list(call) else call(*copies))


def _wants_code() -> bool:
    """Whether the generated code is looked at while it runs."""
    return bool(getattr(torch.fx.experimental._config, "enrich_profiler_metadata", False))


def _begin_step() -> None:
    from torch._dynamo.mutation_guard import GenerationTracker

    GenerationTracker.generation += 1


def _is_numpy_number(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.number)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_of_a_subclass(value: Any) -> bool:
    """Its class may answer anything that FakeTensorMode asks a tensor for."""
    bases = type(value).__mro__
    return torch.Tensor in bases[1:] and torch.nn.Parameter not in bases


_WRITE_LAST = {"aot_eager", "aot_eager_decomp_partition", "aot_eager_default_partitioner"}

# What AOTAutograd says of graphs that eager has no trouble with, or only in a backward pass that may never come: writes to inputs
# that share memory, and to what a backward pass would need, and results whose history an `autograd.grad()` has used up.
_REFUSALS = (
    "aot_autograd() does not yet handle",
    "one of the variables needed for gradient computation has been modified by an inplace operation",
    "Trying to backward through the graph a second time",
    "a leaf Variable that requires grad is being used in an in-place operation",
    "outs_to_grad length (",
    "that has internal overlap",
    "more than one element of the written-to tensor refers to a single memory location",
    "mutating a non-functional tensor",  # the fused steps of optimizers
    "Could not guard on data-dependent expression",  # its own code wants to know a number that only a run knows
)


def _is_refusal(error: BaseException | None) -> bool:
    return isinstance(error, Refused) or (
        isinstance(error, Exception) and any(text in str(error) for text in _REFUSALS)
    )


@contextlib.contextmanager
def _warnings_held() -> Iterator[None]:
    """What torch warns of while it compiles is given when it has done so, and not at all of a graph that it refuses. As in
    warnings.catch_warnings(), but the filters stay as they are, and so do the other threads' warnings."""
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
    """The versions of these inputs are after a call what they were before."""

    def run(*given: Any) -> Any:
        tensors = tuple((given[0] if takes_a_list else given)[place] for place in places)
        versions = tuple(tensor._version for tensor in tensors)
        try:
            return call(*given)
        finally:
            torch._C._autograd._unsafe_set_version_counter(tensors, versions)

    return run


def _forget_tensors(fake_mode: Any) -> None:
    """The weak references of a mode that lives on with the compiled code: torch.utils.swap_tensors() takes no tensor that has any."""
    if fake_mode is None:
        return
    describer = fake_mode.fake_tensor_converter.meta_converter.describer
    describer.lookup_tensor.clear()
    describer.lookup_storage.clear()


class Handoff:
    """Called by the core with each new graph; see csrc/backend/handoff.h."""

    def __init__(self, backend: Backend, listener: Listener, shared: object = None) -> None:
        self.backend = backend
        self.listener = listener
        self.shared = shared  # lives as long as one of those who share it
        self.looks_inside = False  # whether the backend makes something else of a graph: see _gives_back

    def __call__(
        self,
        export: Callable[..., Any],
        is_as_exported: Callable[[Any], bool],
        inputs: list[Any],
        sources: list[tuple[str, bool]],
        code: CodeType,
        shape_env: Any,
        asserts: bool,
        leaves: bool,
        apart: bool,
        subclasses: bool,
    ) -> Answer:
        self.listener.check_recompile()
        compile_id = self.listener.compile_id()
        name = f"__compiled_fn_{next(_graph_numbers)}"
        as_recorded = self.backend.compiler is None
        odd = any(map(_is_of_a_subclass, inputs))
        if self.backend.is_torchs and (leaves or odd or subclasses):
            as_recorded = True
            why = _LEAVES if leaves else _ODD_INPUT if odd else "it makes a tensor of a subclass"
            self._tell_left(name, self.backend.name, why)
        apart = apart and not getattr(self.backend.compiler, "whole_graphs", False)
        # Numbers that only a run knows are not handed from one piece to the next, and pieces need examples of all inputs.
        as_recorded = as_recorded or (apart and (shape_env is not None or leaves or odd or subclasses))
        if as_recorded and not asserts and not events.wants_graphs():
            return None
        with _thread_kept, contextlib.ExitStack() as stack:
            stack.enter_context(_state_kept())
            if self.backend.is_torchs:
                stack.enter_context(_torchs_lock())
                stack.enter_context(differentiable_lstm())
                stack.enter_context(old_values_saved())
            stack.enter_context(compile_context(CompileContext(compile_id)))
            began = time.perf_counter()
            fake_mode = None if odd and not asserts else self._fake_mode(shape_env, asserts)
            static: list[Any] = []
            if fake_mode is not None:
                try:
                    static = self._static_examples(fake_mode, inputs)
                except Exception as error:
                    # Torch makes no tensor without data like one of them: its gradient is of another size, or its base of another type.
                    if asserts:
                        raise
                    if self.backend.is_torchs:
                        self._tell_refused(name, error)
                        as_recorded = True
                    else:
                        fake_mode = None  # a callable of the user's does without examples
            context = TracingContext(fake_mode)
            if fake_mode is not None or leaves:
                stack.enter_context(tracing(context))
            gm = export(fake_mode)
            if apart and fake_mode is None and needs_examples(gm):
                fake_mode = self._fake_mode(shape_env, needed=True)
                gm = export(fake_mode)
            if self.backend.is_torchs and not as_recorded and any(map(_requires_grad, inputs)):
                changing = changing_backwards(gm)
                if changing:
                    as_recorded = True
                    why = f"{changing[0].__qualname__}.backward reads or writes more than its arguments"
                    self._tell_left(name, self.backend.name, why)
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
            if as_recorded:
                if not asserts:
                    return None
                gm.recompile()
                return gm.forward, False
            with self._timed(graph), logs.progress(graph):
                if apart and self._gives_back(gm, is_as_exported, inputs):
                    answer = None
                elif apart and any(map(_is_numpy_number, inputs)):
                    return cast(Answer, NotImplemented)  # the core then takes them as constants
                elif apart:
                    if self.looks_inside:  # the module has been in its hands
                        gm = export(fake_mode)
                        self._describe(gm, inputs, sources, compile_id, name)
                    answer = self._compile_pieces(gm, inputs, sources, fake_mode, compile_id, name, code)
                else:
                    answer = self._compile(gm, is_as_exported, inputs, name, code)
                    if (
                        answer is None and asserts
                    ):  # the module has been in other hands; what it relies on is still to be checked
                        gm = export(fake_mode)
                        self._insert_asserts(gm, shape_env, name)
                        gm.recompile()
                        answer = gm.forward, False
            static.clear()
            _forget_tensors(fake_mode)
            if leaves and not asserts and answer is not None and context.fw_metadata is not None:
                self._tell_left(name, "AOTAutograd", _LEAVES)  # a callable that goes through it
                return None
            return answer

    @property
    def is_torchs(self) -> bool:
        """Where its code raises, the call runs as it is, and raises what eager would."""
        return self.backend.is_torchs

    @property
    def takes_numbers(self) -> bool:
        """Whether numbers of numpy's may be inputs of a graph: of whoever runs it as it is. For a compiler they are constants. One
        that turns out to be such says NotImplemented to the first graph with numbers among its inputs."""
        whole = getattr(self.backend.compiler, "whole_graphs", False)
        return not (self.backend.is_torchs or self.looks_inside or whole or config.is_set("verify_correctness"))

    @property
    def writes_last(self) -> bool:
        """Whether its code writes to its inputs when all is computed, by operators of torch's: where it raises before that, nothing has
        happened. Inductor's kernels write wherever it suits them."""
        return self.backend.is_torchs and self.backend.name in _WRITE_LAST

    @property
    def begin_step(self) -> Callable[[], None] | None:
        """To be called before each outermost call: CUDA graphs then know that the outputs of the one before may be overwritten.
        Asked for after each compilation."""
        return _begin_step if self.backend.is_torchs and _uses_cuda() else None

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
        """The mode of the example values. To make one loads torch._dynamo: a callable of the user's that did not need it so far
        does without."""
        wanted = config.example_values
        if wanted is None:
            wanted = "torch._dynamo" in sys.modules
        if not (wanted or needed or self.backend.is_torchs):
            return None
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        return FakeTensorMode(shape_env=shape_env or ShapeEnv())

    def _insert_asserts(self, gm: Any, shape_env: Any, name: str) -> None:
        """What torch found out about shapes relies on facts about numbers that only a run knows: each run checks them."""
        from torch.fx.passes.runtime_assert import insert_deferred_runtime_asserts

        insert_deferred_runtime_asserts(gm, shape_env, name)

    def _static_examples(self, fake_mode: Any, inputs: list[Any]) -> list[Any]:
        """As long as these live, the mode gives them to AOTAutograd: sizes are numbers, those of a view's base too."""
        with torch._C.DisableTorchFunctionSubclass():  # a class of the program's is not asked
            wanted = [
                value
                for value in inputs
                if isinstance(value, torch.Tensor) and (self.backend.is_torchs or value._is_view())
            ]
        return [fake_mode.from_tensor(value, static_shapes=True) for value in wanted]

    def _describe(
        self, gm: Any, inputs: list[Any], sources: list[tuple[str, bool]], compile_id: CompileId, name: str
    ) -> None:
        """What AOTAutograd and Inductor read of a graph beside its nodes."""
        placeholders = gm.graph.find_nodes(op="placeholder")
        met: collections.Counter[str] = collections.Counter()
        set_new = object.__setattr__  # a Node looks itself up in its graph at each attribute that is set
        for node, value, (text, is_state) in zip(placeholders, inputs, sources, strict=True):
            met[text] += 1  # behind a break, variables of several frames may have one name
            set_new(node, "_dynamo_source", InputSource(text if met[text] == 1 else f"{text} ({met[text]})"))
            # Its address rarely changes: CUDA graphs record again when it does, instead of copying it every time. No guard of ours
            # is about addresses, and a graph serves several modules: so never "guarded", whatever the tensor says.
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
        # Caches of compiled graphs go by attributes too: what was compiled without old_values_saved() is not taken.
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
            # To copy a tensor of a subclass may run code of its class.
            verifies = config.is_set("verify_correctness") and not any(
                torch._subclasses.fake_tensor.is_fake(value) or _is_of_a_subclass(value) for value in inputs
            )
            expected = _results(copy.deepcopy(gm).forward, inputs) if verifies else None
            with _warnings_held() if self.backend.is_torchs else contextlib.nullcontext():
                unseen = written_unseen(gm, inputs) if self.backend.is_torchs else []
                try:
                    compiled = self.backend.compiler(gm, inputs)
                except Exception as error:
                    if self.backend.is_torchs and came_from_backward(error, gm):
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
                module.real_recompile()  # without the detour over a first call
                compiled = module.forward
            takes_a_list = _takes_a_list(compiled)
            if unseen:
                compiled = _with_versions_kept(compiled, takes_a_list, unseen)
            return compiled, takes_a_list
        except RecursionError:
            raise  # the caller is too deep for a compilation: the call runs as it is
        except Exception as error:
            if self._asks_to_skip(error):
                return None
            if self.backend.is_torchs and _is_refusal(error):
                self._tell_refused(name, error)
                return None
            where = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
            failed = backend_failed(self.backend.name, name, where, error)
            if not config.is_set("suppress_errors"):
                raise failed.with_traceback(error.__traceback__) from None
            logs.log.warning("%s\nThe graph runs as it was recorded.", failed)
            return None

    def _gives_back(self, gm: Any, is_as_exported: Callable[[Any], bool], inputs: list[Any]) -> bool:
        """Whether a backend that is not torch's leaves a graph with nodes that no compiler may get to see as it is: then it gets
        the whole of it, and the recorded program runs. One that did not do so once is not asked again."""
        if self.backend.is_torchs or self.looks_inside or config.is_set("verify_correctness"):
            return False
        if any(isinstance(value, torch.Generator) for value in inputs):
            return False  # it might run the graph, and move it
        assert self.backend.compiler is not None
        try:
            module = _module_of(self.backend.compiler(gm, inputs))
            if module is gm and is_as_exported(gm) and not _wants_code():
                return True
        except RecursionError:
            raise
        except Exception:
            pass  # of a piece it says so again
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
    def _tell_left(name: str, compiler: str, why: str) -> None:
        logs.log.warning("%s runs as it was recorded, not through %s: %s", name, compiler, why)

    def _tell_refused(self, name: str, error: Exception) -> None:
        self._tell_left(name, self.backend.name, (str(error).splitlines() or [type(error).__name__])[0])

    @staticmethod
    def _asks_to_skip(error: Exception) -> bool:
        exc: Any = sys.modules.get("torch._dynamo.exc")
        return exc is not None and isinstance(error, exc.SkipFrame)
