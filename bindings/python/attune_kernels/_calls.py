"""Calls of the C interface on torch tensors: what is checked, what is allocated, what is handed over.

A call is checked in full once for each kind: the shapes, strides, types and places of its tensors, and its options. What was found is kept
as a Launcher, and later calls of the kind only fill in pointers. This keeps the host time of a call low. Where the extension is there (see
_extension.py), it is given what was found, too, and serves later calls of the kind by itself.
"""

import ctypes

import torch

from . import _checked, _extension, _library
from ._options import TERMS, Options

DTYPES = {torch.float16: _library.FP16, torch.bfloat16: _library.BF16}
_DETERMINISTIC = Options._fields.index("deterministic")
_KINDS_KEPT = 4096  # a program whose lengths grow with each call forgets the old ones

# Attributes of what is no dense tensor with memory raise these, as does the hash of an option that is none. Checked says what is wrong.
_NOT_SO = (AttributeError, RuntimeError, TypeError)

_forward_launchers, _backward_launchers = {}, {}
_known_calls = _extension.load()  # None: all calls are served here


def forward(q, k, v, options, out=None, return_lse=False, prepared=None, terms=None):
    """Launches forward, the prepared one if there is one. Returns out, allocated if it is None, and lse or None.

    options: a tuple of the values of _options.OPTIONS, as attention() takes them. terms: Terms as kernels take them,
    or None."""
    if _known_calls is not None and out is None and prepared is None and terms is None:
        results = _known_calls.forward(q, k, v, options, return_lse)
        if results is not None:
            return results
    launcher = kind = None
    try:
        q_data, k_data, v_data = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if q_data and k_data and v_data:
            kind = (q.shape, k.shape, v.shape, q.stride(), k.stride(), v.stride(), q.dtype, k.dtype, v.dtype,
                    q.get_device(), k.get_device(), v.get_device(), options, (q_data | k_data | v_data) & 15)
            if terms is not None:
                kind = (*kind, *map(_kind_of_term, terms))
            if out is not None:
                kind = (*kind, _kind_of_result(out))
            launcher = _forward_launchers.get(kind)
    except _NOT_SO:
        kind = None
    if launcher is None:
        checked = Checked(q, k, v, options, _library.FORWARD, terms=terms)
        checked.require_state_of_dropout()
        if out is not None:
            checked.check_like("out", out, "q", q)
        if checked.is_empty:
            return _forward_of_nothing(checked, out, return_lse)
        launcher = _ForwardLauncher(checked, empty_like(q) if out is None else out)
        if _keep(_forward_launchers, kind, launcher) and _known_calls is not None and terms is None and out is None:
            launcher.enter(q, k, v, options)
        q_data, k_data, v_data = q.data_ptr(), k.data_ptr(), v.data_ptr()
    if out is None:
        out = torch.empty_like(q) if launcher.strides_are_kept else empty_like(q)
    lse = q.new_empty(launcher.lse_shape, dtype=torch.float32) if return_lse else None
    structs = launcher.structs()
    structs.set_tensors(q_data, k_data, v_data, out.data_ptr(), lse.data_ptr() if return_lse else 0)
    if terms is not None:
        structs.set_terms(_library.LSE + 1, terms)
    launcher.run(prepared, q, structs)
    return out, lse


def backward(grad_out, q, k, v, out, lse, grad_lse, options, grads=None, prepared=None, terms=None, bias_gradient=False):
    """Launches backward, the prepared one if there is one. Returns the gradients of q, k and v, of sinks if there are some, and of the bias with
    bias_gradient, allocated if grads is None."""
    if _known_calls is not None and grads is None and prepared is None and terms is None \
            and not (torch.is_grad_enabled() and needs_grad(grad_out, q, k, v, out, lse, grad_lse)):
        results = _known_calls.backward(grad_out, q, k, v, out, lse, grad_lse, options)
        if results is not None:
            return results
    return _check_and_run_backward(grad_out, q, k, v, out, lse, grad_lse, options, grads, prepared, terms, bias_gradient)


def backward_of_graph(grad_out, q, k, v, out, lse, grad_lse, options, terms=None, bias_gradient=False):
    """backward() as autograd needs it: gradients of O and LSE may have any strides, and nothing is recorded."""
    if _known_calls is not None and terms is None:
        results = _known_calls.backward(grad_out, q, k, v, out, lse, grad_lse, options)
        if results is not None:
            return results
    if grad_out.stride(3) != 1:
        grad_out = grad_out.contiguous()
    if grad_lse is not None:
        grad_lse = grad_lse.contiguous()
    return backward(grad_out, q, k, v, out, lse, grad_lse, options, terms=terms, bias_gradient=bias_gradient)


def _kind_of_term(tensor):
    return None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device(), tensor.data_ptr() & 3)


def _kind_of_result(tensor):
    """Of one that the caller gives. A tensor without memory is of a kind of its own, which is refused and never kept."""
    data = tensor.data_ptr()
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device(), data & 15, bool(data)


def _check_and_run_backward(grad_out, q, k, v, out, lse, grad_lse, options, grads, prepared, terms, bias_gradient):
    sinks = None if terms is None else terms.sinks
    bias = terms.bias if bias_gradient and terms is not None else None  # of which a gradient is wanted
    if options[_DETERMINISTIC] is None:
        options = (*options[:_DETERMINISTIC], torch.are_deterministic_algorithms_enabled(), *options[_DETERMINISTIC + 1:])
    launcher = kind = None
    try:
        q_data, k_data, v_data, out_data, grad_out_data = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), grad_out.data_ptr()
        if q_data and k_data and v_data and out_data and grad_out_data:
            of_lse = None if grad_lse is None else (grad_lse.shape, grad_lse.stride(), grad_lse.dtype, grad_lse.get_device())
            kind = (q.shape, k.shape, v.shape, out.shape, grad_out.shape, lse.shape,
                    q.stride(), k.stride(), v.stride(), out.stride(), grad_out.stride(), lse.stride(),
                    q.dtype, k.dtype, v.dtype, out.dtype, grad_out.dtype, lse.dtype,
                    q.get_device(), k.get_device(), v.get_device(), out.get_device(), grad_out.get_device(), lse.get_device(),
                    of_lse, options, (q_data | k_data | v_data | out_data | grad_out_data) & 15)
            if terms is not None:
                kind = (*kind, *map(_kind_of_term, terms), bias_gradient)
            if grads is not None:
                kind = (*kind, *map(_kind_of_result, grads))
            launcher = _backward_launchers.get(kind)
    except _NOT_SO:
        kind = None
    if launcher is None:
        checked = Checked(q, k, v, options, _library.BACKWARD, terms=terms, bias_gradient=bias_gradient)
        checked.check_backward(grad_out, out, lse, grad_lse, grads)
        checked.require_state_of_dropout()
    if torch.is_grad_enabled() and needs_grad(grad_out, q, k, v, out, lse, grad_lse, sinks, *(grads or ())):
        raise ValueError("backward() cannot be differentiated: call it under torch.no_grad(), or use attention()")
    if launcher is None and not checked.is_empty:
        launcher = _BackwardLauncher(checked, grad_out, out, [empty_like(tensor) for tensor in (q, k, v)] if grads is None else grads)
        if _keep(_backward_launchers, kind, launcher) and _known_calls is not None and terms is None and grads is None:
            launcher.enter(grad_out, q, k, v, out, lse, grad_lse, options)
    if grads is not None:
        d_q, d_k, d_v = grads[:3]
    elif launcher is not None and launcher.strides_are_kept:
        d_q, d_k, d_v = grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    else:
        d_q, d_k, d_v = grads = empty_like(q), empty_like(k), empty_like(v)
    if len(grads) == 3 and (sinks is not None or bias is not None):
        more = [] if sinks is None else [torch.empty_like(sinks)]
        if bias is not None:
            more.append(torch.empty(bias.shape, dtype=bias.dtype, device=bias.device))
        grads = (*grads, *more)
    if launcher is None:
        for grad in grads:
            grad.zero_()
        if sinks is not None and grad_lse is not None:
            outside = _queries_outside(terms, grad_lse, checked.longest[0])
            if outside is not None:
                grad_lse = grad_lse.masked_fill(outside, 0)
            grads[3].copy_(grad_lse.sum((0, 2)))  # lse of a query without keys is the sink
        return grads
    structs = launcher.structs()
    structs.set_tensors(q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), lse.data_ptr())
    structs.set_gradients(grad_out.data_ptr(), d_q.data_ptr(), d_k.data_ptr(), d_v.data_ptr(), 0 if grad_lse is None else grad_lse.data_ptr())
    if terms is not None:
        of_terms = {} if sinks is None else {"sinks": grads[3]}
        if bias is not None:
            of_terms["bias"] = grads[-1]
        structs.set_terms(_library.D_LSE + 1, terms, of_terms)
    launcher.run(prepared, q, structs)
    return grads


def _queries_outside(terms, lse, longest):
    """Which queries lie behind the last one of their sequence that counts, where lse may hold anything; None where none does. longest: of packed
    sequences, the queries that one has at most; 0: any number."""
    rows = torch.arange(lse.shape[2], device=lse.device)
    begins = terms.cu_seqlens_q
    if begins is None:
        return None if terms.seqused_q is None else rows >= terms.seqused_q[:, None, None]
    sequences = torch.searchsorted(begins[1:-1].contiguous(), rows.to(begins.dtype), right=True)
    position, lengths = rows - begins[sequences], begins.diff()
    if longest:
        lengths = lengths.clamp(max=longest)
    counted = lengths if terms.seqused_q is None else torch.minimum(lengths, terms.seqused_q)
    return (position < 0) | (position >= counted[sequences])


def _forward_of_nothing(checked, out, return_lse):
    """Without keys out is 0 and lse -inf, or the head's sink; without queries, heads or batch both are empty. Nothing is launched."""
    if out is None:
        out = empty_like(checked.q)
    out.zero_()
    lse = None
    if return_lse:
        lse = torch.empty(checked.lse_shape, dtype=torch.float32, device=checked.q.device)
        if checked.sinks is None:
            lse.fill_(float("-inf"))
        else:
            lse.copy_(checked.sinks[None, :, None].expand(checked.lse_shape))
    return out, lse


def _keep(launchers, kind, launcher):
    """Whether later calls will find it: not if this one is of no kind."""
    if kind is None:
        return False
    if len(launchers) >= _KINDS_KEPT:
        launchers.clear()
        if _known_calls is not None:
            launcher.forget()
    launchers[kind] = launcher
    return True


class _Launcher:
    """Calls of one kind: the structs of the C interface with everything but pointers.

    Structs are in the hands of one call at a time, since the library runs without Python's lock: a call takes a set that is free, or makes
    one, and puts it back.
    """

    def __init__(self, checked):
        self.problem, self.lse_shape, self.device = checked.problem, checked.lse_shape, checked.q.get_device()
        self._free = []
        self._library, needed = checked.library, ctypes.c_size_t()
        _library.check(self._library.attune_workspace_bytes(self.problem, ctypes.byref(needed)))
        self._workspace_bytes = needed
        self.workspace_elements = -(-needed.value // checked.q.element_size())

    def _find(self, name, prepared_name):
        """Taken as items, functions have no declared types of arguments: those of _Structs need no conversion."""
        self._function, self._prepared_function = self._library[name], self._library[prepared_name]

    def _address(self):
        return ctypes.cast(self._function, ctypes.c_void_p).value

    def structs(self):
        try:
            return self._free.pop()
        except IndexError:
            return _Structs(self.problem, self._workspace_bytes, self._filled)

    def run(self, prepared, q, structs):
        """Launches on the current stream, with a workspace from where q's memory comes from. Raises AttuneError."""
        if self.workspace_elements:
            workspace = q.new_empty(self.workspace_elements)  # lives until the launch is on its stream
            structs.workspace.value = workspace.data_ptr()
        stream = _current_stream(self.device)
        if prepared is None:
            status = self._function(*structs.arguments, stream)
        else:
            status = self._prepared_function(prepared, *structs.arguments, stream)
        self._free.append(structs)
        if status:
            _library.check(status)


class _ForwardLauncher(_Launcher):
    def __init__(self, checked, out):
        checked.note_alignment(out)
        super().__init__(checked)
        self.strides_are_kept = torch.empty_like(checked.q).stride() == out.stride()
        self._find("attune_forward", "attune_launch")
        self._filled = checked.operands(out)

    def enter(self, q, k, v, options):
        """Lets the extension serve calls like this, if their results need no strides but those of torch.empty_like()."""
        if self.strides_are_kept:
            _known_calls.add_forward(q, k, v, options, self._address(), bytes(self.problem), bytes(self._filled),
                                     self._workspace_bytes.value, self.workspace_elements, tuple(self.lse_shape))

    def forget(self):
        _known_calls.forget_forward()


class _BackwardLauncher(_Launcher):
    def __init__(self, checked, grad_out, out, grads):
        checked.note_alignment(out, grad_out, *grads[:3])
        super().__init__(checked)
        self.strides_are_kept = all(
            torch.empty_like(tensor).stride() == grad.stride() for tensor, grad in zip((checked.q, checked.k, checked.v), grads)
        )
        self._find("attune_backward", "attune_launch_backward")
        self._filled = checked.operands(out, grad_out, grads)

    def enter(self, *arguments):
        """The same."""
        if self.strides_are_kept:
            _known_calls.add_backward(*arguments, self._address(), bytes(self.problem), bytes(self._filled),
                                      self._workspace_bytes.value, self.workspace_elements)

    def forget(self):
        _known_calls.forget_backward()


class _Structs:
    """The operands of a call, as arguments that are ready to be passed. Pointers in them are set as words of 8 bytes, which is faster than by
    fields: an operand has five, of which the second is its data."""

    __slots__ = ("arguments", "workspace", "_words")

    def __init__(self, problem, workspace_bytes, filled):
        own = type(filled).from_buffer_copy(filled)
        self.workspace = ctypes.c_void_p()
        self.arguments = (ctypes.byref(problem), own, ctypes.c_size_t(len(own)), self.workspace, workspace_bytes)
        self._words = (ctypes.c_uint64 * (ctypes.sizeof(own) // 8)).from_buffer(own)

    def set_tensors(self, q, k, v, o, lse):
        words = self._words
        words[1], words[6], words[11], words[16], words[21] = q, k, v, o, lse

    def set_data(self, place, data):
        """Of the operand in a place of the list."""
        self._words[5 * place + 1] = data

    def set_terms(self, place, terms, gradients=None):
        """From a place of the list on, in the order of Checked.operands(). gradients: of backward, by the terms' names."""
        for term, tensor in zip(TERMS, terms):
            self.set_data(place, 0 if tensor is None else tensor.data_ptr())
            place += 1
            if gradients is not None and term.gradient is not None:
                gradient = gradients.get(term.name)
                self.set_data(place, 0 if gradient is None else gradient.data_ptr())
                place += 1

    def set_gradients(self, d_o, d_q, d_k, d_v, d_lse):
        words = self._words
        words[26], words[31], words[36], words[41], words[46] = d_q, d_k, d_v, d_o, d_lse


_streams = {}  # by number: as an argument that is ready to be passed


def _current_stream(device):
    stream = torch._C._cuda_getCurrentRawStream(device)
    try:
        return _streams[stream]
    except KeyError:
        return _streams.setdefault(stream, ctypes.c_void_p(stream))


class _TorchTensors:
    """What _checked.py asks about torch.Tensor."""

    Tensor, a_tensor, dtypes = torch.Tensor, "a torch.Tensor", DTYPES

    @staticmethod
    def dtype(name):
        return getattr(torch, name)

    @staticmethod
    def is_deterministic():
        return torch.are_deterministic_algorithms_enabled()

    @staticmethod
    def of_16_bits(name):
        return f"torch.float16 or torch.bfloat16, by {name}.to(...) or under torch.autocast"

    @staticmethod
    def contiguous(name):
        return f"call {name}.contiguous()"

    @staticmethod
    def check(name, tensor, traced):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}: it must be a torch.Tensor")
        if tensor.is_nested:
            raise TypeError(f"{name} is a nested tensor: attune takes dense ones. Pad it (torch.nested.to_padded_tensor), or make one call for "
                            "each sequence")
        if tensor.layout != torch.strided:
            raise TypeError(f"{name} has the layout {tensor.layout}: attune takes dense tensors, such as {name}.to_dense()")
        if tensor.device.type != "cuda" and not (traced and tensor.device.type == "meta"):
            without_data = ", which holds no data" if tensor.device.type == "meta" else ""
            raise ValueError(f"{name} is on {tensor.device}{without_data}: it must be on a CUDA device")

    @staticmethod
    def has_memory(tensor):
        try:
            return tensor.data_ptr() != 0
        except RuntimeError:  # as of a FakeTensor
            return False


class Checked(_checked.Checked):
    """Arguments that were checked, torch tensors among them."""

    arrays = _TorchTensors


def needs_grad(*tensors):
    for tensor in tensors:
        if getattr(tensor, "requires_grad", False):
            return True
    return False


def empty_like(tensor):
    """Of the same strides if the tensor is dense, and always with a contiguous last dimension."""
    empty = torch.empty_like(tensor)
    return empty if empty.stride(3) == 1 else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
