"""What is printed: a line for each row, the same as a Markdown table, ratios and verdicts."""

import math

from .differences import MEANINGS

ASKED_OF_DETERMINISTIC = 0.8  # of the fast mode's speed
TITLES = {"attune": "Attune", "fa2": "FlashAttention-2", "fa3": "FlashAttention-3", "cudnn": "cuDNN", "flex": "FlexAttention"}
_NOT_PEERS = ("attune", "deterministic")


def peers_of(contenders):
    return [name for name in contenders if name not in _NOT_PEERS]


def ratios_of(contenders):
    """Speeds as multiples of another's: Attune's of each peer's and of the best one's, the deterministic mode's of the fast one's."""
    times = {name: one["median_us"] for name, one in contenders.items() if "median_us" in one}
    ratios = {}
    if "attune" in times:
        ratios = {f"attune/{peer}": times[peer] / times["attune"] for peer in peers_of(times)}
        if ratios:
            ratios["attune/best"] = min(ratios.values())
        if "deterministic" in times:
            ratios["deterministic/attune"] = times["attune"] / times["deterministic"]
    return ratios


def verdicts(row):
    """(what, reached, asked) of each ratio that the row is asked for; nothing is reached where the other cannot be timed."""
    asked = [("attune/fa2", row["asked"])] if row.get("asked") else []
    if "deterministic" in row["contenders"]:
        asked.append(("deterministic/attune", ASKED_OF_DETERMINISTIC))
    return [(what, row["ratios"].get(what), least) for what, least in asked]


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def sections(rows):
    """(heading, rows) by pass and kind of data, in the order in which they were measured."""
    found = {}
    for row in rows:
        found.setdefault((row["shape"]["pass_"], row["data"]), []).append(row)
    return [(f"{pass_}, data {data}: {rows[0]['meaning']}", rows) for (pass_, data), rows in found.items()]


def summary(rows):
    """Lines: the geometric mean of each ratio, how many rows reach what is asked of them, and how far stored times are."""
    lines = []
    names = list(dict.fromkeys(name for row in rows for name in row["ratios"]))
    for what in sorted(names, key=lambda name: (name == "deterministic/attune", name != "attune/best")):
        values = [row["ratios"][what] for row in rows if what in row["ratios"]]
        lines.append(f"{what}: geometric mean {geometric_mean(values):.3f} of {len(values)}, least {min(values):.3f}")
    for what in dict.fromkeys(name for row in rows for name, _, _ in verdicts(row)):
        asked = [(reached, least) for row in rows for name, reached, least in verdicts(row) if name == what]
        met = sum(reached is not None and reached >= least for reached, least in asked)
        lines.append(f"{what}: {met} of {len(asked)} rows reach what is asked")
    for name in dict.fromkeys(name for row in rows for name in row["contenders"]):
        within = [row["contenders"][name]["within"] for row in rows if "within" in row["contenders"].get(name, {})]
        if not all(within):
            lines.append(f"{name}: {within.count(False)} of {len(within)} outputs are beyond the bounds that Attune's are held to")
    beside = [row["stored"]["table_over_stored"] for row in rows if "stored" in row]
    if beside:
        lines.append(f"table/stored: the speed here is {_percent(min(beside))} to {_percent(max(beside))} beside the tuning database's, "
                     f"{_percent(geometric_mean(beside))} in the geometric mean of {len(beside)} rows that it holds")
    return lines


def _percent(ratio):
    return f"{(ratio - 1) * 100:+.1f} %"


def _clock(row):
    clock = row.get("sm_clock_mhz")
    return "" if clock is None else f"{clock['median']:.0f}"


def heading_of_text(peers):
    columns = " ".join(f"{name[:7]:>7}" for name in ("attune", *peers))
    ratios = " ".join(f"{name[:6]:>6}" for name in ("best", *peers))
    return f"{'TFLOP/s and ratios':53} {'data':11} {columns}   {ratios}   {'MHz':>4}  stored  error    rule"


def row_as_text(row, peers):
    def figure(name):
        return f"{row['contenders'][name]['tflops']:7.1f}" if "tflops" in row["contenders"].get(name, {}) else f"{'-':>7}"

    def ratio(name):
        return f"{row['ratios'][name]:6.3f}" if name in row["ratios"] else f"{'-':>6}"

    own = [row["contenders"][name] for name in _NOT_PEERS if name in row["contenders"]]
    verdict = "ok" if all(contender["within"] for contender in own) else "WRONG"
    stored = _percent(row["stored"]["table_over_stored"]) if "stored" in row else "-"
    figures = " ".join(figure(name) for name in ("attune", *peers))
    ratios = " ".join(ratio(f"attune/{name}") for name in ("best", *peers))
    pass_and_title = f"{row['shape']['pass_']:8} {row['title']}"
    error, rule = (max(one[name] for one in own) for name in ("relative_error", "error_over_rule"))
    lines = [f"{pass_and_title:53} {row['data']:11} {figures}   {ratios}   {_clock(row) or '-':>4} {stored:>7}  {error:.1e} {rule:6.2f}  "
             f"{verdict:5} {row['config']} ({row['origin']})"]
    wrong = [name for name in peers if row["contenders"].get(name, {}).get("within") is False]
    lines += [f"{'':53}   beyond Attune's bounds: {', '.join(wrong)}"] if wrong else []
    for what, reached, least in verdicts(row):
        value = "cannot be timed" if reached is None else f"{reached:.3f}, {'reached' if reached >= least else 'MISSED'}"
        lines.append(f"{'':53}   {what}: {least:.2f} is asked: {value}")
    return "\n".join(lines)


def _markdown_table(header, lines):
    return ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)] + ["| " + " | ".join(line) + " |" for line in lines]


def as_markdown(document):
    """The whole comparison, with what it was measured by, as README shows it."""
    machine, lines = document["machine"], []
    known = [("GPU", "gpu"), ("driver", "driver"), ("CUDA", "cuda"), ("PyTorch", "torch"), ("cuDNN", "cudnn"), ("Attune", "attune")]
    versions = [f"{title} {machine[name]}" for title, name in known if machine.get(name) is not None]
    clocks = [row["sm_clock_mhz"] for row in document["rows"] if "sm_clock_mhz" in row]
    if clocks:
        versions.append(f"SM clock {min(clock['least'] for clock in clocks):.0f} to {max(clock['most'] for clock in clocks):.0f} MHz "
                        "while it was measured")
    if "power_watts" in document["limits"]:
        versions.append(f"power limit {document['limits']['power_watts']:.0f} W")
    lines += [", ".join(versions) + ". " + document["protocol"], ""]
    for heading, rows in sections(document["rows"]):
        peers = list(dict.fromkeys(name for row in rows for name in peers_of(row["contenders"])))
        modes = ["attune"] + ["deterministic"] * any("deterministic" in row["contenders"] for row in rows)
        has_stored, has_clock = any("stored" in row for row in rows), any("sm_clock_mhz" in row for row in rows)
        titles = [TITLES.get(name, name) for name in (*modes, *peers)]
        header = ["shape", "data", *titles, *(f"to {TITLES.get(peer, peer)}" for peer in peers), "to the best"]
        header += ["SM MHz"] * has_clock + ["to stored"] * has_stored
        table = []
        for row in rows:
            figures = [f"{row['contenders'][name]['tflops']:.1f}" if "tflops" in row["contenders"].get(name, {}) else "-"
                       for name in (*modes, *peers)]
            ratios = [f"{row['ratios'][f'attune/{peer}']:.2f}" if f"attune/{peer}" in row["ratios"] else "-" for peer in peers]
            best = f"**{row['ratios']['attune/best']:.2f}**" if "attune/best" in row["ratios"] else "-"
            stored = [_percent(row["stored"]["table_over_stored"]) if "stored" in row else "-"] * has_stored
            table.append([row["title"], row["data"], *figures, *ratios, best, *[_clock(row) or "-"] * has_clock, *stored])
        lines += [f"{heading[0].upper()}{heading[1:]}; TFLOP/s and ratios:", "", *_markdown_table(header, table), ""]
        lines += [f"- {line}" for line in summary(rows)] + [""]
        lines += differences_as_lines(rows)
    return "\n".join(lines).rstrip() + "\n"


def differences_as_lines(rows):
    """Of rows that were timed in several ways: a table for each and the means, in Markdown; nothing of others."""
    rows, lines = [row for row in rows if "variants" in row], []
    if not rows:
        return lines
    names = list(dict.fromkeys(name for row in rows for name in row["variants"]))
    lines += [f"- {name}: {MEANINGS[name]}" for name in names] + [""]
    for row in rows:
        stored, table = row["variants"].get("stored"), []
        for name, timed in row["variants"].items():
            clock = timed.get("sm_clock_mhz")
            table.append([name, f"{timed['median_us']:.1f}", f"{timed['tflops']:.1f}", f"{clock['median']:.0f}" if clock else "-",
                          f"{timed['power_watts']:.0f}" if "power_watts" in timed else "-",
                          f"{timed['kilocycles']:.0f}" if "kilocycles" in timed else "-",
                          _percent(row["variants"]["alone"]["median_us"] / timed["median_us"]),
                          _percent(stored["median_us"] / timed["median_us"]) if stored else "-"])
        header = ["way", "us", "TFLOP/s", "SM MHz", "W", "kilocycles", "speed beside alone", "beside stored"]
        lines += [f"{row['problem']}, {row['config']}:", "", *_markdown_table(header, table), ""]
    table = []
    for name in names:
        beside_alone = [row["variants"]["alone"]["median_us"] / row["variants"][name]["median_us"] for row in rows if name in row["variants"]]
        beside_stored = [row["variants"]["stored"]["median_us"] / row["variants"][name]["median_us"] for row in rows
                         if name in row["variants"] and "stored" in row["variants"]]
        table.append([name, str(len(beside_alone)), *(
            f"{_percent(geometric_mean(values))} ({_percent(min(values))} to {_percent(max(values))})" if values else "-"
            for values in (beside_alone, beside_stored))])
    return lines + ["All of them, geometric means and ranges of the speed:", "",
                    *_markdown_table(["way", "rows", "beside alone", "beside stored"], table), ""]
