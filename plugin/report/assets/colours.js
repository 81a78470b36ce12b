"use strict";
// Colours of layers by what the reader chose, and the legend.
const CATEGORIES = [
  "#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#eeca3b", "#9d755d", "#ff9da6", "#7f7fd5",
  "#3a9e9e", "#bab0ac", "#a3c65c", "#d67195", "#6b8e9f", "#c49c5a",
];
const RAMPS = {
  light: ["#edf2f8", "#fdd58a", "#f2913d", "#b3261e"],
  dark: ["#223043", "#7a5a1e", "#d9822b", "#ff8a75"],
};
const CHANGE_RAMPS = { light: ["#137a4c", "#eef1f5", "#c2362b"], dark: ["#3ccf8e", "#273242", "#ff6f60"] };
const MODES = {
  routine: { title: "routine", of: (layer) => layer.routine },
  kind: { title: "kind of layer", of: (layer) => layer.kind || "not recorded" },
  dtype: { title: "element type", of: (layer) => layer.dtype || "as the model" },
  device: { title: "device", of: (layer) => layer.device },
  time: { title: "time", of: (layer) => layer.time, show: ms, ramp: RAMPS },
  share: { title: "share of the peak", of: (layer) => layer.share, show: percent, ramp: RAMPS, least: 0, most: 1 },
  live: { title: "live memory", of: (layer) => layer.live, show: bytes, ramp: RAMPS },
  error: { title: "error of the kernel", of: (layer) => layer.kernelError, show: small, ramp: RAMPS, logarithmic: true },
};
if (report.models.length > 1) {
  MODES.change = {
    title: "difference of time",
    of: (layer) => {
      const change = changeOf[state.side].get(layer.name);
      return change && known(change.cost) ? change.cost : null;
    },
    show: (value) => `${value > 0 ? "+" : ""}${ms(value)}`,
    ramp: CHANGE_RAMPS,
    signed: true,
  };
  state.colour = "change";
} else if (model().unsplit) {
  state.colour = "kind";
}
const theme = () => document.documentElement.dataset.theme;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function mixed(stops, position) {
  const place = Math.min(Math.max(position, 0), 1) * (stops.length - 1);
  const index = Math.min(Math.floor(place), stops.length - 2);
  const part = (text, at) => parseInt(text.slice(at, at + 2), 16);
  const channel = (at) => {
    const [from, to] = [part(stops[index], at), part(stops[index + 1], at)];
    return Math.round(from + (to - from) * (place - index)).toString(16).padStart(2, "0");
  };
  return `#${channel(1)}${channel(3)}${channel(5)}`;
}

function contrast(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return red * 0.299 + green * 0.587 + blue * 0.114 > 150 ? "#10161f" : "#ffffff";
}

/** Function from a layer to its colour, with what the legend shows. */
function colouring() {
  const mode = MODES[state.colour];
  const values = model().layers.map(mode.of);
  const none = theme() === "dark" ? "#2b3543" : "#e4e8ee";
  if (!mode.ramp) {
    const counts = new Map();
    model().layers.forEach((layer, index) => {
      const entry = counts.get(values[index]) ?? { count: 0, time: 0 };
      counts.set(values[index], { count: entry.count + 1, time: entry.time + (layer.time ?? 0) });
    });
    const names = [...counts.keys()].sort((a, b) => counts.get(b).time - counts.get(a).time || counts.get(b).count - counts.get(a).count);
    const colours = new Map(names.map((name, index) => [name, CATEGORIES[index % CATEGORIES.length]]));
    return { mode, names, counts, of: (layer) => colours.get(mode.of(layer)), byName: colours };
  }
  const found = values.filter((value) => known(value) && (!mode.logarithmic || value > 0));
  let least = mode.least ?? Math.min(...found, Infinity);
  let most = Math.max(...found, mode.most ?? -Infinity);
  if (mode.signed) { most = Math.max(Math.abs(least), Math.abs(most)); least = -most; }
  const scale = mode.logarithmic ? Math.log : (value) => value;
  const span = scale(most) - scale(least) || 1;
  const stops = mode.ramp[theme()];
  const of = (layer) => {
    const value = mode.of(layer);
    if (!known(value) || (mode.logarithmic && value <= 0)) return none;
    return mixed(stops, (scale(value) - scale(least)) / span);
  };
  return { mode, of, least, most, stops, empty: !found.length };
}

function drawLegend(colours) {
  const legend = byId("legend");
  const rows = [make("div", {}, make("b", {}, colours.mode.title))];
  if (colours.names) {
    for (const name of colours.names.slice(0, 16)) {
      const { count: layers, time } = colours.counts.get(name);
      const swatch = make("i");
      swatch.style.background = colours.byName.get(name);
      rows.push(make("div", {}, swatch, make("span", {}, name), make("small", {}, time ? `${layers} × · ${ms(time)}` : `${layers} ×`)));
    }
    if (colours.names.length > 16) rows.push(make("div", {}, `and ${colours.names.length - 16} more`));
  } else if (colours.empty) {
    rows.push(make("div", { class: "quiet" }, "not measured"));
  } else {
    const ramp = make("i", { class: "ramp" });
    ramp.style.background = `linear-gradient(90deg, ${colours.stops.join(",")})`;
    rows.push(make("div", {}, make("span", {}, colours.mode.show(colours.least)), ramp, make("span", {}, colours.mode.show(colours.most))));
  }
  if (model().adapts.length)
    rows.push(make("div", {}, make("i", { class: "line" }), make("span", {}, "conversion"), make("small", {}, `${model().adapts.length} × · ${ms(model().adaptTime)}`)));
  legend.replaceChildren(...rows);
}
