"""Every figure of a prompt, read back out of its text and held against the simulated run.

`unproven(parts, found, ...)` gives the lines that no sentence of this grammar reads, or whose figures are not those
of the run: what an engine did is summed up here from the timeline, not taken from what wrote the text.
"""

import math
import re
from collections import Counter, defaultdict

from accelopt.sim.timing.machine.schedule import QUEUES
from accelopt.sim.timing.stream.operation import QUEUE_NAMES
from accelopt.sim.timing.what_if import what_ifs, with_changes

N = r"([\d,]+(?:\.\d+)?(?:e[-+]?\d+)?)"
WORDS = re.compile("[A-Za-z]{2,}")
MIB = 1 << 20


def number(text):
    return float(text.replace(",", ""))


def near(text, value, slack=6e-3, more=0.0):
    """The figure as a text with few digits says it, a share as %, or by so much `more` another one."""
    if text.endswith("%"):
        return abs(number(text[:-1]) / 100 - value) <= 0.0051
    return abs(number(text) - value) <= slack * max(abs(value), 1e-12) + 1e-12 + more


def half_a_digit(text, digits):
    """By how much a figure of so many significant digits may differ from what it says."""
    return 0.501 * 10.0 ** (math.floor(math.log10(max(number(text), 1e-9))) + 1 - digits)


class Facts:
    """What a run did, by line, engine and core, from its instances."""

    def __init__(self, found, bound):
        run = found.run
        self.found, self.bound, self.now, self.spec = found, bound, found.latency_ms, run.spec
        self.asked = {one.question: one.latency_ms for one in what_ifs(found)}
        self.critical = {one.source.line: one.critical_ms / self.now for one in found.lines}
        self.waiting = {one.source.line: one.waiting_ms / self.now for one in found.lines}
        self.times, self.bytes, self.read = Counter(), Counter(), Counter()
        self.busy, self.pieces, self.forms = defaultdict(float), defaultdict(set), set()
        self.starts = defaultdict(list)
        self.first, self.last = {}, {}
        timeline = run.timeline
        for at, (kind, cost) in enumerate(zip(run.stream.kind, run.costs, strict=True)):
            item = run.stream.instances[kind]
            line, queue = item.operation.source.line, timeline.queue[at]
            name, core = QUEUE_NAMES[queue % QUEUES], queue // QUEUES
            self.times[line] += 1
            self.starts[name, core, line].append(timeline.start[at] * 1e-6)
            self.first[name, core] = min(
                self.first.get((name, core), 9e9), timeline.start[at] * 1e-6
            )
            self.last[name, core] = max(self.last.get((name, core), 0.0), timeline.done[at] * 1e-6)
            ns = cost.engine_ns if cost else timeline.free[at] - timeline.start[at]
            self.busy[line, name] += ns * 1e-6 / run.stream.cores
            if cost:
                self.bytes[line] += max(cost.hbm_read, cost.hbm_write) or cost.bytes
                self.pieces[line].add(round(cost.moved / cost.descriptors))
                tensor = item.operation.reads[0].tensor.name if item.operation.reads else ""
                self.read[tensor, line] += cost.hbm_read
        self.lines = {*self.times}
        self.loops = {loop.source.line for item in run.stream.instances for loop in item.loops}

    def at_work(self, text):
        """`vector 0.4 ms (93%), ...`, of each core where there are two."""
        cores = self.found.occupancy_by_core
        for number_, part in enumerate(text.split("; ")):
            shares = cores[number_] if len(cores) > 1 else self.found.occupancy
            for one in part.removeprefix(f"core {number_}: ").split(", "):
                name, ms, share = re.fullmatch(rf"(\w+) {N} ms \((\d+%)\)", one).groups()
                if not (near(ms, shares[name] * self.now) and near(share, shares[name])):
                    return False
        return True

    def taken_up(self, text):
        """`dma for 0.05 ms, ...`: all engines that instructions take up for less than 3/4 of their time at
        work, and for how long, summed up over instances."""
        told = dict(re.findall(rf"(\w+) for {N} ms", text))
        busy = Counter()
        for (_, name), ms in self.busy.items():
            busy[name] += ms
        return all(
            near(told[name], busy[name]) if name in told else busy[name] >= 0.74 * share * self.now
            for name, share in self.found.occupancy.items() if share >= 0.01
        )  # fmt: skip

    def asks(self, milliseconds, change, question):
        """A what-if, of lines and engines asked once more."""
        then = self.asked.get(question)
        if then is None:
            return False
        again = None
        if one := re.fullmatch(r"line (\d+) takes half as long", question):
            again = with_changes(self.found, [(frozenset({int(one[1])}), 0.5)])
        elif one := re.fullmatch(r"(\w+) engine takes no time", question):
            again = with_changes(self.found, [(one[1], 0.0)])
        elif question == "DMA takes no time":
            again = with_changes(self.found, [("dma", 0.0)])
        elif one := re.fullmatch("(loads|stores) take no time", question):
            again = with_changes(self.found, [(one[1], 0.0)])
        if again is not None and abs(again - then) > 1e-9:
            return False
        return near(milliseconds, then) and abs(int(change) / 100 - (then / self.now - 1)) <= 0.0051

    def bounded(self, least, listed, share):
        named = [number(one) for one in re.findall(rf" {N}(?=,| ms|$)", listed)]
        parts = all(any(near(f"{one}", ms) for ms in self.bound.least) for one in named)
        return (
            near(least, self.bound.latency_ms)
            and parts
            and abs(number(share) / 100 - self.bound.least.fraction(self.now)) <= 6e-4
        )

    def gap(self, engine, core, at, ms, line):
        begins = number(at) + number(ms)
        slack = half_a_digit(at, 4) + half_a_digit(ms, 3) + 1e-6
        return any(abs(start - begins) <= slack for start in self.starts[engine, core, int(line)])

    def row(self, line, critical, waiting, times, moved, busy):
        line = int(line)
        listed = [re.fullmatch(rf"(\w+) {N} ms", one).groups() for one in busy.split(", ") if busy]
        return (
            near(f"{critical}%", self.critical[line]) and near(f"{waiting}%", self.waiting[line])
            and number(times) == self.times[line]
            and near(moved.strip() or "0", self.bytes[line] / MIB)
            and all(near(ms, self.busy[line, name], 8e-3) for name, ms in listed)
        )  # fmt: skip

    def reread(self, tensor, size, times, line):
        held = next(one for one in self.found.reads if one.tensor == tensor)
        return near(size, held.size / MIB) and near(times, self.read[tensor, int(line)] / held.size)

    def priced(self, engine, each, times, ms, partitions, wide, lines, remarks):
        lines = [int(one) for one in re.findall(r"\d+", lines)]
        cores = self.found.run.stream.cores
        if not all(line in self.lines and number(times) <= self.times[line] for line in lines):
            return False
        if not near(
            ms, number(each) * number(times) * 1e-6 / cores, 1e-2 + 0.6 / max(number(each), 1)
        ):
            return False
        if not all(number(ms) <= self.busy[line, engine] * 1.006 for line in lines):
            return False
        return all(
            self.remark(one, engine, each, partitions, wide, lines)
            for one in remarks.split("; ")
            if one
        )

    def remark(self, text, engine, each, partitions, wide, lines):
        spec = self.spec
        if one := re.fullmatch(
            r"(\d+) of (\d+) (?:lanes work|rows of the array work: contract over more)", text
        ):
            return (one[1], int(one[2])) == (partitions, spec.partitions)
        if one := re.fullmatch(
            rf"{N} of {N} ns (?:are its fixed cost: wider tiles|at the peak rate: .*)", text
        ):
            return number(one[1]) <= number(one[2]) == number(each)
        if one := re.fullmatch(r"pieces of (\d+) B: (\d+)% of the DMA rate", text):
            pieces = {piece for line in lines for piece in self.pieces[line]}
            return min(pieces) <= int(one[1]) <= max(pieces) and int(one[2]) <= 100
        if one := re.fullmatch(r"(\d+) partitions use (\d+) of (\d+) DMA engines", text):
            return (
                one[1] == partitions
                and int(one[2]) == -(-int(one[1]) // spec.dma_partitions_per_engine)
                and int(one[3]) == spec.dma_engines
            )
        if one := re.fullmatch(
            r"neighbours (\d+) B apart: half the rate of those up to 16 B apart", text
        ):
            return int(one[1]) > 16
        if one := re.fullmatch(r"moving only (\d+) wide: the fixed part weighs (\d+) times", text):
            return one[1] == wide and int(one[2]) == 512 // int(wide)
        return (
            text
            in (
                "half of that with one operand in PSUM",
                "spreads a row over the partitions",
                "cores that wait for each other less often",
            )
            or "read at run time" in text
        )

    def decided(self, lines, said):
        """Something that the compiler did at these lines, with how often and how many MiB."""
        said = re.sub(r" \(line \d+\)", "", said)
        for line in map(int, lines.split(", ")):
            if not any(
                one.source.line == line and self._tells(one, said) for one in self.found.decisions
            ):
                return False
        return True

    def _tells(self, one, said):
        count = re.search(r", ([\d,]+) times", said)
        size = re.search(rf", {N} MiB$", said)
        return (
            (
                number(count[1]) == one.count
                if count and one.count > 1
                else one.count == 1 or str(one.count) in one.action
            )
            and (size is None or near(size[1], one.bytes / MIB))
            and {*WORDS.findall(re.sub(r"t\d+", "", one.action))} <= {*WORDS.findall(said)}
        )

    def limited(self, category, resource, share, reason, lines):
        """What a judge, a worker or a summarizer is told of one resource."""
        found, now = self.found, self.now
        most = max(found.occupancy.values())
        peak = {one.name: one.ms for one in found.bounds}
        engine = {"dma": "DMA", "overlap": "nothing"}.get(resource, f"{resource} engine")
        without = (
            f"{engine} {'waits for anything else' if engine == 'nothing' else 'takes no time'}"
        )
        spills = {one.source.line: one for one in found.spills}
        summary = found.summary

        def read(tensor, times):
            size = next(one.size for one in found.reads if one.tensor == tensor)
            return near(
                times, sum(n for (name, _), n in self.read.items() if name == tensor) / size
            )

        known = [
            (rf"busy for {N} of {N} ms", lambda a, b: near(a, found.occupancy[resource] * now) and near(b, now)),
            (rf"busy for {N} of {N} ms, {N} ms at the peak rate of its operands",
             lambda a, b, c: near(a, found.occupancy[resource] * now) and near(b, now) and near(c, peak["at peak FLOPs"])),
            (r"transposes are (\d+%) of its operations",
             lambda a: near(a, summary["transpose_flops"] / (summary["hardware_flops"] or 1))),
            (rf"busy for {N} ms \(.*\), {N} ms at the peak bandwidth",
             lambda a, b: near(a, peak["actual"]) and near(b, peak["at peak bandwidth"])),
            (rf"(\S+) is read {N} times", read),
            (rf".* of line (\d+) does not stay in SBUF \({N} MiB moved again\)",
             lambda a, b: abs(number(b) - (spills[int(a)].saved + spills[int(a)].reloaded + spills[int(a)].loaded_again) / MIB) <= 0.051),
            (rf"for {N} ms neither the busiest engine nor DMA works", lambda a: near(a, peak["idle"])),
            (r"without it the kernel would take (\d+%) less", lambda a: near(a, 1 - self.asked[without] / now)),
        ]  # fmt: skip
        return (
            near(
                f"{share}%",
                max(0, 1 - most) if resource == "overlap" else found.occupancy[resource],
            )
            and {int(n) for n in (lines or "").split(", ") if n} <= self.lines | self.loops
            and all(
                any(check(*m.groups()) for one, check in known if (m := re.fullmatch(one, said)))
                for said in reason.split("; ")
            )
        )


def sentences(facts):
    """The sentences of each part: a pattern, and whether its figures are so."""
    f, found = facts, facts.found
    peak = {one.name: one.ms for one in found.bounds}
    moved = found.true_counts.hbm_read_bytes + found.true_counts.hbm_write_bytes
    shares = {f"{share:.0%}" for share in found.occupancy.values()}
    spills = {one.source.line: one for one in found.spills}
    limits = [
        (rf"{N} ms, ([^,]+, .*?)\. Limiting resource: (.*)",
         lambda a, b, c: near(a, f.now, 1e-3) and b == found.simulated_on and {*re.findall(r"\d+%", c)} <= shares),
        (rf"At work: (.*)\. Launch: {N} ms, which no kernel avoids\.",
         lambda a, b: f.at_work(a) and near(b, f.spec.launch_ns * 1e-6)),
        (r"Of that, instructions take up (.*); for the rest, what they began is on its way\.", f.taken_up),
        (r"For lack of room in SBUF for a second iteration, line (\d+) loads .*",
         lambda a: any(d.pass_name == "separate_rounds" and d.source.line == int(a) for d in found.decisions)),
        (rf"No kernel of this problem takes less than {N} ms on .*? \((.*)\): this one(?:, on 1 of them,)? is at ([\d.]+)% of bound\.", f.bounded),
        (rf"Moved: {N} MiB, {N} ms at the peak rates of DMA and HBM\.",
         lambda a, b: near(a, moved / MIB) and near(b, peak["at peak bandwidth"])),
        (rf"Its matrix products and transposes at the peak rate of their formats: {N} ms\.", lambda a: near(a, peak["at peak FLOPs"])),
        (r"If one thing were different, and everything else as it is, the kernel would take:", lambda: True),
        (rf" +{N} ms +([+-]\d+)%  (.*)", f.asks),
        (r"Nothing to gain where: (.*)\.", lambda a: all(1 - f.asked[one] / f.now < 0.01 for one in a.split("; "))),
    ]  # fmt: skip
    lines = [
        (r" line  critical  waiting    times      MiB  busy", lambda: True),
        (r" *(\d+) +(\d+)% +(\d+)% +([\d,]+) ( *[\d.e-]*) +(\w.*)?", lambda *a: f.row(*a[:5], a[5] or "")),
        (r" rest +(\d+)%", lambda a: int(a) <= 100),
        (r"launch +(\d+)%", lambda a: near(f"{a}%", f.spec.launch_ns * 1e-6 / f.now)),
    ]  # fmt: skip
    memory = [
        (rf"(?:SBUF|PSUM)(?: of core \d)?: at most {N} of {N} B a partition live at once \((\d+)%\)(.*)",
         lambda a, b, c, d: number(b) in (f.spec.sbuf_usable_bytes, f.spec.psum_partition_bytes)
         and near(f"{c}%", number(a) / number(b))
         and all(number(one) <= number(a) and int(at) in f.lines | {s.source.line for s in _tensors(found)}
                 for at, one in re.findall(r"\(line (\d+)\) ([\d,]+)", d))),
        (rf"(\S+) \({N} MiB\) is read {N} times by line (\d+): .*", f.reread),
        (r"No input is read more than once\.", lambda: all(one.read <= one.size for one in found.reads)),
        (rf".* \(line (\d+)\) is spilled: {N} MiB saved to HBM, {N} MiB brought back\.",
         lambda a, b, c: near(b, spills[int(a)].saved / MIB) and near(c, spills[int(a)].reloaded / MIB)),
    ]  # fmt: skip
    prices = [
        (r" engine    each      times .*", lambda: True),
        (rf" (\w+) +{N} ns +([\d,]+) +{N}  .*? (\d+)x(\d+)(?: B)? [^,;]*, ((?:line|each of lines) [\d, ]+)(?:; (.*))?",
         lambda *a: f.priced(*a[:7], a[7] or "")),
        (rf" (\d+) further kinds of instructions: ([\d,]+) times, {N} ms in all, mostly their fixed cost",
         lambda a, b, c: int(a) <= number(b) <= sum(f.times.values()) and number(c) <= sum(f.busy.values())),
    ]  # fmt: skip
    compiler = [(r"- lines? ([\d, ]+): (.*)", f.decided)]
    advice = [
        (rf"What to change first, each alone \({N} ms now\):", lambda a: near(a, f.now, 1e-3)),
        (rf" *\d\. {N} to {N} ms (?:written|what-if)[^:]*: (.*)",
         lambda a, b, c: near(a, f.now, 1e-3) and number(b) < f.now
         and {int(n) for part in re.findall(r"\blines? ([\d, ]+\d)", c) for n in part.split(", ")} <= f.lines | f.loops
         and {*re.findall(r"works (\d+%)", c)} <= shares),
        (r"What-if: .*|None of the edits that are simulated gives 2% or more alone\.", lambda: True),
    ]  # fmt: skip
    diagnosis = [
        (
            r"(\w+), (\w+) \((\d+)%\): (.*?)\.(?: Lines ([\d, ]+)\.)?(?: What relieves it: .*)?",
            f.limited,
        )
    ]
    return {
        "advice": advice,
        "diagnosis": diagnosis,
        "limits": limits,
        "lines": lines,
        "memory": memory,
        "prices": prices,
        "compiler": compiler,
    }


def _tensors(found):
    for item in found.run.stream.instances:
        for access in (*item.operation.reads, *item.operation.writes):
            yield access.tensor


def unproven(part, text, facts):
    """The lines of a part that no sentence reads, or of which a figure is not so."""
    if part == "engines":
        return _engines(text, facts)
    if part == "advice":  # its lines are wrapped
        text = re.sub(r"\n {4}|\n(?=is by hand|more or less)", " ", text)
        text = re.sub(r"(What-if: [\s\S]*)", lambda m: m[1].replace("\n", " "), text)
    known, wrong = sentences(facts)[part], []
    for line in text.splitlines():
        fits = [
            check(*m.groups()) for pattern, check in known if (m := re.fullmatch(pattern, line))
        ]
        wrong += [] if any(fits) else [line]
    return wrong


def _engines(text, facts):
    wrong, engine = [], ("", 0)
    for line in text.splitlines()[1:]:
        if one := re.fullmatch(
            rf"  (\w+)(?: of cores? (\d(?:, \d)*))?(?: \(figures of the first, the others within {N}\))? +{N} to {N}, works for ([\d.]+)% of the time; .*",
            line,
        ):
            cores = [*map(int, (one[2] or "0").split(", "))]
            engine = one[1], cores[0]
            within = float(one[3] or 0) * 1.05
            good = all(
                near(one[4], facts.first[one[1], core], 1e-3, within) and near(one[5], facts.last[one[1], core], 1e-3, within)
                and abs(number(one[6]) / 100 - facts.found.occupancy_by_core[core][one[1]]) <= 6e-4 + within / facts.now
                for core in cores
            )  # fmt: skip
        elif one := re.fullmatch(
            rf"    at {N} for {N}(?:, (\d+) such take {N})?: "
            r"line (\d+) (?:waits for .* line (\d+) \((\w+)\)|follows; .*|loads no sooner before the product "
            r"that wants it than its transfer takes: when line (\d+) \((\w+)\) is issued; .*)",
            line,
        ):
            behind, by = one[6] or one[8], one[7] or one[9]
            good = facts.gap(*engine, one[1], one[2], one[5]) and (
                behind is None or any(key[::2] == (by, int(behind)) for key in facts.starts)
            )
            if (
                one[3] is not None
            ):  # each as long as the first at most, and before an instruction of the line
                most = int(one[3]) * number(one[2]) * 1.01
                good &= number(one[2]) < number(one[4]) <= most
                good &= 1 < int(one[3]) <= len(facts.starts[(*engine, int(one[5]))])
        else:
            good = False
        wrong += [] if good else [line]
    return wrong
