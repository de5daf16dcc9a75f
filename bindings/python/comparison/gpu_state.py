"""The GPU's clock, power and driver through NVML, which every driver brings."""

import ctypes
import statistics

_SM_CLOCK = 1


class GpuState:
    """Of one device; where there is no NVML nothing is known, which is no error."""

    def __init__(self, uuid):
        self._nvml = None
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
            device = ctypes.c_void_p()
            if nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(device)) == 0:
                self._nvml, self._device = nvml, device
        except (OSError, AttributeError):
            pass

    def _number(self, function, *arguments):
        value = ctypes.c_uint()
        if self._nvml is None or getattr(self._nvml, function)(self._device, *arguments, ctypes.byref(value)) != 0:
            return None
        return value.value

    def sm_mhz(self):
        return self._number("nvmlDeviceGetClockInfo", _SM_CLOCK)

    def max_sm_mhz(self):
        return self._number("nvmlDeviceGetMaxClockInfo", _SM_CLOCK)

    def power_watts(self):
        milliwatts = self._number("nvmlDeviceGetPowerUsage")
        return None if milliwatts is None else milliwatts / 1000

    def power_limit_watts(self):
        milliwatts = self._number("nvmlDeviceGetEnforcedPowerLimit")
        return None if milliwatts is None else milliwatts / 1000

    def driver(self):
        text = ctypes.create_string_buffer(96)
        if self._nvml is None or self._nvml.nvmlSystemGetDriverVersion(text, len(text)) != 0:
            return None
        return text.value.decode()


class Watch:
    """Samples of clock and power, taken while the GPU works."""

    def __init__(self, state):
        self._state, self._mhz, self._watts = state, [], []

    def look(self):
        for samples, value in ((self._mhz, self._state.sm_mhz()), (self._watts, self._state.power_watts())):
            if value is not None:
                samples.append(value)

    def summary(self):
        """Fields of a row: empty where nothing is known."""
        found = {}
        if self._mhz:
            found["sm_clock_mhz"] = {"median": statistics.median(self._mhz), "least": min(self._mhz), "most": max(self._mhz)}
        if self._watts:
            found["power_watts"] = statistics.median(self._watts)
        return found
