"""Attune's kernels under torch.nn.functional.scaled_dot_product_attention, on a GPU: masks, backends, compiled programs, training.

Prints a line for each test.
"""

import contextlib
import functools
import os
import unittest.mock

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # a pool of processes takes longer to start than these graphs to compile

# First: it finds the module, and ends a program that has no GPU.
from torch_on_gpu import BOUND, InTorch, exact, tensors, with_gradients  # noqa: E402
from on_gpu import BF16, DEVICE, run_tests, torch  # noqa: E402

from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402
from torch.utils import checkpoint  # noqa: E402

import attune_kernels as attune  # noqa: E402
from attune_kernels import _attention, _calls, _sdpa, _sdpa_packed  # noqa: E402


class Ran:
    """How often Attune's forward and backward have run for PyTorch's operators: by Python code, and by the extension."""

    def __init__(self):
        self.by_python, self.before, self.ended = [0, 0], self.in_c(), None

    @staticmethod
    def in_c():
        return _calls._known_calls.served() if _calls._known_calls else (0, 0)

    def __iter__(self):
        return iter(self.ended or [python + now - before for python, now, before in zip(self.by_python, self.in_c(), self.before)])

    def __eq__(self, other):
        return list(self) == other

    def __repr__(self):
        return repr(list(self))


@contextlib.contextmanager
def counted():
    ran = Ran()

    def counting(function, place):
        def call(*arguments):
            result = function(*arguments)
            ran.by_python[place] += result is not None
            return result

        return call

    with contextlib.ExitStack() as patches:
        for module in _sdpa, _sdpa_packed:
            patches.enter_context(unittest.mock.patch.object(module, "forward", counting(module.forward, 0)))
            patches.enter_context(unittest.mock.patch.object(module, "backward", counting(module.backward, 1)))
        yield ran
    ran.ended = list(ran)


SERVES_MASKS = hasattr(torch.library, "get_kernel")  # by the operators whose implementations must be asked for


def exact_of_mask(q, k, v, attn_mask):
    """PyTorch's own attention, in double precision by its operations."""
    with sdpa_kernel(SDPBackend.MATH):
        return sdpa(*(one.double() for one in (q, k, v)), attn_mask=attn_mask if attn_mask.dtype == torch.bool else attn_mask.double())


def causal_sdpa(q, k, v):
    return sdpa(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


class Sdpa(InTorch):
    """enable_sdpa()."""

    def test_by_each_backend(self):
        for backend, is_ours in ((SDPBackend.FLASH_ATTENTION, True), (SDPBackend.CUDNN_ATTENTION, True),
                                 (SDPBackend.EFFICIENT_ATTENTION, SERVES_MASKS), (SDPBackend.MATH, False), (None, True)):
            with self.subTest(backend=backend):
                leaves = tensors(128, heads=(4, 4))
                try:
                    with contextlib.nullcontext() if backend is None else sdpa_kernel(backend):
                        expected = with_gradients(causal_sdpa, leaves)
                        with attune.enable_sdpa(), counted() as ran:
                            ours = with_gradients(causal_sdpa, leaves)
                        after = with_gradients(causal_sdpa, leaves)
                except RuntimeError as error:
                    if "No available kernel" not in str(error):
                        raise
                    continue  # this PyTorch has no such backend for this GPU
                self.assertEqual(ran, [1, 1] if is_ours else [0, 0])
                self.assert_close(ours, with_gradients(exact, leaves))
                self.assert_close(after, expected)
                self.assertEqual(ours[0].stride(), expected[0].stride())

    def test_kinds_of_calls(self):
        """Served or not, results are PyTorch's own."""
        q, k, v = tensors(128, heads=(4, 4))
        mask = torch.ones(128, 128, dtype=torch.bool, device=DEVICE).tril()
        turned = tuple(one.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for one in (q, k, v))
        wide = [one.detach().float().requires_grad_() for one in (q, k, v)]
        half_v = v.detach()[..., :32].contiguous().requires_grad_()
        cases = {  # leaves, options, whether it must be served; None where that is PyTorch's choice
            "plain": ((q, k, v), {}, True),
            "scale": ((q, k, v), {"scale": 0.2}, True),
            "lengths before heads": (turned, {"is_causal": True}, True),
            "other lengths": (tensors(100, 150, heads=(4, 4)), {}, True),
            "other lengths, causal": (tensors(100, 150, heads=(4, 4)), {"is_causal": True}, SERVES_MASKS),
            "grouped heads": (tensors(128), {"is_causal": True, "enable_gqa": True}, True),
            "head dim 60": (tensors(128, heads=(4, 4), head_dim=60), {"is_causal": True}, None),
            "head dim 256": (tensors(128, heads=(4, 4), head_dim=256), {"is_causal": True}, True),
            "mask": ((q, k, v), {"attn_mask": mask}, SERVES_MASKS),
            "mask of numbers": ((q, k, v), {"attn_mask": torch.randn(2, 1, 128, 128, device=DEVICE, dtype=BF16)}, SERVES_MASKS),
            "float32": (wide, {"is_causal": True}, False),
            "v of other head dim": ((q, k, half_v), {"is_causal": True}, False),
            "one query": (tensors(1, 300, heads=(4, 4)), {}, True),
        }
        for name, (leaves, options, is_served) in cases.items():
            with self.subTest(name):
                call = functools.partial(sdpa, **options)
                torch.manual_seed(3)
                expected = with_gradients(call, leaves)
                torch.manual_seed(3)
                with attune.enable_sdpa(), counted() as ran:
                    ours = with_gradients(call, leaves)
                if is_served is not None:
                    self.assertEqual(ran, [1, 1] if is_served else [0, 0])
                self.assert_close(ours, expected)

    @unittest.skipUnless(SERVES_MASKS, "this PyTorch has no torch.library.get_kernel")
    def test_masks(self):
        """Rows of 77 keys are padded by PyTorch; a mask that requires a gradient goes to its memory-efficient backend, also of a compiled graph."""
        leaves = tensors(100, 77, heads=(4, 4))
        kept = torch.arange(77, device=DEVICE) < torch.tensor([77, 30], device=DEVICE)[:, None, None, None]
        for backend in (SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            for mask in (kept, torch.randn(100, 77, device=DEVICE, dtype=BF16), torch.randn(2, 1, 100, 77, device=DEVICE, dtype=BF16)):
                with self.subTest(backend=backend, mask=mask.dtype, shape=mask.shape):
                    try:
                        with sdpa_kernel(backend), attune.enable_sdpa(), counted() as ran:
                            ours = with_gradients(functools.partial(sdpa, attn_mask=mask), leaves)
                    except RuntimeError as error:
                        if "No available kernel" not in str(error):
                            raise
                        continue
                    self.assertEqual(ran, [1, 1])
                    self.assert_close(ours, with_gradients(functools.partial(exact_of_mask, attn_mask=mask), leaves))
        for shape in ((100, 77), (1, 4, 100, 77), (2, 1, 1, 77)):
            mask = torch.randn(shape, device=DEVICE, dtype=BF16, requires_grad=True)
            expected = with_gradients(exact_of_mask, (*leaves, mask))
            for call in (sdpa, torch.compile(lambda q, k, v, mask: sdpa(q, k, v, attn_mask=mask), fullgraph=True)):
                with self.subTest(shape=shape, compiled=call is not sdpa), attune.enable_sdpa(), counted() as ran:
                    self.assert_close(with_gradients(call, (*leaves, mask)), expected)
                self.assertEqual(ran, [1, 1])

    @unittest.skipUnless(SERVES_MASKS, "this PyTorch has no torch.library.get_kernel")
    def test_queries_of_which_a_mask_hides_everything(self):
        leaves, mask = tensors(128, heads=(4, 4)), torch.ones(2, 1, 128, 128, dtype=torch.bool, device=DEVICE)
        mask[1, :, 5:9] = False
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION), attune.enable_sdpa(), counted() as ran:
            out, *grads = with_gradients(functools.partial(sdpa, attn_mask=mask), leaves)
        self.assertEqual(ran, [1, 1])
        self.assertEqual([one[1, :, 5:9].count_nonzero().item() for one in (out, grads[0])], [0, 0])
        self.assertTrue(all(one.isfinite().all() for one in (out, *grads)))

    @unittest.skipIf(_attention._attend is None, "the extension does not implement PyTorch's operators")
    @unittest.skipUnless(SERVES_MASKS, "this PyTorch has no torch.library.get_kernel")
    def test_nested_tensors_and_varlen_attn(self):
        """Beside each sequence alone."""
        lengths = [77, 130, 1, 64]
        begins = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=DEVICE)
        torch.manual_seed(7)
        leaves = [torch.randn(sum(lengths), 4, 64, device=DEVICE, dtype=BF16, requires_grad=True) for _ in range(3)]

        def alone(q, k, v, is_causal):
            parts = [sdpa(*(one[None, begin:end].transpose(1, 2) for one in (q, k, v)), is_causal=is_causal) for begin, end in zip(begins.tolist(), begins.tolist()[1:])]
            return torch.cat([one[0].transpose(0, 1) for one in parts])

        def nested(q, k, v, is_causal):
            tensors = [torch.nested.nested_tensor_from_jagged(one, begins.long(), min_seqlen=1, max_seqlen=130).transpose(1, 2) for one in (q, k, v)]
            return sdpa(*tensors, is_causal=is_causal).transpose(1, 2).values()

        calls = [functools.partial(nested, is_causal=False), functools.partial(nested, is_causal=True)]
        try:
            from torch.nn.attention.varlen import varlen_attn
        except ImportError:
            pass
        else:
            calls.append(lambda q, k, v: varlen_attn(q, k, v, begins, begins, 130, 130, window_size=(-1, 0)))
        for call, is_causal in zip(calls, (False, True, True)):
            with self.subTest(is_causal=is_causal), sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]):
                expected = with_gradients(functools.partial(alone, is_causal=is_causal), leaves)
                with attune.enable_sdpa(), counted() as ran:
                    ours = with_gradients(call, leaves)
                self.assertEqual(ran, [1, 1])
                self.assert_close(ours, expected)

    def test_known_kinds_are_served_in_c(self):
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            with self.subTest(backend=backend), sdpa_kernel(backend), attune.enable_sdpa():
                leaves = tensors(128, heads=(4, 4))
                torch.use_deterministic_algorithms(True)
                try:
                    first = with_gradients(causal_sdpa, leaves)
                except RuntimeError as error:
                    if "No available kernel" not in str(error):
                        raise
                    continue
                before = _calls._known_calls.served()
                self.assert_same(with_gradients(causal_sdpa, leaves), first)
                self.assertEqual([now - one for now, one in zip(_calls._known_calls.served(), before)], [1, 1])

    def test_turned_on_and_off_between_forward_and_backward(self):
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, *([SDPBackend.EFFICIENT_ATTENTION] if SERVES_MASKS else [])):
            for first, second in ((True, False), (False, True)):
                with self.subTest(backend=backend, forward=first, backward=second):
                    leaves = tensors(128, heads=(4, 4))
                    try:
                        with attune.enable_sdpa() if first else contextlib.nullcontext(), sdpa_kernel(backend):
                            out = causal_sdpa(*leaves)
                    except RuntimeError as error:
                        if "No available kernel" not in str(error):
                            raise
                        continue
                    weights = torch.linspace(-1, 1, out.numel(), device=DEVICE).view(out.shape)
                    with attune.enable_sdpa() if second else contextlib.nullcontext(), counted() as ran:
                        gradients = torch.autograd.grad((out.float() * weights).sum(), leaves)
                    self.assertEqual(ran, [0, int(second)])
                    self.assert_close(gradients, with_gradients(exact, leaves)[1:])

    def test_dropout(self):
        """Its state is drawn from PyTorch's generator. Gradients come of the same elements, turned off in between or not; PyTorch's own of its own."""
        def exact_gradients(leaves, out, state):
            kept = attune.dropout_mask(0.2, state, (2, 4, 128, 128)).double() / (1 - 0.2)
            wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
            scores = (wide[0] @ wide[1].transpose(2, 3) / 8).masked_fill(torch.ones(128, 128, dtype=torch.bool, device=DEVICE).triu(1), -torch.inf)
            exact_out = (scores.softmax(3) * kept) @ wide[2]
            return exact_out.detach(), *torch.autograd.grad((exact_out * self.weights_of(out)).sum(), wide)

        def run(q, k, v):
            return sdpa(q, k, v, dropout_p=0.2, is_causal=True)

        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, *([SDPBackend.EFFICIENT_ATTENTION] if SERVES_MASKS else [])):
            for turned_off in (False, True):
                for function in (run, torch.compile(run, fullgraph=True)):
                    with self.subTest(backend=backend, turned_off=turned_off, compiled=function is not run):
                        torch._dynamo.reset()  # graphs do not ask again which backend was chosen
                        leaves = tensors(128, heads=(4, 4))
                        torch.manual_seed(3)
                        state = attune.new_dropout_state()
                        torch.manual_seed(3)
                        try:
                            with attune.enable_sdpa(), sdpa_kernel(backend), counted() as ran:
                                out = function(*leaves)
                        except RuntimeError as error:
                            if "No available kernel" not in str(error):
                                raise
                            continue
                        self.assertEqual(ran, [1, 0])
                        with contextlib.nullcontext() if turned_off else attune.enable_sdpa(), counted() as ran:
                            gradients = torch.autograd.grad((out.float() * self.weights_of(out)).sum(), leaves)
                        self.assertEqual(ran, [0, 1])
                        self.assert_close((out, *gradients), exact_gradients(leaves, out, state))

    @staticmethod
    def weights_of(out):
        return torch.linspace(-1, 1, out.numel(), device=out.device).view(out.shape)

    def test_dropout_of_a_forward_pass_by_pytorch(self):
        """O is linear in V: the sum of O times weights is that of V times its gradient, of the same elements."""
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
            leaves = tensors(128, heads=(4, 4))
            with sdpa_kernel(backend):
                out = sdpa(*leaves, dropout_p=0.4)
            with attune.enable_sdpa(), counted() as ran:
                loss = (out.float() * self.weights_of(out)).sum()
                gradients = torch.autograd.grad(loss, leaves)
            self.assertEqual(ran, [0, 0])
            self.assertLess(abs((gradients[2].double() * leaves[2].double()).sum().item() - loss.item()), 0.02 * self.weights_of(out).norm().item())

    def test_a_graph_that_was_compiled_before(self):
        def function(q, k, v):
            return nn.functional.gelu(causal_sdpa(q * 1.5, k, v))

        leaves, compiled = tensors(128, heads=(4, 4)), torch.compile(function, fullgraph=True)
        expected = with_gradients(compiled, leaves)
        with attune.enable_sdpa(), counted() as ran:
            ours = with_gradients(compiled, leaves)
            self.assertEqual(ran, [1, 1])
            torch._dynamo.reset()
            again = with_gradients(torch.compile(function, fullgraph=True), leaves)
            self.assertEqual(ran, [2, 2])
        with counted() as ran:
            with_gradients(compiled, leaves)
            self.assertEqual(ran, [0, 0])
        self.assert_close(ours, expected)
        self.assert_close(again, expected)

    def test_checkpoints_and_autocast(self):
        leaves = tensors(128, heads=(4, 4), dtype=torch.float32)

        def function(q, k, v):
            with torch.autocast(DEVICE, dtype=BF16):
                return checkpoint.checkpoint(causal_sdpa, q, k, v, use_reentrant=False)

        expected = with_gradients(function, leaves)
        with attune.enable_sdpa(), counted() as ran:
            self.assert_close(with_gradients(function, leaves), expected)
        self.assertEqual(ran, [2, 1])

    def test_deterministic_mode(self):
        leaves = tensors(1500, heads=(8, 8), batch=1)
        torch.use_deterministic_algorithms(True)
        with attune.enable_sdpa(), counted() as ran:
            first = with_gradients(causal_sdpa, leaves)
            for _ in range(4):
                self.assert_same(with_gradients(causal_sdpa, leaves), first)
        self.assertEqual(ran, [5, 5])

    def test_a_cuda_graph(self):
        q, k, v = tensors(128, heads=(4, 4), grad=False)
        with attune.enable_sdpa(), torch.no_grad():
            causal_sdpa(q, k, v)
            given, graph = torch.zeros_like(q), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph), counted() as ran:
                out = causal_sdpa(given, k, v)
        self.assertEqual(ran, [1, 0])
        given.copy_(q)
        graph.replay()
        self.assert_close([out], [exact(q, k, v)])

    def test_modules_of_pytorch(self):
        torch.manual_seed(1)
        layer, x = nn.MultiheadAttention(256, 4, batch_first=True, device=DEVICE, dtype=BF16), torch.randn(2, 128, 256, device=DEVICE, dtype=BF16)

        def function(x):
            return layer(x, x, x, need_weights=False)[0]

        expected = with_gradients(function, (x.requires_grad_(),))
        with attune.enable_sdpa(), counted() as ran:
            self.assert_close(with_gradients(function, (x,)), expected, 2 * BOUND)
        self.assertEqual(ran, [1, 1])

    @unittest.skipUnless(hasattr(torch.nn.attention, "activate_flash_attention_impl"), "this PyTorch has no registry of implementations")
    def test_the_registry_of_pytorch(self):
        attention = torch.nn.attention
        self.assertIn("attune", attention.list_flash_attention_impls())
        attention.activate_flash_attention_impl("attune")
        with counted() as ran, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            causal_sdpa(*tensors(128, heads=(4, 4)))
        self.assertEqual(ran, [1, 0])
        with attune.enable_sdpa():
            self.assertEqual(attention.current_flash_attention_impl(), "attune")
        self.assertEqual(attention.current_flash_attention_impl(), "attune")
        attune.disable_sdpa()
        self.assertIsNone(attention.current_flash_attention_impl())


class Block(nn.Module):
    dropout_p = 0.0

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.before, self.between = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.join(sdpa(q, k, v, is_causal=True, dropout_p=self.dropout_p if self.training else 0.0).transpose(1, 2).flatten(2))
        return x + self.mlp(self.between(x))


class Training(InTorch):
    """A small transformer learns to go on with a phrase that repeats: losses beside PyTorch's own, step by step."""

    def losses(self, steps, compiled, dropout_seed=None):
        """dropout_seed: of what the generator gives once the model and the texts are made."""
        torch.manual_seed(4)
        words, width, length = 32, 128, 128
        model = nn.Sequential(nn.Embedding(words, width), Block(width, 2), Block(width, 2), nn.LayerNorm(width), nn.Linear(width, words))
        model = model.to(DEVICE)
        position = torch.randn(length, width, device=DEVICE) * 0.3
        run = torch.compile(model[1:], fullgraph=True) if compiled else model[1:]
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        losses, of_texts = [], torch.Generator(DEVICE).manual_seed(4)
        if dropout_seed is not None:
            torch.manual_seed(dropout_seed)
        for _ in range(steps):
            phrase = torch.randint(words, (16, 8), device=DEVICE, generator=of_texts)
            text = phrase.repeat(1, length // 8 + 1)[:, : length + 1]
            with torch.autocast(DEVICE, dtype=BF16):
                logits = run(model[0](text[:, :-1]) + position)
            loss = nn.functional.cross_entropy(logits[:, 8:].flatten(0, 1).float(), text[:, 9:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def test_losses_beside_those_of_pytorch(self):
        for steps, compiled in ((120, False), (20, True)):
            with self.subTest(compiled=compiled):
                theirs = self.losses(steps, compiled)
                with attune.enable_sdpa(), counted() as ran:
                    ours = self.losses(steps, compiled)
                self.assertEqual(ran, [2 * steps, 2 * steps])
                places = range(0, steps, max(1, steps // 6))
                print(f"\n  losses, {'compiled' if compiled else 'eager'}: PyTorch's " + " ".join(f"{theirs[i]:.3f}" for i in places)
                      + "\n" + " " * 14 + "with Attune " + " ".join(f"{ours[i]:.3f}" for i in places), flush=True)
                for number, (one, other) in enumerate(zip(ours[:20], theirs)):
                    self.assertLess(abs(one - other), 0.02 * other, f"loss of step {number}")  # later, rounding has grown
                self.assertLess(ours[-1], ours[0])
                if not compiled:
                    self.assertLess(abs(sum(ours[-10:]) - sum(theirs[-10:])), 0.25 * sum(theirs[-10:]) + 0.5)


    def test_dropout_beside_that_of_pytorch(self):
        """Twelve steps with other elements dropped: losses differ by no more than those of another seed do."""
        def run(seed, ours):
            with attune.enable_sdpa() if ours else contextlib.nullcontext(), counted() as ran:
                losses = self.losses(12, False, seed)
            self.assertEqual(ran, [24, 24] if ours else [0, 0])
            return torch.tensor(losses)

        with unittest.mock.patch.object(Block, "dropout_p", 0.2):
            theirs, ours = (torch.stack([run(seed, is_ours) for seed in range(4)]) for is_ours in (False, True))
        spread = (theirs.var(0) + ours.var(0)).sqrt() / 2  # of the difference of two means of four
        print(f"\n  mean losses with dropout, PyTorch's {theirs.mean(0).tolist()}\n  Attune's {ours.mean(0).tolist()}\n  spread {spread.tolist()}", flush=True)
        self.assertLess(((theirs.mean(0) - ours.mean(0)).abs() / spread.clamp_min(1e-3)).median().item(), 3)


if __name__ == "__main__":
    run_tests(verbosity=2, warnings="ignore")
