"""Hands a graph to its backend, in the form that backends know from TorchDynamo."""

from __future__ import annotations

import collections
import contextlib
import copy
import inspect
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, Protocol, cast

import torch
import torch.fx.experimental._config
from torch._guards import CompileContext, GuardSource, Source, TracingContext, compile_context, tracing

from . import config, events, logs
from ._load import load_core
from .backends import Backend
from .backwards import Refused, came_from_backward, impure_backwards, old_values_saved, written_through_data
from .compile_scopes import (
    compile_lock_held,
    differentiable_lstm,
    forget_tensors,
    is_refusal,
    state_kept,
    uses_cuda,
    warnings_held,
    with_versions_kept,
)
from .events import Graph, Listener
from .exc import backend_failed
from .graph_module import GraphModule
from .pieces import InPieces, needs_examples


class GraphFacts(Protocol):
    """csrc/backend/graph_facts.h"""

    aot_incompatible: str | None
    has_runtime_asserts: bool
    takes_subclass: bool
    takes_numpy_scalar: bool
    takes_generator: bool


class GraphRequest(Protocol):
    """csrc/backend/graph_request.h"""

    export: Callable[..., Any]
    is_as_exported: Callable[[Any], bool]
    inputs: list[Any]
    sources: list[tuple[str, bool]]
    code: CodeType
    shape_env: Any
    runner: str
    reason: str | None
    facts: GraphFacts


# A callable that runs the graph, and whether it takes a list; None: the recorded program itself. (NotImplemented: see takes_numpy_scalars.)
Answer = tuple[Callable[..., Any], bool] | None

_graph_numbers = itertools.count()
_thread_kept = load_core().fake.ThreadKept()


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


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_subclass(value: Any) -> bool:
    """Whether it is of a tensor subclass other than Parameter, which may override anything that FakeTensorMode reads."""
    bases = type(value).__mro__
    return torch.Tensor in bases[1:] and torch.nn.Parameter not in bases


_WRITE_LAST = {"aot_eager", "aot_eager_decomp_partition", "aot_eager_default_partitioner"}


class Handoff:
    """The core calls it with each new graph; see csrc/backend/handoff.h."""

    def __init__(self, backend: Backend, listener: Listener, shared: object = None) -> None:
        self.backend = backend
        self.listener = listener
        self.shared = shared  # the shared cache: kept alive by its users
        self.looks_inside = False  # whether the backend transforms graphs: see _gives_back

    def __call__(self, request: GraphRequest) -> Answer:
        self.listener.check_recompile()
        name = f"__compiled_fn_{next(_graph_numbers)}"
        if request.reason is not None and self.backend.is_torch_backend:
            self._report_uncompiled(name, self.backend.name, request.reason)
        if request.runner == "recorded" and not request.facts.has_runtime_asserts and not events.wants_graphs():
            return None
        with _thread_kept, contextlib.ExitStack() as stack:
            stack.enter_context(state_kept())
            if self.backend.is_torch_backend:
                stack.enter_context(compile_lock_held())
                stack.enter_context(differentiable_lstm())
                stack.enter_context(old_values_saved())
            stack.enter_context(compile_context(CompileContext(self.listener.compile_id())))
            return self._run(request, name, stack)

    def _run(self, request: GraphRequest, name: str, stack: contextlib.ExitStack) -> Answer:
        facts, inputs = request.facts, request.inputs
        asserts, compiles = facts.has_runtime_asserts, request.runner != "recorded"
        began = time.perf_counter()
        fake_mode = None if facts.takes_subclass and not asserts else self._fake_mode(request.shape_env, asserts)
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
                    compiles = False
                else:
                    fake_mode = None  # a user callable does without examples
        context = TracingContext(fake_mode)
        if fake_mode is not None or facts.aot_incompatible is not None:
            stack.enter_context(tracing(context))
        gm = request.export(fake_mode)
        if request.runner == "compiled in segments" and fake_mode is None and needs_examples(gm):
            fake_mode = self._fake_mode(request.shape_env, needed=True)
            gm = request.export(fake_mode)
        if compiles and self.backend.is_torch_backend and any(map(_requires_grad, inputs)):
            impure = impure_backwards(gm)
            if impure:
                compiles = False
                why = f"{impure[0].__qualname__}.backward reads or writes more than its arguments"
                self._report_uncompiled(name, self.backend.name, why)
        if asserts:
            self._insert_asserts(gm, request.shape_env, name)
        self._describe(gm, inputs, request.sources, name)
        graph = self.listener.graph(
            name=name,
            backend=self.backend.name,
            module=gm,
            code=request.code,
            inputs=tuple(text for text, _ in request.sources),
            seconds={"export": time.perf_counter() - began},
        )
        if not compiles:
            return self._with_asserts(gm) if asserts else None
        with self._timed(graph), logs.progress(graph):
            answer = self._compile_request(request, gm, fake_mode, name)
        static.clear()
        forget_tensors(fake_mode)
        if (
            facts.aot_incompatible is not None
            and not asserts
            and answer is not None
            and context.fw_metadata is not None
        ):
            self._report_uncompiled(name, "AOTAutograd", facts.aot_incompatible)  # a user callable that uses it
            return None
        return answer

    def _compile_request(self, request: GraphRequest, gm: Any, fake_mode: Any, name: str) -> Answer:
        if request.runner == "compiled":
            answer = self._compile(gm, request.is_as_exported, request.inputs, name, request.code)
            if answer is not None or not request.facts.has_runtime_asserts:
                return answer
            # The backend may have changed the module; the runtime assertions are still needed.
            gm = request.export(fake_mode)
            self._insert_asserts(gm, request.shape_env, name)
            return self._with_asserts(gm)
        if self._gives_back(gm, request):
            return None
        if request.facts.takes_numpy_scalar:
            return cast(Answer, NotImplemented)  # the core then traces again with them as constants
        if self.looks_inside:  # the backend may have changed the module
            gm = request.export(fake_mode)
            self._describe(gm, request.inputs, request.sources, name)
        return self._compile_pieces(gm, request, fake_mode, name)

    @staticmethod
    def _with_asserts(gm: Any) -> Answer:
        """The exported graph, uncompiled: the recorded program has no runtime assertions."""
        gm.recompile()
        return gm.forward, False

    @property
    def traits(self) -> tuple[bool, bool, bool, bool]:
        """BackendTraits in csrc/backend/choose_runner.h: whether it compiles, is a torch backend, takes whole graphs, and writes to
        inputs last (Inductor's kernels write at any time)."""
        compiler, is_torch = self.backend.compiler, self.backend.is_torch_backend
        whole = bool(getattr(compiler, "whole_graphs", False))
        return compiler is not None, is_torch, whole, is_torch and self.backend.name in _WRITE_LAST

    @property
    def takes_numpy_scalars(self) -> bool:
        """Whether graphs may have numpy scalar inputs: only if the graph runs uncompiled. For a compiler they are constants. A backend
        that turns out to be a compiler answers NotImplemented for the first graph with such inputs."""
        whole = getattr(self.backend.compiler, "whole_graphs", False)
        return not (self.backend.is_torch_backend or self.looks_inside or whole or config.is_set("verify_correctness"))

    @property
    def begin_step(self) -> Callable[[], None] | None:
        """A function to call before each outermost call: CUDA graphs then may overwrite the outputs of the previous one. The core
        reads it after each compilation."""
        return _begin_step if self.backend.is_torch_backend and uses_cuda() else None

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

    def _describe(self, gm: Any, inputs: Sequence[Any], sources: Sequence[tuple[str, bool]], name: str) -> None:
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
        gm.meta["dynamo_compile_id"] = self.listener.compile_id()
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
            with warnings_held() if self.backend.is_torch_backend else contextlib.nullcontext():
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
                compiled = with_versions_kept(compiled, takes_a_list, through_data)
            return compiled, takes_a_list
        except RecursionError:
            raise  # the C stack is too deep for a compilation: the call falls back to eager
        except Exception as error:
            if self._asks_to_skip(error):
                return None
            if self.backend.is_torch_backend and is_refusal(error):
                self._report_refused(name, error)
                return None
            where = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
            failed = backend_failed(self.backend.name, name, where, error)
            if not config.is_set("suppress_errors"):
                raise failed.with_traceback(error.__traceback__) from None
            logs.log.warning("%s\nThe graph runs the recorded program, uncompiled.", failed)
            return None

    def _gives_back(self, gm: Any, request: GraphRequest) -> bool:
        """Whether a third-party backend returns a graph with separate segments unchanged: then it gets the whole graph, and the
        recorded program runs. A backend that transformed one is not tried again."""
        if self.backend.is_torch_backend or self.looks_inside or config.is_set("verify_correctness"):
            return False
        if request.facts.takes_generator:
            return False  # the backend might run the graph, and advance the generator
        assert self.backend.compiler is not None
        try:
            module = _module_of(self.backend.compiler(gm, request.inputs))
            if module is gm and request.is_as_exported(gm) and not _wants_code():
                return True
        except RecursionError:
            raise
        except Exception:
            pass  # it raises again for a piece
        self.looks_inside = True
        return False

    def _compile_pieces(self, gm: Any, request: GraphRequest, fake_mode: Any, name: str) -> Answer:
        known = dict(zip(gm.graph.find_nodes(op="placeholder"), request.sources, strict=True))
        numbers = itertools.count()

        def compile_piece(piece: Any, examples: list[Any], origins: list[Any]) -> Callable[..., Any]:
            piece_name = f"{name}_{next(numbers)}"
            origin_texts = [known.get(node, (f"{piece_name}:{node.name}", False)) for node in origins]
            self._describe(piece, examples, origin_texts, piece_name)
            with tracing(TracingContext(fake_mode)):
                answer = self._compile(piece, lambda _: False, examples, piece_name, request.code)
            if answer is None:
                forward: Callable[..., Any] = piece.forward
                return forward
            call, takes_a_list = answer
            return (lambda *given: call(list(given))) if takes_a_list else call

        return InPieces(gm, request.inputs, fake_mode, compile_piece), False

    @staticmethod
    def _report_uncompiled(name: str, compiler: str, why: str) -> None:
        logs.log.warning("%s runs the recorded program, not through %s: %s", name, compiler, why)

    def _report_refused(self, name: str, error: Exception) -> None:
        self._report_uncompiled(name, self.backend.name, (str(error).splitlines() or [type(error).__name__])[0])

    @staticmethod
    def _asks_to_skip(error: Exception) -> bool:
        exc: Any = sys.modules.get("torch._dynamo.exc")
        return exc is not None and isinstance(error, exc.SkipFrame)
