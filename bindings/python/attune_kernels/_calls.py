"""Calls of the C interface on torch tensors: what is checked, what is allocated, what is handed over.

A call is checked in full once for each kind: the shapes, strides, types and places of its tensors, and its options. What was found is kept
as a Launcher, and later calls of the kind only fill in pointers. This keeps the host time of a call low. Where the extension is there (see
_extension.py), it is given what was found, too, and serves later calls of the kind by itself.
"""

import ctypes

import torch

from . import _extension, _library
from ._options import BROADCAST, CONTIGUOUS, SHARED, TERMS, Options, broadcast_strides, longest_sequence, packed_broadcast_strides

DTYPES = {torch.float16: _library.FP16, torch.bfloat16: _library.BF16}
LAYOUTS = {"bhsd": _library.LAYOUT_BHSD, "bshd": _library.LAYOUT_BSHD}
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
            check_like("out", out, "q", q)
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


class Checked:
    """Arguments that were checked, as the C interface takes them. Raises ValueError or TypeError.

    A call that is only traced has tensors without memory: traced=True asks for none, and neither for the library."""

    def __init__(self, q, k, v, options, pass_, traced=False, terms=None, bias_gradient=False):
        self.options, self.terms, self.sinks = options, terms, None if terms is None else terms.sinks
        self.differentiated_bias = terms.bias if bias_gradient and terms is not None else None
        causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p = Options._make(options)
        if layout not in LAYOUTS:
            raise ValueError(f"layout is {layout!r}: it must be 'bhsd' or 'bshd'")
        if top_left and not causal:
            raise ValueError("top_left says where the diagonal of a causal mask begins: it needs causal=True")
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            check_tensor(name, tensor, q, traced)
        self.q, self.k, self.v = q, k, v
        self.seq_axis, self.head_axis = (2, 1) if layout == "bhsd" else (1, 2)
        batch, head_dim = q.shape[0], q.shape[3]
        if k.shape != v.shape:
            raise ValueError(f"k has shape {tuple(k.shape)} and v {tuple(v.shape)}: they must be equal")
        if k.shape[0] != batch or k.shape[3] != head_dim:
            raise ValueError(f"q has shape {tuple(q.shape)} and k {tuple(k.shape)}: batch and head_dim must be equal")
        rounded = 1 if scale is None else ctypes.c_float(scale).value
        if not 0 < rounded < float("inf"):
            raise ValueError(f"scale is {scale}: it must be positive and finite, also as a float32 (where it is {rounded})")
        capped = ctypes.c_float(softcap).value
        if not 0 <= capped < float("inf") or (softcap != 0 and capped == 0):
            raise ValueError(f"softcap is {softcap}: it must be positive and finite, also as a float32 (where it is {capped}), or 0 for none")
        dropped = ctypes.c_float(dropout_p).value
        if not 0 <= dropped < 1 or (dropout_p != 0 and dropped == 0):
            raise ValueError(f"dropout_p is {dropout_p}: it must be at least 0 and less than 1, also as a float32 (where it is {dropped})")
        if dropped != 0 and invariant:
            raise ValueError("invariant with dropout_p: what is dropped hangs on the batch entry and the head; leave one of them out")
        sides = None if window is None else window_sides(window, causal, top_left)
        self.lse_shape = q.shape[0], q.shape[self.head_axis], q.shape[self.seq_axis]
        self.is_packed = terms is not None and (terms.cu_seqlens_q is not None or terms.cu_seqlens_kv is not None)
        self.longest = (0, 0)
        if self.is_packed:
            batch = self._count_sequences()
            self.longest = longest_sequence(terms)
        for term, tensor in zip(TERMS, terms or ()):
            if tensor is not None:
                self._check_term(term, term.name, tensor)
        if traced:
            self._check_what_the_library_is_not_asked()
            return
        self.is_empty = q.numel() == 0 or k.numel() == 0
        if self.is_empty:
            self._check_what_the_library_is_not_asked()
        self.library = _library.load()
        self.problem = _library.Problem(
            struct_size=ctypes.sizeof(_library.Problem),
            dtype=DTYPES[q.dtype],
            batch=batch,
            heads_q=q.shape[self.head_axis],
            heads_kv=k.shape[self.head_axis],
            seq_q=q.shape[self.seq_axis],
            seq_kv=k.shape[self.seq_axis],
            head_dim=head_dim,
            mask=_mask(causal, top_left) if window is None else _library.MASK_WINDOW,
            softmax_scale=0.0 if scale is None else scale,
            layout=LAYOUTS[layout],
            device=q.get_device() + 1,
            pass_=pass_,
            deterministic=bool(torch.are_deterministic_algorithms_enabled() if deterministic is None else deterministic),
            invariant=bool(invariant),
            softcap=softcap,
            sink=self.sinks is not None,
            used_lengths=self.has_used_lengths,
            alibi=self.terms is not None and self.terms.alibi_slopes is not None,
            bias=_dimensions_of(None if self.terms is None else self.terms.bias),
            bias_fp32=self.terms is not None and self.terms.bias is not None and self.terms.bias.dtype == torch.float32,
            attention_mask=_dimensions_of(None if self.terms is None else self.terms.attention_mask),
            bias_gradient=self.differentiated_bias is not None,
            packed=self.is_packed,
            max_seq_q=self.longest[0],
            max_seq_kv=self.longest[1],
            dropout=dropout_p,
        )
        if sides is not None:
            self.problem.window_left, self.problem.window_right = sides
        self.note_alignment(q, k, v)

    def check_backward(self, grad_out, out, lse, grad_lse, grads):
        check_like("grad_out", grad_out, "q", self.q)
        check_like("out", out, "q", self.q)
        self._check_lse("lse", lse)
        if grad_lse is not None:
            self._check_lse("grad_lse", grad_lse)
        if grads is not None:
            of_terms = [term for term, tensor in zip(TERMS, (self.sinks, None, None, None, self.differentiated_bias)) if tensor is not None]
            if len(grads) != 3 + len(of_terms):
                raise ValueError(f"grads has {len(grads)} elements: it must have {3 + len(of_terms)}, the gradients of "
                                 + ", ".join(["q", "k", "v", *(term.name for term in of_terms)]))
            for place, term in enumerate(of_terms, 3):
                self._check_term(term, f"grads[{place}]", grads[place])
                if term.name == "bias" and (grads[place].shape != self.differentiated_bias.shape
                                            or grads[place].dtype != self.differentiated_bias.dtype):
                    raise ValueError(f"grads[{place}] must have the shape and the type of bias")
            check_like("grads[0]", grads[0], "q", self.q)
            check_like("grads[1]", grads[1], "k", self.k)
            check_like("grads[2]", grads[2], "v", self.v)

    def operands(self, out, grad_out=None, grads=None):
        """A list of attune_operand in the order of their numbers, without the pointers of what has no strides (lse, sinks, their
        gradients, lengths): of forward, or with grad_out and grads of backward."""
        views = {_library.Q: self.q, _library.K: self.k, _library.V: self.v, _library.O: out}
        count = _library.LSE + 1
        if grads is not None:
            views |= {_library.D_Q: grads[0], _library.D_K: grads[1], _library.D_V: grads[2], _library.D_O: grad_out}
            count = _library.D_LSE + 1
        names = list(range(count))
        tensors = {name: self._view(views[name]) if name in views else _library.Tensor() for name in names}
        for term, tensor in zip(TERMS, self.terms or ()):
            strides = (0, 0, 0)
            if tensor is not None and term.lies == SHARED:
                strides = (*tensor.stride(), 0) if tensor.dim() == 2 else (0, tensor.stride(0), 0)
            elif tensor is not None and term.lies == BROADCAST:
                strides = broadcast_strides(tensor)
            tensors[term.operand] = _library.Tensor(0, *strides)
            if grads is not None and term.gradient is not None:
                tensors[term.gradient] = _library.Tensor()
                if term.name == "bias" and self.differentiated_bias is not None:
                    strides = broadcast_strides(grads[-1]) if len(grads) > 3 else packed_broadcast_strides(tensor.shape)
                    tensors[term.gradient] = _library.Tensor(0, *strides)
        return _library.operands(tensors)

    def note_alignment(self, *tensors):
        aligned = self.problem.alignment != 2 and all(map(_is_aligned, tensors))
        self.problem.alignment = 16 if aligned else 2

    def _check_what_the_library_is_not_asked(self):
        head_dim, heads_q, heads_kv = self.q.shape[3], self.q.shape[self.head_axis], self.k.shape[self.head_axis]
        if head_dim % 8 != 0 or not 8 <= head_dim <= 256:
            raise ValueError(f"q has shape {tuple(self.q.shape)}: head_dim must be a multiple of 8 from 8 to 256")
        if heads_q % heads_kv != 0 if heads_kv else heads_q > 0:
            raise ValueError(f"q has {heads_q} heads and k {heads_kv}: those of k must divide those of q")

    def _count_sequences(self):
        begins = self.terms.cu_seqlens_q
        if begins is None or self.terms.cu_seqlens_kv is None:
            raise ValueError("cu_seqlens_q and cu_seqlens_kv say together where packed sequences begin: give both")
        if not isinstance(begins, torch.Tensor) or begins.dim() != 1 or begins.shape[0] < 2:
            what = f"has shape {tuple(begins.shape)}" if isinstance(begins, torch.Tensor) else f"is a {type(begins).__name__}"
            raise ValueError(f"cu_seqlens_q {what}: it must be a tensor of a number for each sequence, and one more")
        if self.q.shape[0] != 1:
            raise ValueError(f"q has {self.q.shape[0]} batch entries: packed sequences lie in one, of all rows")
        return begins.shape[0] - 1

    def require_state_of_dropout(self):
        if Options._make(self.options).dropout_p != 0 and (self.terms is None or self.terms.dropout_state is None):
            raise ValueError("dropout_p needs a dropout_state here: that of the call of attention(), as new_dropout_state() makes one")

    @property
    def has_used_lengths(self):
        return self.terms is not None and (self.terms.seqused_q is not None or self.terms.seqused_kv is not None)

    def _check_term(self, term, name, tensor):
        sequences = self.terms.cu_seqlens_q.shape[0] - 1 if self.is_packed else self.lse_shape[0]
        extents = dict(batch=sequences, begins=sequences + 1, seed_and_offset=2, heads=self.lse_shape[1], queries=self.longest[0] or self.lse_shape[2],
                       keys=self.longest[1] or self.k.shape[self.seq_axis])
        shape = tuple(extents[extent] for extent in term.extents)
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}: it must be a torch.Tensor, a number for {term.of}")
        if tensor.device != self.q.device:
            raise ValueError(f"{name} is on {tensor.device} and q on {self.q.device}: they must be on one device")
        dtypes = [self.q.dtype if dtype == "q" else getattr(torch, dtype) for dtype in term.dtypes]
        if tensor.dtype not in dtypes:
            raise TypeError(f"{name} is {tensor.dtype}: it must be {' or '.join(map(str, dtypes))}")
        given = tuple(tensor.shape)
        if term.lies == BROADCAST:
            if len(given) > 4 or any(mine not in (1, whole) for mine, whole in zip(reversed(given), reversed(shape))) or given[-1:] != shape[-1:]:
                raise ValueError(f"{name} has shape {given}: it must have {shape}, a number for {term.of}, or one that lacks dimensions in front "
                                 f"or has 1 of those other than the last, along which it repeats")
            if given[-1] > 1 and tensor.stride(-1) != 1:
                raise ValueError(f"the last dimension of {name} is not contiguous: call {name}.contiguous()")
        elif given != shape and not (term.lies == SHARED and given == shape[1:]):
            wanted = f"{shape[1:]} or {shape}" if term.lies == SHARED else str(shape)
            raise ValueError(f"{name} has shape {given}: it must have {wanted}, a number for {term.of}")
        if term.lies == CONTIGUOUS and not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous: call {name}.contiguous()")

    def _check_lse(self, name, tensor):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}: it must be a torch.Tensor, as attention(return_lse=True) returns it")
        if tensor.device != self.q.device:
            raise ValueError(f"{name} is on {tensor.device} and q on {self.q.device}: they must be on one device")
        if tensor.dtype != torch.float32:
            raise TypeError(f"{name} is {tensor.dtype}: it must be torch.float32")
        if tuple(tensor.shape) != self.lse_shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}: it must have {self.lse_shape}, (batch, heads, seq)")
        if not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous: call {name}.contiguous()")

    def _view(self, tensor):
        strides = tensor.stride()
        return _library.Tensor(tensor.data_ptr(), strides[0], strides[self.head_axis], strides[self.seq_axis])


def _dimensions_of(tensor):
    """Of a tensor of pairs, as attune_problem names them: along others its stride is 0."""
    if tensor is None:
        return 0
    strides = broadcast_strides(tensor)
    return _library.PAIRS + sum(dimension for dimension, stride in zip((_library.PAIRS_BATCH, _library.PAIRS_HEADS, _library.PAIRS_QUERIES), strides)
                                if stride != 0)


def needs_grad(*tensors):
    for tensor in tensors:
        if getattr(tensor, "requires_grad", False):
            return True
    return False


def empty_like(tensor):
    """Of the same strides if the tensor is dense, and always with a contiguous last dimension."""
    empty = torch.empty_like(tensor)
    return empty if empty.stride(3) == 1 else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def check_like(name, tensor, other_name, other):
    check_tensor(name, tensor, other)
    if tensor.shape != other.shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: it must have that of {other_name}, {tuple(other.shape)}")


def check_tensor(name, tensor, q, traced=False):
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
    if tensor.device != q.device:
        raise ValueError(f"{name} is on {tensor.device} and q on {q.device}: they must be on one device")
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{name} is {tensor.dtype}: it must be torch.float16 or torch.bfloat16, by {name}.to(...) or under torch.autocast")
    if tensor.dtype != q.dtype:
        raise TypeError(f"{name} is {tensor.dtype} and q {q.dtype}: they must be equal")
    if tensor.dim() != 4:
        raise ValueError(f"{name} has {tensor.dim()} dimensions: it must have 4")
    if tensor.stride(3) != 1 and tensor.shape[3] != 1 and tensor.numel() != 0:
        raise ValueError(f"the last dimension of {name} is not contiguous: call {name}.contiguous()")
    if not traced and tensor.numel() != 0 and not has_memory(tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__} without memory of its own: attune runs on real tensors, not on fake or traced "
                        "ones")


def has_memory(tensor):
    try:
        return tensor.data_ptr() != 0
    except RuntimeError:  # as of a FakeTensor
        return False


def _mask(causal, top_left):
    if not causal:
        return _library.MASK_NONE
    return _library.MASK_CAUSAL_TOP_LEFT if top_left else _library.MASK_CAUSAL


def window_sides(window, causal, top_left):
    """Keys on both sides of the diagonal, -1 for all of them."""
    if top_left:
        raise ValueError("a window lies about the diagonal that ends at the last key: leave top_left out")
    sides = tuple(window)
    if len(sides) != 2 or any(side is not None and (isinstance(side, bool) or int(side) != side) for side in sides):
        raise ValueError(f"window is {window!r}: it must be (left, right), numbers of keys, or None for all of a side")
    left, right = (-1 if side is None or side < 0 else int(side) for side in sides)
    return left, 0 if causal else right


def _is_aligned(tensor):
    elements = 16 // tensor.element_size()
    return tensor.data_ptr() % 16 == 0 and all(
        size == 1 or stride % elements == 0 for size, stride in zip(tensor.shape[:3], tensor.stride()[:3])
    )
