"use strict";
// The page: its parts, the selected layer, search and keys.
const TABS = [
  { id: "network", title: "Network", draw: () => drawGraph() },
  ...(report.models.length > 1 ? [{ id: "changes", title: "Difference", draw: drawChanges }] : []),
  { id: "layers", title: "Layers", draw: drawLayers },
  ...["time", "roofline", "memory", "error"].map((id) => ({ id, title: id[0].toUpperCase() + id.slice(1), draw: () => drawCharts(id) })),
  ...(report.models.some((each) => each.cold.length) ? [{ id: "cold", title: "Cold start", draw: () => drawCharts("cold") }] : []),
  { id: "about", title: "About", draw: drawAbout },
];
const KEYS = [
  ["/", "search"], ["↑ ↓ or k j", "layer before, layer after"], ["← →", "a layer that this one reads, that reads it"], ["Esc", "no layer"],
  ["c", "next colouring"], ["w", "one column, or several"], ["+ - 0", "larger, smaller, all"], [`1 … ${TABS.length}`, "part of the report"],
  ...(report.models.length > 1 ? [["m", "the other module"]] : []), ["t", "light or dark"], ["?", "these keys"],
];
const stale = new Set();
state.still = matchMedia("(prefers-reduced-motion: reduce)").matches;

function show(tab) {
  state.tab = tab;
  for (const { id } of TABS) byId(id).hidden = id !== tab;
  for (const each of byId("tabs").children) {
    each.setAttribute("aria-selected", String(each.dataset.tab === tab));
    each.tabIndex = each.dataset.tab === tab ? 0 : -1;
  }
  if (!stale.delete(tab)) { drawn.graph?.resize(); charts.get(tab)?.forEach((each) => each.resize()); return undefined; }
  return TABS.find((each) => each.id === tab).draw();
}

/** Select a layer by its index, or none; ``go`` shows it in the graph. */
function select(index, go) {
  state.layer = known(index) ? index : null;
  showDetails();
  if (go && state.tab !== "network") show("network");
  showSelection(go);
}

function setSide(side) {
  if (side === state.side) return;
  state.side = side;
  state.layer = null;
  search.query("");
  redraw();
}

function redraw() {
  header();
  showDetails();
  for (const { id } of TABS) stale.add(id);
  return show(state.tab);
}

function header() {
  const found = model(), { totals } = found;
  byId("title").textContent = report.models.map((each) => each.name).join("  and  ");
  byId("subtitle").textContent = `${found.model} · ${found.unsplit ? "the whole model by stock IREE" : `${found.layers.length} layers, ${found.adapts.length} conversions`} · ${found.facts.find(([name]) => name === "target")?.[1] ?? ""} · threads: ${totals.threads}`;
  const taken = totals.measured ?? totals.predicted;
  const own = found.times.find((each) => each.name === "sartor");
  const figures = [
    known(own?.median ?? totals.measured) ? ["measured", ms(own?.median ?? totals.measured)] : known(taken) ? ["predicted", ms(taken)] : null,
    known(totals.stock) && known(totals.measured) ? ["times as fast as stock IREE", (totals.stock / totals.measured).toFixed(2)] : null,
    ...found.times.filter((each) => each !== own && own).map((each) => [`times as fast as ${each.name}`, (each.median / own.median).toFixed(2)]),
    peakShare(found),
    known(totals.first) ? ["first inference", ms(totals.first)] : null,
    known(totals.memory) ? ["memory", bytes(totals.memory)] : null,
  ].filter(Boolean);
  byId("figures").replaceChildren(...figures.map(([name, value]) => make("div", { role: "listitem" }, make("b", {}, value), make("span", {}, name))));
  const sides = byId("sides");
  sides.hidden = report.models.length < 2;
  sides.replaceChildren(...report.models.map((each, index) => make("button", { type: "button", "aria-pressed": String(index === state.side), onclick: () => setSide(index) }, short(each.name, 24))));
}
function peakShare(found) {
  const counted = found.layers.filter((layer) => layer.operations && layer.time);
  const operations = counted.reduce((sum, layer) => sum + layer.operations, 0);
  const seconds = found.totals.measured ?? found.totals.predicted;
  return found.totals.peak && seconds && operations ? ["of the f32 peak", percent(operations / seconds / found.totals.peak)] : null;
}

const search = {
  found: [], at: 0,
  query(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (layer) => { const all = `${layer.name} ${layer.nodes.join(" ")} ${layer.variant ?? ""} ${layer.kind}`.toLowerCase(); return words.every((word) => all.includes(word)); };
    search.found = words.length ? model().layers.filter(fits) : [];
    search.at = 0;
    byId("found").textContent = words.length ? `${search.found.length} found` : "";
    mark(words.length ? new Set(search.found.map((layer) => layer.index)) : null);
    search.list();
  },
  list() {
    const list = byId("results");
    list.hidden = !search.found.length;
    list.replaceChildren(...search.found.slice(0, 50).map((layer, index) => make("li", { role: "option", "aria-selected": String(index === search.at), onclick: () => search.take(index) },
      layer.name, make("small", {}, `${layer.nodes.length > 1 || layer.nodes[0] !== layer.name ? `${short(layer.nodes.join(", "), 70)} · ` : ""}${layer.routine}`))));
    list.children[search.at]?.scrollIntoView({ block: "nearest" });
  },
  take(index) {
    const layer = search.found[index];
    if (!layer) return;
    byId("results").hidden = true;
    select(layer.index, true);
    byId("graph").focus();
  },
  key(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (steps) { search.at = Math.min(Math.max(search.at + steps, 0), Math.min(search.found.length, 50) - 1); search.list(); event.preventDefault(); }
    else if (event.key === "Enter") search.take(search.at);
    else if (event.key === "Escape") { event.target.value = ""; search.query(""); byId("graph").focus(); }
    event.stopPropagation();
  },
};

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  if (document.documentElement.dataset.state !== "loading") { paint(); for (const { id } of TABS) if (id !== "network") stale.add(id); show(state.tab); }
}
function nextColour() {
  const names = Object.keys(MODES);
  byId("colour").value = state.colour = names[(names.indexOf(state.colour) + 1) % names.length];
  paint();
}
const step = (by) => select(Math.min(Math.max((state.layer ?? (by > 0 ? -1 : model().layers.length)) + by, 0), model().layers.length - 1), true);
function along(forward) {
  if (state.layer === null) return;
  const layer = model().layers[state.layer];
  const next = forward ? layer.readers[0] : layer.inputs.map(([source]) => source).find((source) => source >= 0);
  if (known(next)) select(next, true);
}
const zoomBy = (factor) => drawn.graph?.zoom({ level: drawn.graph.zoom() * factor, renderedPosition: { x: drawn.graph.width() / 2, y: drawn.graph.height() / 2 } });
async function flow() { state.wrap = !state.wrap; byId("flow").setAttribute("aria-pressed", String(state.wrap)); await drawGraph(); }

const PRESS = {
  "/": () => { show("network"); byId("search").focus(); byId("search").select(); }, ArrowDown: () => step(1), j: () => step(1), ArrowUp: () => step(-1), k: () => step(-1),
  ArrowRight: () => along(true), ArrowLeft: () => along(false), Escape: () => select(null, false), c: nextColour, w: flow, "+": () => zoomBy(1.3), "=": () => zoomBy(1.3),
  "-": () => zoomBy(1 / 1.3), 0: fitGraph, t: () => byId("theme").click(), "?": () => byId("keys").showModal(), m: () => report.models.length > 1 && setSide(1 - state.side),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, dialog *")) return;
  const scrolls = /^(Arrow|-|0)/.test(event.key) && state.tab !== "network";
  const tab = TABS[Number(event.key) - 1];
  if (tab) show(tab.id);
  else if (!scrolls && PRESS[event.key]) { event.preventDefault(); PRESS[event.key](); }
});

function start() {
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => setTheme(event.matches ? "dark" : "light"));
  byId("tabs").append(...TABS.map(({ id, title }) => make("button", { type: "button", role: "tab", "data-tab": id, "aria-controls": id, onclick: () => show(id) }, title)));
  byId("tabs").addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const next = TABS[(TABS.findIndex(({ id }) => id === state.tab) + by + TABS.length) % TABS.length];
    show(next.id);
    byId("tabs").querySelector(`[data-tab="${next.id}"]`).focus();
    event.stopPropagation();
  });
  byId("colour").append(...Object.entries(MODES).map(([name, mode]) => make("option", { value: name, selected: name === state.colour }, mode.title)));
  byId("colour").addEventListener("change", (event) => { state.colour = event.target.value; paint(); });
  byId("search").addEventListener("input", (event) => search.query(event.target.value));
  byId("search").addEventListener("keydown", search.key);
  byId("theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("zoom-in").addEventListener("click", () => zoomBy(1.3));
  byId("zoom-out").addEventListener("click", () => zoomBy(1 / 1.3));
  byId("zoom-fit").addEventListener("click", fitGraph);
  byId("flow").setAttribute("aria-pressed", "true");
  byId("flow").addEventListener("click", flow);
  byId("keys").querySelector("dl").append(...KEYS.flatMap(([key, what]) => [make("dt", {}, make("kbd", {}, key)), make("dd", {}, what)]));
  addEventListener("resize", () => charts.get(state.tab)?.forEach((each) => each.resize()));
  return redraw();
}
start().then(() => { document.documentElement.dataset.state = "ready"; }, (error) => { document.documentElement.dataset.state = "failed"; throw error; });
