"use strict";
// Tables: all layers, the difference of two modules, and what is known about the module.
const COLUMNS = [
  { title: "#", of: (layer) => layer.index + 1, number: true },
  { title: "layer", of: (layer) => layer.name, cell: (layer) => link(layer.index) },
  { title: "routine", of: (layer) => layer.routine },
  { title: "type", of: (layer) => layer.dtype },
  { title: "result", of: (layer) => layer.results.map((each) => each.type).join(", ") },
  { title: "time", of: (layer) => layer.time ?? -1, cell: (layer) => ms(layer.time), number: true },
  { title: "of all", of: (layer) => layer.time ?? -1, cell: (layer) => (layer.time ? bar(layer.time / model().layerTime, Math.max(...model().layers.map((each) => each.time ?? 0)) / model().layerTime) : ""), number: true },
  { title: "of the peak", of: (layer) => layer.share ?? -1, cell: (layer) => (known(layer.share) ? bar(layer.share, 1) : ""), number: true },
  { title: "GFLOP/s", of: (layer) => layer.rate ?? -1, cell: (layer) => (layer.rate ? digits(layer.rate / 1e9) : ""), number: true },
  { title: "traffic", of: (layer) => layer.traffic ?? -1, cell: (layer) => bytes(layer.traffic), number: true },
];
let sorting = { column: 0, down: false };

function bar(share, most) {
  const inner = make("i");
  inner.style.width = `${Math.min(100, (share / most) * 100)}%`;
  return make("span", {}, make("span", { class: "share" }, inner), percent(share));
}

function drawLayers() {
  const { of } = COLUMNS[sorting.column];
  const ordered = [...model().layers].sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0) * (sorting.down ? -1 : 1));
  const heads = COLUMNS.map((column, index) => {
    const active = index === sorting.column;
    const sort = () => { sorting = { column: index, down: active ? !sorting.down : !!column.number && index > 0 }; drawLayers(); };
    return make("th", { class: column.number ? "number" : null, "aria-sort": active ? (sorting.down ? "descending" : "ascending") : null },
      make("button", { type: "button", onclick: sort }, `${column.title}${active ? (sorting.down ? " ↓" : " ↑") : ""}`));
  });
  const rows = ordered.map((layer) => make("tr", {}, ...COLUMNS.map((column) => make("td", { class: column.number ? "number" : null }, (column.cell ?? ((each) => `${column.of(each)}`))(layer)))));
  byId("layers").replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)));
}

const signed = (seconds) => (known(seconds) ? make("span", { class: seconds > 0 ? "bad" : "good" }, `${seconds > 0 ? "+" : ""}${ms(seconds)}`) : "–");

function drawChanges() {
  const parent = byId("changes"), [first, second] = report.models;
  const differing = report.changes.filter((each) => each.differs);
  const moved = report.changes.filter((each) => !each.differs && Math.abs(each.cost ?? 0) > 0).length;
  const sum = (list) => list.reduce((total, each) => total + (each.cost ?? 0), 0);
  const side = (found, which) => make("td", {}, ...found.layers.map((name, index) => make("div", {}, goTo(which, name), make("div", { class: "quiet" }, make("code", {}, found.variants[index])))), found.layers.length ? null : "–");
  const rows = [...differing].sort((a, b) => Math.abs(b.cost ?? 0) - Math.abs(a.cost ?? 0)).map((each) => make("tr", {},
    make("td", {}, make("code", {}, each.nodes.slice(0, 4).join(", ") + (each.nodes.length > 4 ? `, and ${each.nodes.length - 4} more` : ""))),
    side(each.sides[0], 0), side(each.sides[1], 1), make("td", { class: "number" }, ms(each.sides[0].total)), make("td", { class: "number" }, ms(each.sides[1].total)), make("td", { class: "number" }, signed(each.cost))));
  const heads = ["ONNX nodes", first.name, second.name, "first", "second", "second takes longer"].map((title, index) => make("th", { class: index > 2 ? "number" : null }, title));
  parent.replaceChildren(
    make("h2", {}, `${differing.length} of ${report.changes.length} parts of the network differ`),
    make("p", { class: "note" }, "These add ", signed(sum(differing)), " to the second; what runs the same variants in both, ", signed(sum(report.changes.filter((each) => !each.differs))), ` (${moved} parts). Conversions count with the layer that reads their result.`),
    make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)));
}
const goTo = (side, name) => make("button", { class: "link", type: "button", onclick: () => { setSide(side); select(report.models[side].position.get(name), true); } }, name);

function drawAbout() {
  const found = model();
  const tensors = (list) => make("dl", {}, ...list.flatMap((each) => term(each.name, each.type)));
  byId("about").replaceChildren(
    make("h2", {}, found.name), make("dl", {}, ...found.facts.flatMap(([name, value]) => term(name, value))),
    make("h2", {}, "Inputs"), tensors(found.inputs), make("h2", {}, "Outputs"), tensors(found.outputs),
    make("p", { class: "note" }, `Made by Sartor ${report.sartor}. Times are lower quartiles of measured samples; docs/records/report.md says how to read this page.`),
    make("h2", {}, "Licences of the libraries inside"), make("pre", {}, byId("licences").content.textContent));
}
