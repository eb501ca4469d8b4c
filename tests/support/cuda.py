"""A GPU for machines that have none: tensors that say "cuda", compute on the CPU, and refuse what a GPU refuses.

Every line that is for a GPU runs on it, and gives what the CPU gives. Tensors of two devices in one operation are an
error, as is reading a GPU's memory as numpy. A copy to the host that it does not wait for is late: until the next
wait its target holds garbage. Speed, memory and arithmetic are the CPU's.

It stands on tensor subclasses: to PyTorch's C++ a tensor here lies on the CPU, to all that is Python on "cuda:0". That
way autograd works in a PyTorch without CUDA.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
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
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}  # takes an index of the host too


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


class Operations(TorchDispatchMode):
    """Does what is done to tensors of either device."""

    def __init__(self) -> None:
        super().__init__()
        self._under_way: deque[tuple[Tensor, Tensor]] = deque()  # target on the host, its values
        self._lock = threading.Lock()

    def arrive(self) -> None:
        """Ends all copies that are under way."""
        with self._lock, _disable_current_modes():
            while self._under_way:
                target, values = self._under_way.popleft()
                target.copy_(values)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        what = func.overloadpacket
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        on_gpu = [tensor for tensor in tensors if isinstance(tensor, OnGpu)]
        device = kwargs.get("device")
        if what is aten._to_copy and on_gpu:
            device = None  # another type, as C++ asks for it on the device it knows; moves come by `Moves`
        is_for_gpu = bool(on_gpu) if device is None else torch.device(device).type == "cuda"
        if kwargs.get("device") is not None:
            kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        if what is aten.copy_ and isinstance(args[0], OnGpu) != isinstance(args[1], OnGpu):
            return self._copied(args[0], args[1], (args[2:] or (kwargs.get("non_blocking", False),))[0])
        if on_gpu and what not in INDEXING and any(not isinstance(t, OnGpu) and t.dim() for t in tensors):
            raise RuntimeError(f"Expected all tensors to be on the same device: {what} got cuda:0 and cpu")
        held_args, held_kwargs = tree_map(lambda leaf: leaf.held if isinstance(leaf, OnGpu) else leaf, (args, kwargs))
        with _disable_current_modes():
            out = func(*held_args, **held_kwargs)
        if not is_for_gpu:
            return out
        came_in = {id(tensor.held): tensor for tensor in on_gpu}  # what was changed in place stays the same tensor

        def wrapped(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor):
                return leaf
            return came_in[id(leaf)] if id(leaf) in came_in else OnGpu(leaf)

        # In inference mode a view of what was made outside of it is no inference tensor.
        is_view = bool(on_gpu) and any(returned.alias_info for returned in func._schema.returns)
        is_inference = torch.is_inference_mode_enabled() and not (is_view and not on_gpu[0].is_inference())
        with torch.inference_mode(is_inference):
            return tree_map(wrapped, out)

    def _copied(self, target: Tensor, source: Tensor, non_blocking: bool) -> Tensor:
        """Copies from one device to the other."""
        with _disable_current_modes():
            if isinstance(target, OnGpu):
                target.held.copy_(source)
            elif non_blocking:
                assert isinstance(source, OnGpu)
                self._under_way.append((target, source.held.to(target.dtype, copy=True)))
                target.fill_(float("nan") if target.is_floating_point() else 77)
            else:
                assert isinstance(source, OnGpu)
                target.copy_(source.held)
        return target

    def fetched(self, source: OnGpu) -> Tensor:
        """Returns a copy on the host, for which it waits."""
        self.arrive()
        with _disable_current_modes():
            return source.held.detach().clone()


class Moves(TorchFunctionMode):
    """Does what C++ would not hand on, since to it all tensors lie on the CPU."""

    def __init__(self, operations: Operations) -> None:
        super().__init__()
        self.operations = operations

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is Tensor.to:
            return self._to(*args, **kwargs)
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu").type == "cuda":
            del kwargs["device"]
            return self._moved(func(*args, **kwargs), GPU)
        if func is Tensor.cpu:
            return self._moved(args[0], torch.device("cpu"))
        if func is Tensor.cuda:
            return self._moved(args[0], GPU)
        if func is Tensor.pin_memory:
            assert not isinstance(args[0], OnGpu), "cannot pin 'torch.cuda.FloatTensor'"
            return args[0].clone()
        if func is Tensor.tolist and isinstance(args[0], OnGpu):
            return self.operations.fetched(args[0]).tolist()
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
            assert device.type == "cuda" or not non_blocking or not isinstance(tensor, OnGpu), "nothing waits for it"
            tensor, before = self._moved(tensor, device), tensor
            copy = copy and tensor is before
        return tensor.clone() if copy else tensor if dtype in (None, tensor.dtype) else tensor.type(dtype)

    def _moved(self, tensor: Tensor, device: torch.device) -> Tensor:
        if isinstance(tensor, OnGpu) == (device.type == "cuda"):
            return tensor
        if isinstance(tensor, OnGpu):
            return self.operations.fetched(tensor).requires_grad_(tensor.requires_grad)
        return aten._to_copy(tensor, device=GPU)


def _grouped(lists: Any, *more: Any) -> dict:
    """Groups gradients as clipping does, but by the device that Python sees: C++ would copy their norm to the CPU."""
    grouped: Any = _group_tensors_by_device_and_dtype(lists, *more)
    return {(group[0][0][0].device, kind): group for (_, kind), group in grouped.items()}


@contextlib.contextmanager
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gives this process a GPU, which PyTorch, transformers and Lightning take for a real one."""
    operations = Operations()
    event = {"record": lambda self: None, "synchronize": lambda self: operations.arrive()}
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
        "mem_get_info": lambda device=None: (2**30, 2**31),
        "empty_cache": lambda: None,
        "synchronize": lambda device=None: operations.arrive(),
        "Event": type("Event", (), event),
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
        with operations, Moves(operations):
            yield
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cudnn.allow_tf32 = tf32
