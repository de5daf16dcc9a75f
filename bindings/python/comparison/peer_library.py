"""Libraries that --peer-library names: the C interface of ../peer_library.h through ctypes."""

import ctypes
from ctypes import c_double, c_int64, c_void_p

from . import BadInput

_STRIDES = c_int64 * 3


class PeerCall(ctypes.Structure):
    """peer_call"""

    _fields_ = [
        *((name, c_void_p) for name in ("q", "k", "v", "o", "lse")),
        *((name, _STRIDES) for name in ("q_strides", "k_strides", "v_strides", "o_strides")),
        *((name, c_int64) for name in ("batch", "heads_q", "heads_kv", "seq_q", "seq_kv", "head_dim", "is_fp16", "is_causal")),
        *((name, c_double) for name in ("softmax_scale", "softcap")),
        *((name, c_void_p) for name in ("counters", "o_partials", "lse_partials")),
        *((name, c_int64) for name in ("splits", "packs_heads")),
        *((name, c_void_p) for name in ("d_o", "d_q", "d_k", "d_v")),
        *((name, _STRIDES) for name in ("d_o_strides", "d_q_strides", "d_k_strides", "d_v_strides")),
        *((name, c_void_p) for name in ("dq_sums", "dk_sums", "dv_sums", "delta", "lse_log2", "dq_counters")),
        ("sm_count", c_int64),
    ]


class PeerLibrary:
    """The functions of one library. Raises BadInput if the file is none."""

    def __init__(self, name, path):
        self.name, self.path = name, path
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise BadInput(f"--peer-library {name}={path} cannot be loaded: {error}") from None
        size = self._function("args_size")()
        if size != ctypes.sizeof(PeerCall):
            raise BadInput(f"--peer-library {name}={path}: its peer_call has {size} bytes, this program's {ctypes.sizeof(PeerCall)}; "
                           "build it with peer_library.h as it is here")
        for function in ("plan", "fwd"):
            self._function(function)

    def _function(self, what):
        try:
            function = getattr(self._library, f"{self.name}_{what}")
        except AttributeError:
            raise BadInput(f"--peer-library {self.name}={self.path}: there is no function {self.name}_{what}; see peer_library.h") from None
        function.restype = ctypes.c_int
        return function

    def call(self, what, *arguments):
        """Raises RuntimeError if the library does not serve the problem."""
        status = self._function(what)(*arguments)
        if status != 0:
            raise RuntimeError(f"{self.name}_{what} does not serve this problem (status {status})")


class PeerAttention:
    """One problem's tensors in a library's hands; all as (batch, heads, seq, head_dim) views."""

    def __init__(self, torch, library, problem, q, k, v):
        if problem.packed:
            raise RuntimeError("has no packed sequences")
        if problem.sink:
            raise RuntimeError("has no sinks")
        if problem.dropout != 0:
            raise RuntimeError("has no dropout")
        if problem.alibi or problem.bias or problem.attention_mask:
            raise RuntimeError("has no ALiBi and no tensors of pairs")
        if problem.window is not None:
            raise RuntimeError("has no windows")
        if problem.is_causal and not problem.is_bottom_right:
            raise RuntimeError("peer libraries have causal masks that are aligned bottom right")
        self._torch, self._library, self._inputs = torch, library, (q, k, v)
        self.out = torch.full_like(q, float("nan"))
        self.lse = torch.empty(q.shape[:3], device=q.device, dtype=torch.float32)
        call = self._call = PeerCall()
        for name, tensor in (("q", q), ("k", k), ("v", v), ("o", self.out)):
            self._put(name, tensor)
        call.lse = self.lse.data_ptr()
        call.batch, call.heads_q, call.seq_q, call.head_dim = q.shape
        call.heads_kv, call.seq_kv = k.shape[1:3]
        call.is_fp16, call.is_causal = problem.dtype == "fp16", problem.is_causal
        call.softmax_scale, call.softcap = problem.softmax_scale, problem.softcap
        call.sm_count = torch.cuda.get_device_properties(q.device).multi_processor_count
        counters = torch.zeros(4, device=q.device, dtype=torch.int32)
        self._scratch = [counters]
        call.counters = counters.data_ptr()
        library.call("plan", ctypes.byref(call))
        call.is_causal = problem.is_causal  # a plan may take one query for unmasked
        if call.splits > 1:
            rows = call.splits * self.lse.numel()
            call.o_partials, call.lse_partials = self._floats(rows * call.head_dim), self._floats(rows)

    def _put(self, name, tensor):
        setattr(self._call, name, tensor.data_ptr())
        setattr(self._call, name + "_strides", _STRIDES(tensor.stride(0), tensor.stride(2), tensor.stride(1)))

    def _floats(self, count):
        self._scratch.append(self._torch.empty(max(count, 1), device=self.out.device, dtype=self._torch.float32))
        return self._scratch[-1].data_ptr()

    def _stream(self):
        return c_void_p(self._torch.cuda.current_stream(self.out.device).cuda_stream)

    def forward(self):
        self._library.call("fwd", ctypes.byref(self._call), self._stream())
        return self.out, self.lse

    def prepare_backward(self, grad_out, out, lse):
        """`out` and `lse` in logical shape, of whatever forward: they are copied."""
        self.out.copy_(out)
        self.lse.copy_(lse)
        call, sizes = self._call, (c_int64 * 4)()
        self._library.call("bwd_sizes", ctypes.byref(call), sizes)
        of_rows, of_queries, of_keys, counters = sizes
        call.lse_log2, call.delta, call.dq_sums = self._floats(of_rows), self._floats(of_rows), self._floats(of_queries)
        call.dk_sums, call.dv_sums, call.dq_counters = self._floats(of_keys), self._floats(of_keys), self._floats(counters)
        self.grads, self._grad_out = tuple(self._torch.full_like(tensor, float("nan")) for tensor in self._inputs), grad_out
        for name, tensor in zip(("d_o", "d_q", "d_k", "d_v"), (grad_out, *self.grads)):
            self._put(name, tensor)

    def backward(self):
        self._library.call("bwd", ctypes.byref(self._call), self._stream())
        return self.grads
