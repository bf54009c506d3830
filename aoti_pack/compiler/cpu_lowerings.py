"""Where inductor's way of lowering an operator to C++ kernels is not the one for a server on CPUs.

Look-ups by index keep ATen's bounds check, which fails the run and not the process. Inductor checks an index
inside an OpenMP region of its kernels, which no exception can leave: one request with an id past its table would
end the whole server. ATen checks where the exception can be caught. It is no slower: inductor reads look-ups
element by element, and with them the arithmetic that it fuses in.

A division of integers by zero is ATen's too: compiled, it is a signal that ends the server; ATen throws.

A float32 `addmm` becomes `mm` and an addition that fuses into what follows. The library call would first copy
the bias into every row of the result, a pass over memory that the fused addition does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def cpu_lowerings(device: str) -> Iterator[None]:
    """While this holds, inductor lowers for `device` as described above; on other devices nothing changes."""
    if device != "cpu":
        yield
        return
    from torch._inductor.lowering import lowerings

    ours = _replacements()
    before = {op: lowerings.get(op) for op in ours}
    lowerings.update(ours)
    try:
        yield
    finally:
        for op, lowering in before.items():
            if lowering is None:
                del lowerings[op]
            else:
                lowerings[op] = lowering


def _replacements() -> dict[Any, Callable[..., Any]]:
    import torch
    from torch._inductor.lowering import fallback_handler, lowerings

    aten = torch.ops.aten

    def by_aten(op: Any) -> Callable[..., Any]:
        handler: Callable[..., Any] = fallback_handler(op, add_to_fallback_set=False)  # type: ignore[no-untyped-call]
        return handler

    addmm = lowerings[aten.addmm.default]

    def whole_by_aten(op: Any) -> Callable[..., Any]:
        inductors, atens = lowerings[op], by_aten(op)

        def divide(a: Any, b: Any, **options: Any) -> Any:
            operands = [x for x in (a, b) if hasattr(x, "get_dtype")]
            integer = all(not x.get_dtype().is_floating_point for x in operands)
            return (atens if integer and len(operands) == 2 else inductors)(a, b, **options)

        return divide

    def bias_after(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1, **options: Any) -> Any:
        # In narrower types the sum would be rounded once more than eager rounds it.
        if a.get_dtype() != torch.float32 or (beta, alpha) != (1, 1) or options:
            return addmm(bias, a, b, beta=beta, alpha=alpha, **options)
        return lowerings[aten.add.Tensor](lowerings[aten.mm.default](a, b), bias)

    # Inductor turns some of these into their in-place forms before it lowers them.
    indexed = (
        aten.embedding.default,
        aten.index.Tensor,
        aten.gather.default,
        aten.index_put.default,
        aten.index_put_.default,
        aten.scatter.src,
        aten.scatter_.src,
        aten.scatter.value,
        aten.scatter_.value,
        aten.scatter.reduce,
        aten.scatter_.reduce,
        aten.scatter.value_reduce,
        aten.scatter_.value_reduce,
        aten.scatter_add.default,
        aten.scatter_add_.default,
        aten.scatter_reduce.two,
        aten.scatter_reduce_.two,
    )
    divided = (aten.div.Tensor_mode, aten.fmod.Tensor, aten.remainder.Tensor)
    return {
        aten.addmm.default: bias_after,
        **{op: by_aten(op) for op in indexed},
        **{op: whole_by_aten(op) for op in divided if op in lowerings},
    }
