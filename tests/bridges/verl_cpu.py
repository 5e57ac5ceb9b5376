"""verl's device layer for a machine without an accelerator, by its own way of adding a platform."""

from __future__ import annotations

import contextlib
import types

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry, set_platform

NOTHING = types.SimpleNamespace(
    empty_cache=lambda: None,
    synchronize=lambda *a: None,
    is_available=lambda: False,
    max_memory_allocated=lambda *a: 0,
    max_memory_reserved=lambda *a: 0,
    memory_allocated=lambda *a: 0,
    memory_reserved=lambda *a: 0,
    mem_get_info=lambda *a: (0, 0),
    current_device=lambda: "cpu",
    get_device_name=lambda *a: "cpu",
    set_device=lambda *a: None,
    manual_seed=torch.manual_seed,
)


@PlatformRegistry.register("cpu")
class CPU(PlatformBase):
    device_name = "cpu"
    vendor_name = "none"
    device_module = NOTHING  # type: ignore[assignment]

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "NO_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        pass

    profiler_stop = profiler_start

    def ray_resource_name(self):
        return "CPU"

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None


set_platform(CPU())
