"""A GPU for machines that have none: tensors that say "cuda", compute on the CPU, and refuse what a GPU refuses.

What it is good for: every line that is for a GPU runs, and gives what the CPU gives. Tensors of two devices in one
operation are an error, as is reading a GPU's memory as numpy. What the host has to wait for is written down (`waits`),
and a copy that it does not wait for is late: what comes from the GPU arrives at the next wait, until when the target
holds garbage; what goes there must not be changed before. What it is not good for: speed, memory, and arithmetic in
which a GPU differs.

It stands on tensor subclasses: to PyTorch's C++ a tensor here lies on the CPU, to all that is Python on "cuda:0". That
way autograd works in a PyTorch without CUDA.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.overrides import TorchFunctionMode
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
GPU = torch.device("cuda:0")
# What a GPU's result must be known for before the host can go on: its shape, or its value, depends on values.
WAITING = {
    aten._local_scalar_dense,
    aten.equal,
    aten.is_nonzero,
    aten.nonzero,
    aten.masked_select,
    aten._unique2,
    aten.unique_dim,
    aten.bincount,
}
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}


class OnGpu(Tensor):
    """A tensor that says it lies on a GPU. held: what it computes with."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> OnGpu:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device("cpu"),
            requires_grad=held.requires_grad,
        )

    def __init__(self, held: Tensor) -> None:
        self.held = held

    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    def get_device(self) -> int:
        return 0

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"OnGpu({self.held})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise AssertionError("a tensor of the stand-in was used outside of it")


class StandIn(TorchDispatchMode):
    """Does what is done to tensors, here or there.

    waits: what the host waited for, as (operation, function of the package that was at work).
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[str, str]] = []
        self._pinned: dict[int, Any] = {}  # storages, kept so that no other takes their place
        self._coming: list[tuple[Tensor, Tensor]] = []
        self._going: list[tuple[Tensor, Tensor]] = []
        self._lock = threading.Lock()

    # What the host waits for.

    def wait(self, what: str) -> None:
        self.waits.append((what, _our_function()))
        self.arrive()

    def arrive(self) -> None:
        """All copies under way are done."""
        with self._lock, _disable_current_modes():
            coming, self._coming = self._coming, []
            going, self._going = self._going, []
            for target, values in coming:
                target.copy_(values)
            for source, values in going:
                assert torch.equal(source, values), "memory was changed while it was being copied to the GPU"

    def pin(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._pinned[storage._cdata] = storage
        return tensor

    def is_pinned(self, tensor: Tensor) -> bool:
        return not isinstance(tensor, OnGpu) and tensor.untyped_storage()._cdata in self._pinned

    # What is done to tensors.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        what = func.overloadpacket
        tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        there = [tensor for tensor in tensors if isinstance(tensor, OnGpu)]
        device = kwargs.get("device")
        if what is aten._to_copy and there:
            device = None  # another type, as C++ asks for it on the device it knows; moves come by `fetched`
        is_there = bool(there) if device is None else torch.device(device).type == "cuda"
        if kwargs.get("device") is not None:
            kwargs["device"] = "cpu"
        pinned = kwargs.pop("pin_memory", None)
        if what is aten._to_copy and is_there and not there:
            self._sent(tensors[0], kwargs.pop("non_blocking", False))
        if what is aten.copy_ and isinstance(args[0], OnGpu) != isinstance(args[1], OnGpu):
            return self._copied(args[0], args[1], (args[2:] or (kwargs.get("non_blocking", False),))[0])
        if there:
            self._refuse_two_devices(what, tensors)
            if what in WAITING or (what in INDEXING and _by_mask_or_from_here(args[1])):
                self.wait(what.__name__)
            if what is aten.segment_reduce and not kwargs.get("unsafe", False):
                self.wait(what.__name__)
        out = _done(func, args, kwargs)
        if pinned:
            self.pin(out)
        # In inference mode a view of what was made outside of it is no inference tensor.
        is_view = bool(there) and any(returned.alias_info for returned in func._schema.returns)
        with torch.inference_mode(torch.is_inference_mode_enabled() and not (is_view and not there[0].is_inference())):
            return self._wrapped(out, there, is_there)

    def fetched(self, source: OnGpu, non_blocking: bool) -> Tensor:
        """A copy on the host."""
        assert not non_blocking, "a copy to the host that nothing waits for: copy_ into pinned memory, and an event"
        self.wait("copy to the host")
        with _disable_current_modes():
            return source.held.detach().clone()

    def _sent(self, source: Tensor, non_blocking: bool) -> None:
        """Takes note of a copy to the GPU."""
        if non_blocking and self.is_pinned(source):
            with _disable_current_modes():
                self._going.append((source, source.clone()))
        else:
            self.wait("copy to the GPU")

    def _copied(self, target: Tensor, source: Tensor, non_blocking: bool) -> Tensor:
        if isinstance(target, OnGpu):
            self._sent(source, non_blocking)
            with _disable_current_modes():
                target.held.copy_(source)
        elif non_blocking and self.is_pinned(target):
            assert isinstance(source, OnGpu)
            with _disable_current_modes():
                self._coming.append((target, source.held.to(target.dtype, copy=True)))
                target.fill_(float("nan") if target.is_floating_point() else 77)
        else:
            self.wait("copy to the host")
            assert isinstance(source, OnGpu)
            with _disable_current_modes():
                target.copy_(source.held)
        return target

    @staticmethod
    def _refuse_two_devices(what: Any, tensors: list[Tensor]) -> None:
        here = [tensor for tensor in tensors if not isinstance(tensor, OnGpu) and tensor.dim()]
        if here and what not in INDEXING:
            raise RuntimeError(f"Expected all tensors to be on the same device: {what} got cuda:0 and cpu")

    @staticmethod
    def _wrapped(out: Any, there: list[OnGpu], is_there: bool) -> Any:
        """What came out, on the GPU if it belongs there; what was done in place is the tensor that came in."""
        if not is_there:
            return out
        came_in = {id(tensor.held): tensor for tensor in there}

        def wrapped(each: Any) -> Any:
            if not isinstance(each, Tensor):
                return each
            return came_in[id(each)] if id(each) in came_in else OnGpu(each)

        return tree_map(wrapped, out)


class Moves(TorchFunctionMode):
    """What C++ would not hand on, since to it all tensors lie on the CPU."""

    def __init__(self, stand_in: StandIn) -> None:
        super().__init__()
        self.stand_in = stand_in

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is Tensor.to:
            return self._to(*args, **kwargs)
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu").type == "cuda":
            del kwargs["device"]
            return self._moved(func(*args, **kwargs), GPU, False)
        if func is Tensor.cpu:
            return self._moved(args[0], torch.device("cpu"), False)
        if func is Tensor.cuda:
            return self._moved(args[0], GPU, kwargs.get("non_blocking", False))
        if func is Tensor.pin_memory:
            assert not isinstance(args[0], OnGpu), "cannot pin 'torch.cuda.FloatTensor'"
            return args[0] if self.stand_in.is_pinned(args[0]) else self.stand_in.pin(args[0].clone())
        if func is Tensor.is_pinned:
            return self.stand_in.is_pinned(args[0])
        if func is Tensor.tolist and isinstance(args[0], OnGpu):
            self.stand_in.wait("tolist")
            return args[0].held.tolist()
        if func is Tensor.numpy and isinstance(args[0], OnGpu):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return func(*args, **kwargs)

    def _to(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if args and isinstance(args[0], Tensor):
            other, *rest = args
            args = (other.device, other.dtype, *rest)
        copy = kwargs.pop("copy", False)
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
        if device is not None:
            tensor, before = self._moved(tensor, device, non_blocking), tensor
            copy = copy and tensor is before
        return tensor.clone() if copy else tensor if dtype in (None, tensor.dtype) else tensor.type(dtype)

    def _moved(self, tensor: Tensor, device: torch.device, non_blocking: bool) -> Tensor:
        if isinstance(tensor, OnGpu) == (device.type == "cuda"):
            return tensor
        if isinstance(tensor, OnGpu):
            return self.stand_in.fetched(tensor, non_blocking).requires_grad_(tensor.requires_grad)
        return aten._to_copy(tensor, device=GPU, non_blocking=non_blocking)


class Event:
    """torch.cuda.Event of the one stream there is."""

    stand_in: StandIn

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        self.stand_in.arrive()


def _done(func: Any, args: Any, kwargs: Any) -> Any:
    """The operation itself, on the CPU."""
    args, kwargs = tree_map(lambda each: each.held if isinstance(each, OnGpu) else each, (args, kwargs))
    with _disable_current_modes():
        return func(*args, **kwargs)


def _by_mask_or_from_here(indices: Any) -> bool:
    """Whether an index is a mask, whose words must be counted, or must be copied to the GPU first."""
    indices = [each for each in tree_leaves(indices) if isinstance(each, Tensor)]
    return any(each.dtype == torch.bool or not isinstance(each, OnGpu) for each in indices)


def _grouped(lists: Any, *more: Any) -> dict:
    """As clipping groups gradients, by a device that C++ would take for the CPU: their norm would be copied there."""
    grouped: Any = _group_tensors_by_device_and_dtype(lists, *more)
    return {(group[0][0][0].device, kind): group for (_, kind), group in grouped.items()}


def _our_function() -> str:
    """The function of the package that is at work."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not frame.f_globals.get("__name__", "").startswith("probe."):
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}"


@contextlib.contextmanager
def gpu(monkeypatch: pytest.MonkeyPatch, free: int = 2**30) -> Iterator[StandIn]:
    """This process has a GPU with so many bytes free, which PyTorch, transformers and Lightning take for a real one."""
    stand_in = StandIn()
    event = type("Event", (Event,), {"stand_in": stand_in})
    cuda: dict[str, Any] = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: "Stand-in GPU",
        "get_device_capability": lambda device=None: (9, 0),
        "is_current_stream_capturing": lambda: False,
        "is_bf16_supported": lambda including_emulation=True: True,
        "mem_get_info": lambda device=None: (free, 2 * free),
        "empty_cache": lambda: None,
        "synchronize": lambda device=None: stand_in.wait("synchronize"),
        "Event": event,
    }
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    # What is asked of this in PyTorch itself would reach for a driver, in a build for CUDA.
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)
    monkeypatch.setattr(torch.backends.cudnn, "is_acceptable", lambda tensor: False)  # the CPU's LSTM then
    monkeypatch.setattr(clip_grad, "_group_tensors_by_device_and_dtype", _grouped)
    # A module's parameters are made anew when it moves, for a tensor cannot become one of a subclass.
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    deterministic = torch.are_deterministic_algorithms_enabled()
    tf32 = torch.backends.cudnn.allow_tf32
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        with stand_in, Moves(stand_in):
            yield stand_in
            stand_in.arrive()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cudnn.allow_tf32 = tf32
