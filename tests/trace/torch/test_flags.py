"""Flags of torch that are the process's, read and set by the program: they decide which kernels run."""

from __future__ import annotations

import contextlib

import torch
import torch._inductor.config
import torch.nn.functional as F
from harness import T, program
from torch.nn.attention import SDPBackend, sdpa_kernel
from trace_support import in_child

import alternator


def flags() -> tuple[object, ...]:
    core = torch._C
    return (
        core._get_flash_sdp_enabled(), core._get_mem_efficient_sdp_enabled(), core._get_math_sdp_enabled(),
        core._get_cudnn_sdp_enabled(), core._get_overrideable_sdp_enabled(), core._get_sdp_priority_order(),
        torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_float32_matmul_precision(), core._get_fp32_precision_getter("cuda", "matmul"),
        core._get_fp32_precision_getter("mkldnn", "matmul"), core._get_cudnn_enabled(), core._get_cudnn_benchmark(),
        core._get_cudnn_deterministic(), core._get_cudnn_allow_tf32(), core._get_mkldnn_enabled(),
        core._get_cublas_allow_fp16_reduced_precision_reduction(),
    )  # fmt: skip


def restore(t) -> None:
    before = alternator._C.fake.Flags.now()
    t.undo(before.apply)


def heads(s: int = 0, rg: bool = False) -> torch.Tensor:
    # Not contiguous: the strides of the result tell which implementation has run.
    return T(1, 3, 2, 4, s=s, rg=rg).transpose(1, 2)


@program(graphs=1)
def test_an_implementation_of_attention_is_chosen(t):
    def fn(q):
        with sdpa_kernel(SDPBackend.MATH):
            one = F.scaled_dot_product_attention(q, q, q)
        two = F.scaled_dot_product_attention(q, q, q)
        return one, one.stride(), two, two.stride(), torch.backends.cuda.flash_sdp_enabled()

    restore(t)
    f = t.compile(fn)
    f(heads())
    t.note(flags())
    f.hit(heads(1))
    t.note(flags())


@program()
def test_what_is_chosen_outside_is_a_guard(t):
    f = t.compile(lambda q: (F.scaled_dot_product_attention(q, q, q) * 2).stride())
    restore(t)
    f(heads())
    with sdpa_kernel(SDPBackend.MATH):
        f(heads())
        f.hit(heads())
    f.hit(heads())


@program(graphs=1)
def test_an_order_of_implementations(t):
    def fn(q):
        with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
            one = F.scaled_dot_product_attention(q, q, q)
            order = torch._C._get_sdp_priority_order()
        return one, one.stride(), order, torch._C._get_sdp_priority_order()

    restore(t)
    f = t.compile(fn)
    f(heads())
    f.hit(heads(1))
    t.note(flags())


@program()
def test_gradients(t):
    def fn(q):
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, q, q).sum()

    f = t.compile(fn)
    for s in range(2):
        x = T(1, 2, 3, 4, s=s, rg=True)
        f(x).backward()
        t.note(x.grad)


@program()
def test_flags_stay_as_the_call_leaves_them(t):
    def fn(x, mode):
        torch.use_deterministic_algorithms(mode, warn_only=True)
        torch.backends.cuda.enable_flash_sdp(not mode)
        return x + torch.are_deterministic_algorithms_enabled()

    restore(t)
    f = t.compile(fn)
    f(T(3), True)
    t.note(flags())
    f(T(3), True)
    f.hit(T(3), True)
    f(T(3), False)
    t.note(flags())


@program()
def test_a_deterministic_part(t):
    def fn(x, index):
        torch.use_deterministic_algorithms(True)
        y = x.clone().index_add_(0, index, x)
        torch.use_deterministic_algorithms(False)
        return y * 2

    restore(t)
    f = t.compile(fn)
    index = torch.tensor([0, 0, 2])
    f(T(3), index)
    f.hit(T(3, s=1), index)
    t.note(flags())


@program()
def test_the_precision_of_products(t):
    def fn(x, precision):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        y = x @ x
        now = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(before)
        return y, before, now

    restore(t)
    f = t.compile(fn)
    for precision in ("high", "highest", "high"):
        f(T(3, 3), precision)
        t.note(flags())
    torch.set_float32_matmul_precision("high")
    f(T(3, 3), "high")
    t.note(flags())


@program()
def test_an_error_between(t):
    def fn(x, good):
        try:
            with sdpa_kernel(SDPBackend.MATH):
                if not good:
                    raise ValueError("no")
                y = F.scaled_dot_product_attention(x, x, x)
        except ValueError:
            y = x * 2
        return y, torch.backends.cuda.flash_sdp_enabled()

    restore(t)
    f = t.compile(fn)
    f(T(1, 2, 3, 4), True)
    f(T(1, 2, 3, 4), False)
    t.note(flags())


@program(one_graph=False)
def test_a_break_between(t):
    def fn(q):
        with sdpa_kernel(SDPBackend.MATH):
            one = F.scaled_dot_product_attention(q, q, q)
            torch._dynamo.graph_break()
            two = F.scaled_dot_product_attention(one, q, q)
        return two, one.stride(), two.stride(), torch.backends.cuda.flash_sdp_enabled()

    restore(t)
    f = t.compile(fn)
    f(heads())
    f.hit(heads(1))
    t.note(flags())


@program()
def test_cudnn_and_mkldnn(t):
    def fn(x):
        with torch.backends.cudnn.flags(enabled=False):
            y = x * 2 + torch.backends.cudnn.enabled
        torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
        return y, torch.backends.cudnn.benchmark

    restore(t)
    f = t.compile(fn)
    f(T(3))
    t.note(flags())
    f(T(3))
    t.note(flags())
    torch.backends.cudnn.enabled = False
    f(T(3))
    t.note(flags())


@program()
def test_a_setting_that_a_module_keeps_elsewhere(t):
    settings = torch._inductor.config

    def fn(x, value):
        settings.deterministic = value
        return x + 1

    before = settings.deterministic
    t.undo(lambda: setattr(settings, "deterministic", before))
    f = t.compile(fn)
    for value in (True, False, True):
        f(T(3), value)
        t.note((settings.deterministic, "deterministic" in vars(settings)))
    settings.deterministic = False
    t.note(settings.deterministic)


@program(one_graph=False)
def test_flags_in_parts_of_a_graph(t):
    def fn(x):
        def yes(y):
            with sdpa_kernel(SDPBackend.MATH):
                return F.scaled_dot_product_attention(y, y, y)

        return torch.cond(x.sum() > 0, yes, lambda y: y + 1, (x,))

    restore(t)
    f = t.compile(fn)
    with contextlib.suppress(RuntimeError), torch.no_grad():
        f(T(1, 2, 3, 4).abs())
    t.note(flags())


@program()
def test_wrong_values(t):
    def fn(x, value):
        try:
            torch._C._set_sdp_use_math(value)
        except TypeError as error:
            return x + len(str(error)) * 0
        return x - 1

    restore(t)
    f = t.compile(fn)
    f(T(3), "no")
    f(T(3), True)


@in_child
def test_backends(_):
    """Which attention runs is settled when the graph is compiled; kernels that ask when they run are cut apart."""

    def attend(q):
        with sdpa_kernel(SDPBackend.MATH):
            y = F.scaled_dot_product_attention(q, q, q)
        return F.scaled_dot_product_attention(y, q, q)

    def exact(x):
        torch.use_deterministic_algorithms(True)
        y = x.sin()
        torch.use_deterministic_algorithms(False)
        return y.cos()

    before = flags()
    for backend in ("aot_eager", "inductor"):
        alternator.reset()
        x = T(1, 2, 3, 4)
        compiled = alternator.compile(attend, backend=backend, fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), attend(x))
        wanted, got = T(1, 2, 3, 4, rg=True), T(1, 2, 3, 4, rg=True)
        attend(wanted).sum().backward()
        compiled(got).sum().backward()
        torch.testing.assert_close(got.grad, wanted.grad)
        compiled = alternator.compile(exact, backend=backend, fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), exact(x))
        assert flags() == before
    seen: list[list[str]] = []

    def backend(module, inputs):
        def run(*given):
            seen.append([str(torch.are_deterministic_algorithms_enabled())])
            return module(*given)

        calls = [node.name for node in module.graph.nodes if node.op.startswith("call")]
        seen.append([f"compiled {torch.are_deterministic_algorithms_enabled()}", *calls])
        return run

    alternator.reset()
    compiled = alternator.compile(exact, backend=backend, fullgraph=True)
    compiled(T(3))
    assert flags() == before
    # It makes something else of the graph than it was given: so it gets the segments.
    assert seen[0][0] == "compiled False" and {"sin", "cos"} < set(seen[0])
    assert seen[1:] == [["compiled True", "sin"], ["compiled False", "cos"], ["True"], ["False"]]


@in_child
def test_a_failing_graph_puts_flags_back(_):
    def fn(x, index):
        with sdpa_kernel(SDPBackend.MATH):
            return x[index] + 1

    compiled = alternator.compile(fn, backend="eager", fullgraph=True)
    compiled(T(3), torch.tensor([1]))
    before = flags()
    try:
        compiled(T(3), torch.tensor([7]))
    except IndexError:
        pass
    else:
        raise AssertionError("an index that does not exist")
    assert flags() == before
