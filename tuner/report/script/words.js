"use strict";
// Numbers and words as the page writes them, and the arithmetic below them. No document, no data.

const kNoBreak = "\u00a0";

const fixed = (digits) => (value) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const whole = fixed(0);
const number = (value) =>
  typeof value !== "number" ? String(value)
  : value === 0 ? "0"
  : Math.abs(value) >= 1000 ? whole(value)
  : Math.abs(value) >= 100 ? fixed(1)(value)
  : Math.abs(value) >= 1 ? fixed(2)(value)
  : value.toPrecision(3);
const tick = (value) => (value >= 1000 ? whole(value) : String(+value.toPrecision(4)));
const ratio = (value) => fixed(2)(value) + "×";
const percent = (value) => fixed(value < 0.1 ? 1 : 0)(value * 100) + kNoBreak + "%";
const signedPercent = (value) => (value < 0 ? "−" : "+") + fixed(1)(Math.abs(value) * 100) + kNoBreak + "%";
const words = (name) => name.replace(/_/g, " ");
const day = (stamp) => stamp.slice(0, 16).replace("T", " ");
const plural = (count, noun) => whole(count) + " " + noun + (count === 1 ? "" : "s");
const clipped = (long, length) => (long.length > length ? long.slice(0, length) + " …" : long);
const text = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

// Not Math.min(...values): there may be more values than a call has arguments.
const least = (values) => values.reduce((low, value) => Math.min(low, value), Infinity);
const most = (values) => values.reduce((high, value) => Math.max(high, value), -Infinity);
const sum = (values) => values.reduce((total, value) => total + value, 0);
const mean = (values) => sum(values) / values.length;
const geometricMean = (values) => Math.exp(mean(values.map(Math.log)));
function median(values) {
  const sorted = values.slice().sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
const distinct = (values) => Array.from(new Set(values));
const inOrder = (values) =>
  values.slice().sort((a, b) => (typeof a === "number" && typeof b === "number" ? a - b : text(String(a), String(b))));

/// A domain that leaves room around the values on a logarithmic axis.
const padded = (values, share) => [least(values) / (1 + share), most(values) * (1 + share)];
// The same mark lies at the same place whenever it is drawn.
const jitter = (i) => ((i * 0.6180339887) % 1) - 0.5;

/// Round values inside [low, high], evenly apart, about `count` of them.
function evenTicks(low, high, count) {
  const rough = (high - low) / count, power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); ++i) found.push(+(i * step).toPrecision(12));
  return found;
}
/// Places in a list of so many, counted from 1.
const placeTicks = (places, count) => evenTicks(0, places, count).filter((value) => value >= 1 && Number.isInteger(value));

/// Round values inside [low, high], about `count` of them, evenly readable on a logarithmic axis.
function logTicks(low, high, count) {
  if (high / low < 4) return evenTicks(low, high, count);
  const found = [];
  const decades = Math.log10(high / low);
  const steps = decades * 9 <= count * 1.2 ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : decades * 3 <= count * 1.3 ? [1, 2, 5] : [1];
  const stride = decades > count ? Math.ceil(decades / count) : 1;
  for (let power = Math.floor(Math.log10(low)); Math.pow(10, power) <= high; power += stride) {
    steps.forEach((step) => {
      const value = +(step * Math.pow(10, power)).toPrecision(12);
      if (value >= low * 0.9999 && value <= high * 1.0001) found.push(value);
    });
  }
  return found;
}

/// The words of a label on lines of at most `room` letters, a longer word on its own.
function onLines(label, room) {
  const lines = [];
  String(label).replace(/-/g, "-\u200b").split(/[ \u200b]/).forEach((word) => {
    const last = lines.length - 1;
    const glue = last >= 0 && lines[last].endsWith("-") ? "" : " ";
    if (last >= 0 && (lines[last] + glue + word).length <= room) lines[last] += glue + word;
    else lines.push(word);
  });
  return lines;
}

/// Heights in ascending order, pushed apart until each is `gap` from the next and none is outside of [low, high].
function pushedApart(heights, gap, low, high) {
  const apart = heights.slice();
  for (let i = 0; i < apart.length; ++i) apart[i] = Math.max(apart[i], i ? apart[i - 1] + gap : low);
  for (let i = apart.length - 1; i >= 0; --i) apart[i] = Math.min(apart[i], i < apart.length - 1 ? apart[i + 1] - gap : high);
  return apart;
}
