"use strict";
// The data, what follows from it, and how values are written.
const report = JSON.parse(document.getElementById("data").textContent);
const state = { side: 0, layer: null, colour: "routine", tab: "network", wrap: true };
const model = () => report.models[state.side];
const byId = (id) => document.getElementById(id);

/** An element with attributes and children; texts become text nodes, never HTML. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((each) => each !== null && each !== undefined));
  return element;
}

const known = (value) => value !== null && value !== undefined;
const digits = (value, count = 3) =>
  value === 0 ? "0" : Math.abs(value) >= 1000 ? value.toFixed(0) : Number(value.toPrecision(count)).toString();
/** A time in milliseconds, or in microseconds if it is short. */
function ms(seconds) {
  if (!known(seconds)) return "–";
  return Math.abs(seconds) < 1e-4 && seconds !== 0 ? `${digits(seconds * 1e6)} µs` : `${digits(seconds * 1e3)} ms`;
}
const percent = (share) => (known(share) ? `${(share * 100).toFixed(share < 0.1 ? 1 : 0)}%` : "–");
const rate = (value) => (known(value) ? `${digits(value / 1e9)} GFLOP/s` : "–");
const count = (value) => (value >= 1e9 ? `${digits(value / 1e9)} G` : value >= 1e6 ? `${digits(value / 1e6)} M` : `${value}`);
const small = (value) => (known(value) ? value.toExponential(1) : "–");
function bytes(value) {
  if (!known(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${digits(value)} ${units[unit]}`;
}
/** The end of a name, which says more than its beginning. */
const short = (name, most) => (name.length <= most ? name : `…${name.slice(1 - most)}`);

for (const each of report.models) {
  each.position = new Map(each.layers.map((layer, index) => [layer.name, index]));
  each.into = new Map(each.adapts.map((adapt) => [`${adapt.consumer}#${adapt.slot}`, adapt]));
  each.layers.forEach((layer, index) => {
    layer.index = index;
    layer.time = known(layer.inPlace) ? layer.inPlace : layer.seconds;
    layer.rate = layer.operations && layer.time ? layer.operations / layer.time : null;
    layer.share = layer.rate && each.totals.peak ? layer.rate / each.totals.peak : null;
    layer.intensity = layer.operations && layer.traffic ? layer.operations / layer.traffic : null;
    layer.readers = [];
    const chosen = each.cases[layer.case].candidates.find((candidate) => candidate.chosen);
    layer.kernelError = chosen ? chosen.error : null;
    layer.alone = chosen ? chosen.seconds : null;
  });
  for (const layer of each.layers)
    for (const [source] of layer.inputs) if (source >= 0) each.layers[source].readers.push(layer.index);
  const times = each.layers.map((layer) => layer.time).filter(known);
  each.layerTime = times.length ? times.reduce((sum, time) => sum + time, 0) : null;
  each.adaptTime = each.adapts.reduce((sum, adapt) => sum + (adapt.inPlace ?? adapt.seconds ?? 0), 0);
}

/** For each side the change that a layer belongs to, by the layer's name. */
const changeOf = report.models.map((_, side) => {
  const found = new Map();
  for (const change of report.changes) for (const name of change.sides[side].layers) found.set(name, change);
  return found;
});
