"""Hands a graph to its backend, in the form that backends know from TorchDynamo.

Who runs the graph is decided from the graph by the core (csrc/backend/choose_runner.h). What only the backend's own answer can tell
arrives here as an Uncompiled, in one place; either way the listener reports who runs it, and why.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch._guards import CompileContext, TracingContext, compile_context, tracing

from . import backward_purity as backward_purity  # the core calls it: csrc/backend/aot_compatibility.cpp
from . import config, events, logs
from ._load import load_core
from .backends import Backend
from .compile_scopes import (
    backward_compiled_early,
    compile_lock_held,
    differentiable_lstm,
    forget_tensors,
    state_kept,
    uses_cuda,
    warnings_held,
)
from .compiled_callable import module_of, results_of, takes_a_list, wants_code
from .events import Graph, Listener
from .example_values import check_floats, examples_of, fake_mode_for, plain_numbers, symbolic_examples_of
from .exc import backend_failed
from .graph_metadata import describe
from .graph_request import GraphRequest
from .refusals import NeedsStatic, Uncompiled, asks_to_skip, came_from_backward, first_line, is_refusal, needs_static
from .saved_values import old_values_saved, with_versions_kept, written_through_data
from .segments import InSegments, needs_examples

Compiled = tuple[Callable[..., Any], bool]  # a callable that runs the graph, and whether it takes a list
Conditional = tuple[
    Callable[..., Any], bool, list[tuple[Any, str]]
]  # ... and the conditions on symbols under which it may be called, each with what has assumed it
# None: the recorded program itself. A list: these symbols must be constants. (NotImplemented: see takes_numpy_scalars.)
Answer = Compiled | Conditional | list[int] | None

_graph_numbers = itertools.count()
_thread_kept = load_core().fake.ThreadKept()


def _begin_step() -> None:
    from torch._dynamo.mutation_guard import GenerationTracker

    GenerationTracker.generation += 1


def _is_subclass(value: Any) -> bool:
    """Whether it is of a tensor subclass other than Parameter, which may override anything that FakeTensorMode reads."""
    bases = type(value).__mro__
    return torch.Tensor in bases[1:] and torch.nn.Parameter not in bases


def _insert_asserts(gm: Any, shape_env: Any, name: str) -> None:
    """torch's symbolic shapes rely on facts about unbacked symbols: each run checks them."""
    from torch.fx.passes.runtime_assert import insert_deferred_runtime_asserts

    insert_deferred_runtime_asserts(gm, shape_env, name)


_EXACT_FLOATS = {"aot_eager", "aot_eager_decomp_partition", "aot_eager_default_partitioner"}
_WRITE_LAST = {"aot_eager", "aot_eager_decomp_partition", "aot_eager_default_partitioner"}


class Handoff:
    """The core calls it with each new graph; see csrc/backend/handoff.h."""

    def __init__(self, backend: Backend, listener: Listener, shared: object = None, shapes_spec: object = None) -> None:
        self.backend = backend
        self.listener = listener
        self.shared = shared  # the shared cache: kept alive by its users
        self.shapes_spec = shapes_spec  # a shapes_spec.Specification: csrc/dispatch/shape_specs.h
        self.looks_inside = False  # whether the backend transforms graphs: see _check_whole

    def __call__(self, request: GraphRequest) -> Answer:
        self.listener.check_recompile()
        name = f"__compiled_fn_{next(_graph_numbers)}"
        if request.runner == "recorded" and not request.facts.has_runtime_asserts and not events.wants_graphs():
            if request.reason is not None:
                self._report(name, "recorded", Uncompiled(request.reason))
            return None
        with _thread_kept, contextlib.ExitStack() as stack:
            stack.enter_context(state_kept())
            if self.backend.is_torch_backend:
                stack.enter_context(compile_lock_held())
                stack.enter_context(differentiable_lstm())
                stack.enter_context(old_values_saved())
            stack.enter_context(compile_context(CompileContext(self.listener.compile_id())))
            try:
                return self._run(request, name, stack)
            except NeedsStatic as outcome:
                self._report_static(request, name, outcome)
                return outcome.symbols

    def _run(self, request: GraphRequest, name: str, stack: contextlib.ExitStack) -> Answer:
        began = time.perf_counter()
        symbolic = symbolic_examples_of(request) if request.symbols else None
        if symbolic is None:
            fake_mode, static, refusal = examples_of(self.backend, request)
            examples = None
        else:
            fake_mode, static, refusal, examples = symbolic.mode, [], None, symbolic.examples
            stack.enter_context(backward_compiled_early())
        stack.callback(lambda: forget_tensors(fake_mode))
        stack.callback(static.clear)
        context = TracingContext(fake_mode)
        if symbolic is not None:
            symbolic.register(context)
        if fake_mode is not None or request.facts.aot_incompatible is not None:
            stack.enter_context(tracing(context))
        gm = request.export(fake_mode, None, examples)
        if symbolic is not None:
            symbolic.adopt(gm)
        if request.runner == "compiled in segments" and fake_mode is None and needs_examples(gm):
            fake_mode = fake_mode_for(self.backend, request.shape_env, needed=True)
            gm = request.export(fake_mode)
        if request.facts.has_runtime_asserts:
            _insert_asserts(gm, request.shape_env, name)
        self._describe(gm, request, name)
        graph = self.listener.graph(
            name=name,
            backend=self.backend.name,
            module=gm,
            code=request.code,
            inputs=tuple(text for text, _ in request.sources),
            seconds={"export": time.perf_counter() - began},
        )
        try:
            if request.runner == "recorded":
                raise Uncompiled(request.reason or "the backend compiles nothing", warns=request.reason is not None)
            if refusal is not None:
                raise Uncompiled(refusal)
            with self._timed(graph), logs.progress(graph):
                answer = self._compile_request(request, gm, fake_mode, name, symbolic)
            if request.facts.aot_incompatible is not None and context.fw_metadata is not None:
                raise Uncompiled(request.facts.aot_incompatible, compiler="AOTAutograd")  # a user callable uses it
        except Uncompiled as outcome:
            self._report(name, "recorded", outcome)
            return self._recorded(request, gm, fake_mode, name)
        if answer is NotImplemented:
            return cast(Answer, NotImplemented)
        conditions = self._conditions(symbolic, name) if symbolic is not None else None
        self._report(name, request.runner)
        return answer if conditions is None else (*answer, conditions)

    def _conditions(self, symbolic: Any, graph: str) -> list[tuple[Any, str]]:
        assumptions = symbolic.assumptions()
        for assumption in assumptions:
            self.listener.assumed(
                graph=graph, compiler=self.backend.name, condition=assumption.text, where=assumption.where
            )
        return [(one.condition, f"{self.backend.name} {one.where}".rstrip()) for one in assumptions]

    def _report_static(self, request: GraphRequest, graph: str, outcome: NeedsStatic) -> None:
        texts = tuple(dict.fromkeys(request.symbols[number][1] for number in outcome.symbols))
        self.listener.specialized(graph=graph, compiler=self.backend.name, symbols=texts, reason=str(outcome))

    def _report(self, graph: str, runner: str, outcome: Uncompiled | None = None, segment: str | None = None) -> None:
        self.listener.runs(
            graph=graph,
            segment=segment,
            runner=runner,
            compiler=(outcome and outcome.compiler) or self.backend.name,
            reason=outcome and outcome.reason,
            warns=outcome is not None and outcome.warns,
        )

    def _recorded(self, request: GraphRequest, gm: Any, fake_mode: Any, name: str) -> Answer:
        """The recorded program. It has no runtime assertions: where some are needed, the exported graph, uncompiled."""
        if not request.facts.has_runtime_asserts:
            return None
        if request.runner != "recorded":  # the backend may have changed the module
            gm = request.export(fake_mode)
            _insert_asserts(gm, request.shape_env, name)
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
        except Uncompiled:
            raise
        except BaseException as error:
            failure = error
            raise
        finally:
            self.listener.compiled(graph, began, time.perf_counter() - clock, failure)

    def _describe(self, gm: Any, request: GraphRequest, name: str) -> None:
        describe(gm, request.inputs, request.sources, name, self.listener.compile_id())

    # ---- compiling: raises Uncompiled where the recorded program runs

    def _compile_request(self, request: GraphRequest, gm: Any, fake_mode: Any, name: str, symbolic: Any) -> Compiled:
        inputs = request.inputs if symbolic is None else symbolic.given
        if request.runner == "compiled":
            return self._compile(request, gm, inputs, name, request.is_as_exported)
        self._check_whole(gm, request, inputs)
        if request.facts.takes_numpy_scalar:
            return cast(Compiled, NotImplemented)  # the core then traces again with them as constants
        if self.looks_inside:  # the backend may have changed the module
            gm = request.export(fake_mode, None, symbolic and symbolic.examples)
            self._describe(gm, request, name)
        return self._compile_segments(gm, request, fake_mode, name, symbolic)

    def _compile(
        self,
        request: GraphRequest,
        gm: Any,
        inputs: list[Any],
        name: str,
        is_as_exported: Callable[[Any], bool],
    ) -> Compiled:
        try:
            return self._call_compiler(request, gm, inputs, is_as_exported)
        except RecursionError:
            raise  # the C stack is too deep for a compilation: the call falls back to eager
        except Exception as error:
            raise self._outcome_of(error, name, request) from None

    def _call_compiler(
        self, request: GraphRequest, gm: Any, inputs: list[Any], is_as_exported: Callable[[Any], bool]
    ) -> Compiled:
        is_torch_backend = self.backend.is_torch_backend
        assert self.backend.compiler is not None
        if request.symbols and is_torch_backend and self.backend.name not in _EXACT_FLOATS:
            check_floats(request)
        real = plain_numbers(inputs)
        # Copying a tensor subclass may run user code.
        verifies = config.is_set("verify_correctness") and not any(
            torch._subclasses.fake_tensor.is_fake(value) or _is_subclass(value) for value in inputs
        )
        expected = results_of(copy.deepcopy(gm).forward, real) if verifies else None
        with warnings_held() if is_torch_backend else contextlib.nullcontext():
            through_data = written_through_data(gm, real) if is_torch_backend else []
            try:
                compiled = self.backend.compiler(gm, inputs)
            except Exception as error:
                if is_torch_backend and came_from_backward(error, request.autograd_functions):
                    raise Uncompiled(f"a backward() raises {type(error).__name__}: {error}") from error
                raise
        if not callable(compiled):
            raise TypeError(f"a backend must return a callable, not {compiled!r}")
        if expected is not None:
            torch.testing.assert_close(results_of(compiled, real), expected, equal_nan=True)
        module = module_of(compiled)
        if module is not None:
            if module._needs_recompile() and is_as_exported(module) and not wants_code():
                # The recorded program does the same, and no code has to be generated.
                raise Uncompiled("the backend returned it unchanged", warns=False)
            module.real_recompile()  # now, not in the first call
            compiled = module.forward
        boxed = takes_a_list(compiled)
        if through_data:
            compiled = with_versions_kept(compiled, boxed, through_data)
        return compiled, boxed

    def _outcome_of(self, error: Exception, name: str, request: GraphRequest) -> Exception:
        """What an exception of a compilation means: an Uncompiled, a NeedsStatic, or an error of the call."""
        if isinstance(error, (Uncompiled, NeedsStatic)):
            return error
        if asks_to_skip(error):
            return Uncompiled("the backend asks to skip it", warns=False)
        if self.backend.is_torch_backend and request.symbols and (static := needs_static(error, request.symbols)):
            return static
        if self.backend.is_torch_backend and is_refusal(error):
            return Uncompiled(first_line(error))
        code = request.code
        where = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
        if config.is_set("suppress_errors"):
            return Uncompiled(
                f"it raised {type(error).__name__} while it compiled the graph, made from {where}: {error}"
            )
        return backend_failed(self.backend.name, name, where, error).with_traceback(error.__traceback__)

    def _check_whole(self, gm: Any, request: GraphRequest, inputs: list[Any]) -> None:
        """A third-party backend gets a graph with separate segments as a whole first: if it returns that unchanged, the recorded program
        runs. A backend that transformed one is not tried again."""
        if self.backend.is_torch_backend or self.looks_inside or config.is_set("verify_correctness"):
            return
        if request.facts.takes_generator:
            return  # the backend might run the graph, and advance the generator
        assert self.backend.compiler is not None
        unchanged = False
        try:
            module = module_of(self.backend.compiler(gm, inputs))
            unchanged = module is gm and request.is_as_exported(gm) and not wants_code()
        except RecursionError:
            raise
        except Exception:
            pass  # it raises again for a segment
        if unchanged:
            raise Uncompiled("the backend returned it unchanged", warns=False)
        self.looks_inside = True

    def _compile_segments(self, gm: Any, request: GraphRequest, fake_mode: Any, name: str, symbolic: Any) -> Compiled:
        known = dict(zip(gm.graph.find_nodes(op="placeholder"), request.sources, strict=True))
        numbers = itertools.count()

        def compile_segment(
            segment: Any, examples: list[Any], origins: list[Any], refusal: str | None
        ) -> Callable[..., Any]:
            segment_name = f"{name}_{next(numbers)}"
            texts = [known.get(node, (f"{segment_name}:{node.name}", False)) for node in origins]
            describe(segment, examples, texts, segment_name, self.listener.compile_id())
            try:
                if refusal is not None:
                    raise Uncompiled(refusal, warns=False)
                context = TracingContext(fake_mode)
                if symbolic is not None:
                    symbolic.register(context)
                with tracing(context):
                    call, boxed = self._compile(request, segment, examples, segment_name, lambda _: False)
            except Uncompiled as outcome:
                self._report(name, "recorded", outcome, segment_name)
                forward: Callable[..., Any] = segment.forward
                return forward
            return (lambda *given: call(list(given))) if boxed else call

        if symbolic is None:
            return InSegments(gm, request.inputs, fake_mode, compile_segment), False
        try:
            return InSegments(gm, symbolic.given, fake_mode, compile_segment, symbolic.examples), False
        except NeedsStatic as outcome:
            raise NeedsStatic(outcome.symbols or range(len(request.symbols)), str(outcome)) from None
