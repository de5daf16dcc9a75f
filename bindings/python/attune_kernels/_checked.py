"""What is checked of a call, and how the C interface is told of it. Knows nothing of a library of arrays: Checked.arrays says what they are.
"""

import ctypes

from . import _library
from ._options import BROADCAST, CONTIGUOUS, SHARED, TERMS, Options, broadcast_strides, longest_sequence, packed_broadcast_strides

LAYOUTS = {"bhsd": _library.LAYOUT_BHSD, "bshd": _library.LAYOUT_BSHD}


class Checked:
    """Arguments that were checked, as the C interface takes them. Raises ValueError or TypeError.

    A call that is only traced has tensors without memory: traced=True asks for none, and neither for the library.

    arrays, which a subclass sets, is what differs between libraries of arrays: `Tensor`, the type of one, and `a_tensor`, what messages call it;
    dtype(name), the type of elements of a name of PyTorch's, and `dtypes`, the library's numbers of those of q; check(name, tensor, traced), which
    raises for what is no dense tensor on a CUDA device; has_memory(tensor); is_deterministic(), where a call does not say; and for messages
    of_16_bits(name) and contiguous(name): what the types of q may be, and how to come by a tensor without gaps."""

    arrays = None

    def __init__(self, q, k, v, options, pass_, traced=False, terms=None, bias_gradient=False):
        self.options, self.terms, self.sinks = options, terms, None if terms is None else terms.sinks
        self.differentiated_bias = terms.bias if bias_gradient and terms is not None else None
        causal, scale, layout, top_left, window, deterministic, invariant, softcap, dropout_p = Options._make(options)
        if layout not in LAYOUTS:
            raise ValueError(f"layout is {layout!r}: it must be 'bhsd' or 'bshd'")
        if top_left and not causal:
            raise ValueError("top_left says where the diagonal of a causal mask begins: it needs causal=True")
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            self.check_tensor(name, tensor, q, traced)
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
        self._pass, self._batch, self._sides = pass_, batch, sides
        if traced:
            self._check_what_the_library_is_not_asked()
            return
        self.is_empty = q.numel() == 0 or k.numel() == 0
        if self.is_empty:
            self._check_what_the_library_is_not_asked()
        self.library = _library.load()
        self.make_problem()

    def make_problem(self):
        """As `problem`. A call that is only traced has none unless it is made."""
        q, k, options, terms = self.q, self.k, Options._make(self.options), self.terms
        is_deterministic = self.arrays.is_deterministic() if options.deterministic is None else options.deterministic
        self.problem = _library.Problem(
            struct_size=ctypes.sizeof(_library.Problem),
            dtype=self.arrays.dtypes[q.dtype],
            batch=self._batch,
            heads_q=q.shape[self.head_axis],
            heads_kv=k.shape[self.head_axis],
            seq_q=q.shape[self.seq_axis],
            seq_kv=k.shape[self.seq_axis],
            head_dim=q.shape[3],
            mask=_mask(options.causal, options.top_left) if self._sides is None else _library.MASK_WINDOW,
            softmax_scale=0.0 if options.scale is None else options.scale,
            layout=LAYOUTS[options.layout],
            device=q.get_device() + 1,
            pass_=self._pass,
            deterministic=bool(is_deterministic),
            invariant=bool(options.invariant),
            softcap=options.softcap,
            sink=self.sinks is not None,
            used_lengths=self.has_used_lengths,
            alibi=terms is not None and terms.alibi_slopes is not None,
            bias=_dimensions_of(None if terms is None else terms.bias),
            bias_fp32=terms is not None and terms.bias is not None and terms.bias.dtype == self.arrays.dtype("float32"),
            attention_mask=_dimensions_of(None if terms is None else terms.attention_mask),
            bias_gradient=self.differentiated_bias is not None,
            packed=self.is_packed,
            max_seq_q=self.longest[0],
            max_seq_kv=self.longest[1],
            dropout=options.dropout_p,
        )
        if self._sides is not None:
            self.problem.window_left, self.problem.window_right = self._sides
        self.note_alignment(q, k, self.v)

    def check_backward(self, grad_out, out, lse, grad_lse, grads):
        self.check_like("grad_out", grad_out, "q", self.q)
        self.check_like("out", out, "q", self.q)
        self.check_lse("lse", lse)
        if grad_lse is not None:
            self.check_lse("grad_lse", grad_lse)
        if grads is not None:
            of_terms = [term for term, tensor in zip(TERMS, (self.sinks, None, None, None, self.differentiated_bias)) if tensor is not None]
            if len(grads) != 3 + len(of_terms):
                raise ValueError(f"grads has {len(grads)} elements: it must have {3 + len(of_terms)}, the gradients of "
                                 + ", ".join(["q", "k", "v", *(term.name for term in of_terms)]))
            for index, term in enumerate(of_terms, 3):
                self._check_term(term, f"grads[{index}]", grads[index])
                if term.name == "bias" and (grads[index].shape != self.differentiated_bias.shape
                                            or grads[index].dtype != self.differentiated_bias.dtype):
                    raise ValueError(f"grads[{index}] must have the shape and the type of bias")
            self.check_like("grads[0]", grads[0], "q", self.q)
            self.check_like("grads[1]", grads[1], "k", self.k)
            self.check_like("grads[2]", grads[2], "v", self.v)

    def check_like(self, name, tensor, other_name, other):
        self.check_tensor(name, tensor, other)
        if tensor.shape != other.shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}: it must have that of {other_name}, {tuple(other.shape)}")

    def check_tensor(self, name, tensor, q, traced=False):
        self.arrays.check(name, tensor, traced)
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device} and q on {q.device}: they must be on one device")
        if tensor.dtype not in self.arrays.dtypes:
            raise TypeError(f"{name} is {tensor.dtype}: it must be {self.arrays.of_16_bits(name)}")
        if tensor.dtype != q.dtype:
            raise TypeError(f"{name} is {tensor.dtype} and q {q.dtype}: they must be equal")
        if tensor.dim() != 4:
            raise ValueError(f"{name} has {tensor.dim()} dimensions: it must have 4")
        if tensor.stride(3) != 1 and tensor.shape[3] != 1 and tensor.numel() != 0:
            raise ValueError(f"the last dimension of {name} is not contiguous: {self.arrays.contiguous(name)}")
        if not traced and tensor.numel() != 0 and not self.arrays.has_memory(tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__} without memory of its own: attune runs on real tensors, not on fake or traced "
                            "ones")

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
        if not isinstance(begins, self.arrays.Tensor) or begins.dim() != 1 or begins.shape[0] < 2:
            what = f"has shape {tuple(begins.shape)}" if isinstance(begins, self.arrays.Tensor) else f"is a {type(begins).__name__}"
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
        if not isinstance(tensor, self.arrays.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}: it must be {self.arrays.a_tensor}, a number for {term.of}")
        if tensor.device != self.q.device:
            raise ValueError(f"{name} is on {tensor.device} and q on {self.q.device}: they must be on one device")
        dtypes = [self.q.dtype if dtype == "q" else self.arrays.dtype(dtype) for dtype in term.dtypes]
        if tensor.dtype not in dtypes:
            raise TypeError(f"{name} is {tensor.dtype}: it must be {' or '.join(map(str, dtypes))}")
        given = tuple(tensor.shape)
        if term.lies == BROADCAST:
            if len(given) > 4 or any(mine not in (1, whole) for mine, whole in zip(reversed(given), reversed(shape))) or given[-1:] != shape[-1:]:
                raise ValueError(f"{name} has shape {given}: it must have {shape}, a number for {term.of}, or one that lacks dimensions in front "
                                 f"or has 1 of those other than the last, along which it repeats")
            if given[-1] > 1 and tensor.stride(-1) != 1:
                raise ValueError(f"the last dimension of {name} is not contiguous: {self.arrays.contiguous(name)}")
        elif given != shape and not (term.lies == SHARED and given == shape[1:]):
            wanted = f"{shape[1:]} or {shape}" if term.lies == SHARED else str(shape)
            raise ValueError(f"{name} has shape {given}: it must have {wanted}, a number for {term.of}")
        if term.lies == CONTIGUOUS and not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous: {self.arrays.contiguous(name)}")

    def check_lse(self, name, tensor):
        if not isinstance(tensor, self.arrays.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}: it must be {self.arrays.a_tensor}, as attention(return_lse=True) returns it")
        if tensor.device != self.q.device:
            raise ValueError(f"{name} is on {tensor.device} and q on {self.q.device}: they must be on one device")
        if tensor.dtype != self.arrays.dtype("float32"):
            raise TypeError(f"{name} is {tensor.dtype}: it must be {self.arrays.dtype('float32')}")
        if tuple(tensor.shape) != self.lse_shape:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}: it must have {self.lse_shape}, (batch, heads, seq)")
        if not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous: {self.arrays.contiguous(name)}")

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
