"""Problems of attention in Attune's words, and files of them: the format of `attune tune --shapes` (tuner/sweep/shapes_file.h)."""

import csv
import ctypes
import dataclasses
import io
import json
import re

from . import BadInput
from .sequence_lengths import DISTRIBUTIONS, distributed_lengths

FIELDS = ("problem", "pass", "dtype", "batch", "heads", "kv-heads", "seq", "kv-seq", "head-dim", "mask", "causal", "scale", "softcap", "alibi", "bias", "bias-fp32",
          "bias-gradient", "attention-mask", "sink", "dropout", "packed", "layout", "deterministic")
# Words of the tensors of pairs: 1 for each of batch, heads and queries along which one repeats.
PAIRS = tuple(b + h + q + "k" for b in "1b" for h in "1h" for q in "1q")
FLAGS = ("deterministic", "alibi", "sink", "packed", "bias-fp32", "bias-gradient")
# Word of a number in a problem's text: the attribute that it sets.
NUMBERS = {"b": "batch", "hq": "heads", "hkv": "kv_heads", "sq": "seq", "skv": "kv_seq", "d": "head_dim", "align": "alignment"}


@dataclasses.dataclass(frozen=True)
class Problem:
    pass_: str = "forward"
    dtype: str = "bf16"
    batch: int = 1
    heads: int = 1
    kv_heads: int = 1
    seq: int = 1
    kv_seq: int = 1
    head_dim: int = 64
    mask_offset: int = None  # query i attends to keys j <= i + mask_offset; None: to all
    window: tuple = None  # so many keys on both sides of the diagonal that ends at the last key, -1 for all, instead; None: all
    scale: float = None  # None: 1/sqrt(head_dim)
    softcap: float = 0.0  # 0: none
    alibi: bool = False
    bias: str = ""  # of PAIRS; empty: none
    bias_fp32: bool = False
    bias_gradient: bool = False
    attention_mask: str = ""
    sink: bool = False
    dropout: float = 0.0  # 0: none
    packed: bool = False  # `batch` sequences lie one behind the other in `seq` rows of queries and `kv_seq` rows of keys
    lengths: str = "loguniform"  # of DISTRIBUTIONS, of packed sequences
    layout: str = "bshd"
    alignment: int = 16
    deterministic: bool = False

    @property
    def softmax_scale(self):
        return self.head_dim**-0.5 if self.scale is None else self.scale

    @property
    def is_causal(self):
        return self.mask_offset is not None

    @property
    def hides_pairs(self):
        return self.is_causal or self.window is not None

    @property
    def is_bottom_right(self):
        return self.mask_offset == self.kv_seq - self.seq

    @property
    def is_top_left(self):
        return self.mask_offset == 0

    def text(self):
        """Canonical: words that equal their default are left out."""
        words = [self.pass_, self.dtype, f"b{self.batch}", f"hq{self.heads}"]
        words += [f"hkv{self.kv_heads}"] * (self.kv_heads != self.heads) + [f"sq{self.seq}"]
        words += [f"skv{self.kv_seq}"] * (self.kv_seq != self.seq) + [f"d{self.head_dim}"]
        if self.is_causal:
            words.append("causal" if self.is_bottom_right else "causal-top-left" if self.is_top_left else f"causal@{self.mask_offset}")
        if self.window is not None:
            words.append("window=" + ",".join("open" if side < 0 else str(side) for side in self.window))
        if self.scale is not None:
            words.append("scale" + _shortest(self.scale))
        words += [f"softcap{_shortest(self.softcap)}"] * (self.softcap != 0)
        words += ["alibi"] * self.alibi + [f"bias={self.bias}"] * bool(self.bias) + ["bias-fp32"] * self.bias_fp32
        words += ["bias-gradient"] * self.bias_gradient + [f"attention-mask={self.attention_mask}"] * bool(self.attention_mask)
        words += ["sink"] * self.sink + [f"dropout{_shortest(self.dropout)}"] * (self.dropout != 0) + ["packed"] * self.packed + [f"lengths={self.lengths}"] * (self.lengths != "loguniform") + ["bhsd"] * (self.layout == "bhsd") + [f"align{self.alignment}"] * (self.alignment != 16)
        return " ".join(words + ["deterministic"] * self.deterministic)

    def title(self):
        """For a table, whose heading names the pass."""
        heads = f"H{self.heads}" + f"/{self.kv_heads}" * (self.kv_heads != self.heads)
        seq = f"S{self.seq}" + f"/{self.kv_seq}" * (self.kv_seq != self.seq)
        window = "" if self.window is None else "window " + ",".join("open" if side < 0 else str(side) for side in self.window)
        mask = window or "full" if not self.is_causal else "causal" if self.is_bottom_right else "causal top left"
        batch = f"{self.batch} {DISTRIBUTIONS[self.lengths]}" if self.packed else f"B{self.batch}"
        words = [self.dtype, batch, heads, seq.replace("S", "T") if self.packed else seq, f"D{self.head_dim}", mask]
        if self.scale is not None:
            words.append(f"scale {_shortest(self.scale)}")
        if self.softcap != 0:
            words.append(f"softcap {_shortest(self.softcap)}")
        words += ["ALiBi"] * self.alibi + [f"bias {self.bias}" + " fp32" * self.bias_fp32 + " with gradient" * self.bias_gradient] * bool(self.bias)
        words += [f"mask {self.attention_mask}"] * bool(self.attention_mask) + ["sinks"] * self.sink
        if self.dropout != 0:
            words.append(f"dropout {_shortest(self.dropout)}")
        return " ".join(words + ["BHSD"] * (self.layout == "bhsd"))

    def sequence_lengths(self):
        """(queries, keys) of each packed sequence."""
        return list(zip(*(distributed_lengths(self.lengths, rows, self.batch) for rows in (self.seq, self.kv_seq))))

    def alone(self, queries, keys):
        """The problem of one packed sequence of so many queries and keys."""
        offset = keys - queries if self.is_causal and self.is_bottom_right else self.mask_offset
        return dataclasses.replace(self, packed=False, lengths=Problem.lengths, batch=1, seq=queries, kv_seq=keys, mask_offset=offset)

    def attended_pairs(self):
        """(query, key) pairs of one head, of packed sequences of all."""
        if self.packed:
            return sum(self.alone(*lengths).attended_pairs() for lengths in self.sequence_lengths())
        if self.window is not None:
            return sum(keys.stop - keys.start for keys in map(self.keys_in_window, range(self.seq)))
        if not self.is_causal:
            return self.seq * self.kv_seq
        first = min(max(-self.mask_offset, 0), self.seq)  # queries before it see nothing
        full = min(max(self.kv_seq - self.mask_offset - 1, first), self.seq)  # from this one on they see every key
        growing, of_first = full - first, first + self.mask_offset + 1
        return (self.seq - full) * self.kv_seq + growing * of_first + growing * (growing - 1) // 2

    def keys_in_window(self, query):
        """The range of keys that a query attends to."""
        (left, right), diagonal = self.window, query + self.kv_seq - self.seq
        begin = 0 if left < 0 else min(max(diagonal - left, 0), self.kv_seq)
        return range(begin, max(begin, self.kv_seq if right < 0 else min(max(diagonal + right + 1, 0), self.kv_seq)))

    def flops(self):
        of_pair = {"forward": 4.0, "backward": 10.0}[self.pass_] * self.head_dim
        return of_pair * self.attended_pairs() * (1 if self.packed else self.batch) * self.heads

    def fast(self):
        return dataclasses.replace(self, deterministic=False)


def _float32(value):
    return ctypes.c_float(value).value


def _shortest(value):
    shortest = next(number for digits in range(1, 18) if _float32(number := float(f"{value:.{digits}g}")) == _float32(value))
    return repr(shortest).removesuffix(".0")


def parse_problem(text):
    """The problem of a text such as "forward bf16 b4 hq16 sq4096 d128 causal". Raises BadInput."""
    given = {}

    def put(name, value, word):
        if name in given:
            raise BadInput(f"problem '{text}': '{word}' sets what another word has set; leave one of the two away")
        given[name] = value

    for word in text.split():
        number = re.fullmatch(r"(b|hq|hkv|sq|skv|d|align)(-?\d+)", word)
        if word in ("forward", "backward"):
            put("pass_", word, word)
        elif word in ("bf16", "fp16"):
            put("dtype", word, word)
        elif word in ("bshd", "bhsd"):
            put("layout", word, word)
        elif word in FLAGS:
            put(word.replace("-", "_"), True, word)
        elif (pairs := re.fullmatch(r"(bias|attention-mask)=(.*)", word)) and pairs[2] in PAIRS:
            put(pairs[1].replace("-", "_"), pairs[2], word)
        elif (lengths := re.fullmatch(r"lengths=(.*)", word)) and lengths[1] in DISTRIBUTIONS:
            put("lengths", lengths[1], word)
        elif window := re.fullmatch(r"window=(\d+|open),(\d+|open)", word):
            put("window", tuple(-1 if side == "open" else int(side) for side in window.groups()), word)
        elif word in ("causal", "causal-top-left") or re.fullmatch(r"causal@-?\d+", word):
            put("mask", word, word)
        elif name := next((name for name in ("scale", "softcap", "dropout") if word.startswith(name)), None):
            try:
                put(name, float(word[len(name) :]), word)
            except ValueError:
                raise BadInput(f"problem '{text}': '{word}' needs a number after '{name}'") from None
        elif number:
            put(NUMBERS[number[1]], int(number[2]), word)
        else:
            raise BadInput(f"problem '{text}': does not understand '{word}'")
    if not given:
        raise BadInput("an empty problem text; write for example 'forward bf16 b2 hq16 sq4096 d128 causal'")
    mask = given.pop("mask", None)
    if mask is not None and "window" in given:
        raise BadInput(f"problem '{text}': '{mask}' beside a window: a window that ends at the diagonal is window=LEFT,0")
    given.setdefault("kv_heads", given.get("heads", 1))
    given.setdefault("kv_seq", given.get("seq", 1))
    problem = Problem(**given)
    if mask is not None:
        offsets = {"causal": problem.kv_seq - problem.seq, "causal-top-left": 0}
        problem = dataclasses.replace(problem, mask_offset=offsets[mask] if mask in offsets else int(mask[len("causal@") :]))
    if problem.scale is not None and _float32(problem.scale) == _float32(problem.head_dim**-0.5 if problem.head_dim > 0 else 0):
        problem = dataclasses.replace(problem, scale=None)
    _validate(problem, text)
    return problem


def _validate(problem, text):
    if problem.head_dim % 8 != 0 or not 8 <= problem.head_dim <= 256:
        raise BadInput(f"problem '{text}': head dim {problem.head_dim}: must be a multiple of 8 from 8 to 256")
    for name in ("batch", "heads", "kv_heads", "seq", "kv_seq"):
        if getattr(problem, name) < 1:
            raise BadInput(f"problem '{text}': {name.replace('_', '-')} is {getattr(problem, name)}: must be at least 1")
    if problem.heads % problem.kv_heads != 0:
        raise BadInput(f"problem '{text}': {problem.heads} query heads are not divisible by {problem.kv_heads} key/value heads")
    if problem.scale is not None and not 0 < _float32(problem.scale) < float("inf"):
        raise BadInput(f"problem '{text}': scale {problem.scale}: must be positive and finite")
    if not 0 <= _float32(problem.softcap) < float("inf"):
        raise BadInput(f"problem '{text}': softcap {problem.softcap}: must be positive and finite")
    if not 0 <= _float32(problem.dropout) < 1:
        raise BadInput(f"problem '{text}': dropout {problem.dropout}: must be at least 0 and less than 1")
    if (problem.bias_fp32 or problem.bias_gradient) and not problem.bias:
        raise BadInput(f"problem '{text}': bias-fp32 and bias-gradient are said of a bias: name its dimensions, too, such as bias=bhqk")
    if problem.bias_gradient and problem.pass_ == "forward":
        raise BadInput(f"problem '{text}': bias-gradient: only a backward problem has it")
    if problem.lengths != Problem.lengths and not problem.packed:
        raise BadInput(f"problem '{text}': lengths={problem.lengths} is said of packed sequences: say packed, too")
    if problem.packed and (problem.bias or problem.attention_mask):
        raise BadInput(f"problem '{text}': packed sequences have no bias and no attention mask")
    if problem.alignment not in (2, 16):
        raise BadInput(f"problem '{text}': alignment {problem.alignment}: must be 16 or 2")
    if problem.deterministic and problem.pass_ == "forward":
        raise BadInput(f"problem '{text}': deterministic: every forward kernel is, so only a backward problem takes the word")


def read_shapes(path):
    """Problems of a .json or .csv file; equal ones are listed once, in the order of the file. Raises BadInput that names file, row (from 1)
    and field."""
    name = path.name
    if path.suffix not in (".json", ".csv"):
        raise BadInput(f"{path}: a list of problems ends in .json or .csv")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text") from None
    rows = _json_rows(text, name) if path.suffix == ".json" else _csv_rows(text, name)
    problems = list(dict.fromkeys(_problem_of_row(fields, place) for fields, place in rows))
    if not problems:
        raise BadInput(f"{name} holds no problem")
    return problems


def _field(name, place):
    field = name.replace("_", "-")
    if field not in FIELDS:
        raise BadInput(f"{place}: there is no field '{field}'; fields: {', '.join(FIELDS)}")
    return field


def _json_rows(text, name):
    try:
        document = json.loads(text, object_pairs_hook=_Object)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name} is not JSON: {error}") from None
    if isinstance(document, _Object) or not isinstance(document, list):
        raise BadInput(f"{name}: must be an array of canonical texts or objects")
    for number, entry in enumerate(document, 1):
        place = f"{name}, row {number}"
        if isinstance(entry, str):
            yield {"problem": entry}, place
        elif isinstance(entry, _Object):
            fields = {}
            for key, value in entry:
                field = _field(key, place)
                if value is None:
                    continue
                if isinstance(value, list):
                    raise BadInput(f"{place}, field {field}: must not be an {'object' if isinstance(value, _Object) else 'array'}")
                if field in fields:
                    raise BadInput(f"{place}, field {field}: is there twice")
                fields[field] = value if isinstance(value, str) else json.dumps(value)
            yield fields, place
        else:
            raise BadInput(f"{place}: must be a canonical text or an object")


class _Object(list):
    """A JSON object as its pairs, so that a field that is there twice is seen."""


def _csv_rows(text, name):
    header, number = None, 0
    try:
        for cells in csv.reader(io.StringIO(text, newline=""), strict=True):
            cells = [cell.strip() for cell in cells]
            if not any(cells) and len(cells) < 2:
                continue
            if header is None:
                header = [_field(cell, f"{name}, header") for cell in cells]
                twice = next((field for field in header if header.count(field) > 1), None)
                if twice:
                    raise BadInput(f"{name}, header: the field {twice} is there twice")
                continue
            number += 1
            place = f"{name}, row {number}"
            if len(cells) != len(header):
                raise BadInput(f"{place}: {len(cells)} cells under a header of {len(header)}")
            yield {field: cell for field, cell in zip(header, cells) if cell}, place
    except csv.Error as error:
        raise BadInput(f"{name}, row {number + 1}: {error}") from None


def _problem_of_row(fields, place):
    if "problem" in fields:
        others = [field for field in fields if field != "problem"]
        if others:
            raise BadInput(f"{place}, field {others[0]}: problem already names the whole problem; put it into the text")
        try:
            return parse_problem(fields["problem"])
        except BadInput as error:
            raise BadInput(f"{place}, field problem: {error}") from None

    def choice(field, known):
        if field in fields and fields[field] not in known:
            raise BadInput(f"{place}, field {field}: '{fields[field]}' is none of: {', '.join(known)}")
        return [fields[field]] if field in fields else []

    words = choice("pass", ("forward", "backward")) + choice("dtype", ("bf16", "fp16")) + choice("layout", ("bshd", "bhsd"))
    for word, attribute in NUMBERS.items():
        field = attribute.replace("_", "-")
        if field in fields:
            if not re.fullmatch(r"-?\d+", fields[field]):
                raise BadInput(f"{place}, field {field}: '{fields[field]}' is not a whole number")
            words.append(word + fields[field])
    for field in ("seq", "head-dim"):
        if field not in fields:
            raise BadInput(f"{place}, field {field}: is missing")
    for field in ("causal", *FLAGS):
        if fields.get(field, "false") not in ("true", "false"):
            raise BadInput(f"{place}, field {field}: '{fields[field]}' is neither true nor false")
    words += [field for field in FLAGS if fields.get(field) == "true"]
    for field in ("bias", "attention-mask"):
        words += [f"{field}={pairs}" for pairs in choice(field, ("none", *PAIRS)) if pairs != "none"]
    causal, mask = fields.get("causal"), fields.get("mask")
    if causal and mask and (causal == "true") != (mask == "causal"):
        raise BadInput(f"{place}, field causal: '{causal}' contradicts the mask '{mask}'; give one of them")
    if mask and not re.fullmatch(r"none|causal|causal-top-left|causal@-?\d+|window=(\d+|open),(\d+|open)", mask):
        raise BadInput(f"{place}, field mask: '{mask}' is none of: none, causal, causal-top-left, causal@OFFSET, window=LEFT,RIGHT")
    words += ["causal"] if causal == "true" else [mask] if mask and mask != "none" else []
    words += [field + fields[field] for field in ("scale", "softcap", "dropout") if field in fields]
    try:
        return parse_problem(" ".join(words))
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from None
