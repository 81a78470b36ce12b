"use strict";
// Charts of whole networks, drawn by ECharts.
const charts = new Map();

function chart(parent, id, title, note, tall = false) {
  const box = make("div", { class: tall ? "chart tall" : "chart", id: `chart-${id}`, role: "img", "aria-label": title });
  parent.append(make("div", {}, make("h2", {}, title), note ? make("p", { class: "note" }, note) : null, box));
  const drawnChart = echarts.init(box, null, { renderer: "canvas" });
  charts.get(state.tab)?.push(drawnChart);
  drawnChart.on("click", (event) => { if (known(event.data?.layer)) select(event.data.layer, true); });
  return drawnChart;
}
const axis = (name, extra = {}) => ({
  name, nameLocation: "middle", nameGap: 32, nameTextStyle: { color: css("quiet") }, axisLabel: { color: css("quiet") },
  axisLine: { lineStyle: { color: css("line") } }, splitLine: { lineStyle: { color: css("line"), opacity: 0.6 } }, ...extra,
});
const base = (extra) => ({
  animation: false, textStyle: { fontFamily: "system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif" },
  grid: { left: 74, right: 28, top: 44, bottom: 56 }, legend: { top: 6, textStyle: { color: css("text") }, type: "scroll" },
  tooltip: { trigger: "item", confine: true, renderMode: "richText", backgroundColor: css("panel"), borderColor: css("line"), textStyle: { color: css("text") } }, ...extra,
});
const overLayers = (extra = {}) => axis("layers in the order of execution", { type: "category", data: model().layers.map((layer) => layer.index + 1), splitLine: { show: false }, ...extra });
const zooming = () => (model().layers.length > 60 ? [{ type: "inside" }, { type: "slider", height: 16, bottom: 6 }] : []);
const named = (layer) => short(layer.name, 48);
const nothing = (parent, text) => parent.append(make("p", { class: "note" }, text));

const DRAW = {
  time(parent) {
    const found = model();
    const runs = [
      ...(known(found.totals.stock) ? [["stock IREE", found.totals.stock, null]] : []),
      ...(known(found.totals.predicted) ? [["predicted", found.totals.predicted, null]] : []),
      ...(known(found.totals.measured) && !found.times.length ? [["measured", found.totals.measured, null]] : []),
      ...found.times.map((each) => [each.name, each.median, each]),
    ];
    if (!runs.length && !known(found.layerTime) && !found.bySize.length) return nothing(parent, "No times are known: the module was compiled without measuring. Make the report with --measure.");
    const top = make("div", { class: "pair" });
    parent.append(top);
    if (runs.length) wholeNetwork(top, runs);
    if (found.bySize.length) overSizes(top, found.bySize);
    if (known(found.layerTime)) {
      byRoutine(top, found);
      byLayer(parent, found);
      const below = make("div", { class: "pair" });
      parent.append(below);
      against(below, found, "predicted", (layer) => layer.seconds, "Predicted against measured", "Each dot is a layer. Predictions are the cost tables' by which the plan was selected, corrected by times in the network.");
      against(below, found, "alone", (layer) => layer.alone, "Alone against in the network", "Each dot is a layer. On the line it takes in the network what it took when it was measured alone.");
    }
    if (found.compared.length) comparedPlans(parent, found);
  },
  roofline(parent) {
    const found = model(), { peak, bandwidth } = found.totals;
    const points = found.layers.filter((layer) => layer.intensity && layer.rate);
    if (!points.length) return nothing(parent, "No layer has a known number of operations, a time and known tensors.");
    roofline(parent, found, points, peak, bandwidth);
  },
  memory(parent) {
    const found = model();
    if (!found.layers.some((layer) => known(layer.live))) return nothing(parent, "The module was compiled by a version that did not record its tensors.");
    memory(parent, found);
  },
  error(parent) {
    const found = model();
    const kinds = [
      ["in the network, against the reference", (layer) => layer.errors?.error],
      ["of the layer alone, on the reference's values", (layer) => layer.errors?.alone],
      ["of the outputs, if only this layer is rounded", (layer) => layer.rounding],
      ["of the kernel, against candidate 0", (layer) => layer.kernelError],
    ].filter(([, of]) => found.layers.some((layer) => known(of(layer)) && of(layer) > 0));
    if (!kinds.length) return nothing(parent, "No errors are known. Make the report with --vs MODEL.onnx.");
    errors(parent, kinds);
  },
  cold(parent) {
    const found = model();
    if (!found.cold.length) return nothing(parent, "First inferences of this module were not measured.");
    coldStart(parent, found.cold);
  },
};

function wholeNetwork(parent, runs) {
  const labels = runs.map(([name]) => name);
  chart(parent, "whole", "One inference", "Bars are medians; lines span the middle half of the measured times.").setOption(base({
    grid: { left: 110, right: 90, top: 20, bottom: 50 }, legend: { show: false },
    xAxis: axis("ms", { type: "value" }), yAxis: axis("", { type: "category", data: labels, inverse: true, splitLine: { show: false }, axisLabel: { color: css("text") } }),
    series: [
      { type: "bar", barMaxWidth: 34, data: runs.map(([name, seconds]) => ({ value: seconds * 1e3, itemStyle: { color: name === "stock IREE" ? "#9d755d" : name === "predicted" ? "#b9c2cf" : name === "measured" || name === "sartor" ? css("accent") : "#f58518", borderRadius: 4 } })),
        label: { show: true, position: "right", color: css("text"), formatter: ({ value }) => `${digits(value)} ms` } },
      { type: "custom", silent: true, data: runs.flatMap(([, , each], index) => (each ? [[each.low * 1e3, each.high * 1e3, index]] : [])),
        renderItem: (_, api) => { const [a, b] = [api.coord([api.value(0), api.value(2)]), api.coord([api.value(1), api.value(2)])];
          return { type: "line", shape: { x1: a[0], y1: a[1], x2: b[0], y2: b[1] }, style: { stroke: css("text"), lineWidth: 2 } }; } },
    ],
  }));
}

/** Lines over the size of the dimension that differs, or over combinations of sizes where several do. */
function overSizes(parent, bySize) {
  const differing = Object.keys(bySize[0].sizes).filter((name) => new Set(bySize.map(({ sizes }) => sizes[name])).size > 1);
  const told = ({ sizes }) => Object.entries(sizes).map(([name, size]) => `${name}=${size}`).join(", ");
  const over = differing.length === 1 ? differing[0] : null;
  const runtimes = Object.keys(bySize[0].seconds);
  const xAxis = over ? axis(over, { type: "log", axisLabel: { color: css("quiet") } }) : axis("sizes", { type: "category", data: bySize.map(told), splitLine: { show: false } });
  chart(parent, "sizes", "One inference over sizes", "Medians; all runtimes in turn, with the same inputs. Both axes are logarithmic where one dimension differs.").setOption(base({
    xAxis, yAxis: axis("ms", { type: "log", nameGap: 50, axisLabel: { color: css("quiet"), formatter: (value) => digits(value, 2) } }),
    series: runtimes.map((name, index) => ({ name, type: "line", symbolSize: 7, itemStyle: { color: name === "sartor" ? css("accent") : CATEGORIES[index] },
      data: bySize.map((each) => ({ value: [over ? each.sizes[over] : told(each), each.seconds[name] * 1e3], told: told(each) })) })),
    tooltip: { ...base({}).tooltip, formatter: ({ data, seriesName }) => `${seriesName}, ${data.told}\n${digits(data.value[1])} ms` },
  }));
}

function byRoutine(parent, found) {
  const groups = new Map();
  for (const layer of found.layers) if (layer.time) groups.set(layer.routine, [...(groups.get(layer.routine) ?? []), layer]);
  const colours = routineColours();
  chart(parent, "routines", "Where the time goes", "Areas are times: layers by routine, and conversions.").setOption(base({
    legend: { show: false },
    series: [{ type: "treemap", left: 4, right: 4, top: 6, bottom: 6, roam: false, nodeClick: false, breadcrumb: { show: false }, label: { formatter: ({ name }) => name, color: "#fff" },
      upperLabel: { show: true, height: 20, color: "#fff", textBorderColor: "transparent" }, itemStyle: { borderColor: css("panel"), borderWidth: 1, gapWidth: 1 },
      levels: [{ itemStyle: { gapWidth: 3, borderWidth: 0 } }, { itemStyle: { gapWidth: 1, borderWidth: 2 }, colorSaturation: [0.35, 0.6] }],
      data: [...[...groups].map(([name, layers]) => ({ name, itemStyle: { color: colours.get(name), borderColor: colours.get(name) },
        children: layers.map((layer) => ({ name: short(layer.name, 22), value: layer.time * 1e3, layer: layer.index, itemStyle: { color: colours.get(name) } })) })),
        ...(found.adaptTime ? [{ name: "conversions", value: found.adaptTime * 1e3, itemStyle: { color: css("conversion") } }] : [])] }],
    tooltip: { ...base({}).tooltip, formatter: ({ name, value }) => `${name}\n${digits(value)} ms` },
  }));
}
function routineColours() {
  const before = state.colour;
  state.colour = "routine";
  const found = colouring().byName;
  state.colour = before;
  return found;
}

function byLayer(parent, found) {
  const colours = routineColours();
  const bars = (of, style) => found.layers.map((layer) => ({ value: known(of(layer)) ? of(layer) * 1e3 : null, layer: layer.index, itemStyle: style(layer) }));
  const both = found.layers.some((layer) => known(layer.inPlace));
  chart(parent, "layers", "Time of each layer", both ? "Bars are times in the network, coloured by routine; dots are what the plan predicted." : "As the plan predicted, coloured by routine.").setOption(base({
    legend: { show: false }, xAxis: overLayers(), yAxis: axis("ms", { type: "value", nameGap: 46 }), dataZoom: zooming(),
    series: [{ name: both ? "in the network" : "predicted", type: "bar", data: bars((layer) => layer.time, (layer) => ({ color: colours.get(layer.routine) })) },
      ...(both ? [{ name: "predicted", type: "scatter", symbolSize: 5, data: bars((layer) => layer.seconds, () => ({ color: css("text") })) }] : [])],
    tooltip: { ...base({}).tooltip, formatter: ({ data, seriesName }) => `${named(found.layers[data.layer])}\n${seriesName} ${digits(data.value)} ms` },
  }));
}

function against(parent, found, what, of, title, note) {
  const points = found.layers.filter((layer) => of(layer) && layer.inPlace);
  if (!points.length) return;
  const all = points.flatMap((layer) => [of(layer) * 1e3, layer.inPlace * 1e3]);
  const [least, most] = [Math.min(...all) * 0.8, Math.max(...all) * 1.25];
  const colours = routineColours();
  chart(parent, what, title, note).setOption(base({
    legend: { show: false }, xAxis: axis(`${what}, ms`, { type: "log", min: least, max: most, axisLabel: { color: css("quiet"), formatter: (value) => digits(value, 2) } }), yAxis: axis("in the network, ms", { type: "log", min: least, max: most, nameGap: 50, axisLabel: { color: css("quiet"), formatter: (value) => digits(value, 2) } }),
    series: [{ type: "line", data: [[least, least], [most, most]], symbol: "none", lineStyle: { color: css("quiet"), type: "dashed", width: 1 }, silent: true },
      { type: "scatter", symbolSize: 10, data: points.map((layer) => ({ value: [of(layer) * 1e3, layer.inPlace * 1e3], layer: layer.index, itemStyle: { color: colours.get(layer.routine), opacity: 0.85 } })) }],
    tooltip: { ...base({}).tooltip, formatter: ({ data }) => known(data.layer) ? `${named(found.layers[data.layer])}\n${what} ${digits(data.value[0])} ms, in the network ${digits(data.value[1])} ms` : "" },
  }));
}

function comparedPlans(parent, found) {
  const rows = found.compared.map((each) => make("tr", {}, make("td", { class: "number" }, ms(each.predicted)), make("td", { class: "number" }, known(each.measured) ? ms(each.measured) : "did not run, or was wrong"),
    make("td", {}, ...Object.entries(each.changes).slice(0, 4).map(([name, variant]) => make("div", {}, `${name}: `, make("code", {}, variant))), Object.keys(each.changes).length > 4 ? `and ${Object.keys(each.changes).length - 4} more` : null)));
  parent.append(make("h2", {}, "Other plans that ran whole"), make("table", {}, make("thead", {}, make("tr", {}, make("th", { class: "number" }, "predicted"), make("th", { class: "number" }, "measured"), make("th", {}, "what differs"))), make("tbody", {}, ...rows)));
}

function roofline(parent, found, points, peak, bandwidth) {
  const intensities = points.map((layer) => layer.intensity);
  const least = Math.min(...intensities) / 2, most = Math.max(...intensities) * 2;
  const roof = (x) => Math.min(peak ?? Infinity, bandwidth ? bandwidth * x : Infinity);
  const ridge = peak && bandwidth ? peak / bandwidth : null;
  const xs = [least, ...(ridge && ridge > least && ridge < most ? [ridge] : []), most];
  const colours = routineColours(), longest = Math.max(...points.map((layer) => layer.time));
  const roofs = Number.isFinite(roof(1)) ? [{ name: "the machine", type: "line", symbol: "none", silent: true, data: xs.map((x) => [x, roof(x) / 1e9]), lineStyle: { color: css("text"), width: 2 }, itemStyle: { color: css("text") } }] : [];
  const series = [...new Set(points.map((layer) => layer.routine))].map((name) => ({ name, type: "scatter", itemStyle: { color: colours.get(name), opacity: 0.8, borderColor: css("panel") },
    data: points.filter((layer) => layer.routine === name).map((layer) => ({ value: [layer.intensity, layer.rate / 1e9], layer: layer.index, symbolSize: 7 + 26 * Math.sqrt(layer.time / longest) })) }));
  const limits = [peak ? `peak ${rate(peak)}` : "the peak was not measured", bandwidth ? `memory ${digits(bandwidth / 1e9)} GB/s` : "the memory's bandwidth was not measured (sartor bench --peak)"].join(", ");
  chart(parent, "roofline", "Roofline", `Each dot is a layer, larger the longer it takes. Traffic counts every tensor and weight once; what stays in a cache may exceed the slope, and Winograd convolutions, which need fewer operations than are counted, the peak. Here: ${limits}.`, true).setOption(base({
    xAxis: axis("operations per byte read and written", { type: "log", min: least, max: most, axisLabel: { color: css("quiet"), formatter: (value) => digits(value, 2) } }), yAxis: axis("GFLOP/s", { type: "log", nameGap: 50, axisLabel: { color: css("quiet"), formatter: (value) => digits(value, 2) } }), series: [...roofs, ...series],
    tooltip: { ...base({}).tooltip, formatter: ({ data }) => { const layer = found.layers[data.layer]; return `${named(layer)}\n${rate(layer.rate)}, ${percent(layer.share)} of the peak\n${digits(layer.intensity)} operations per byte, ${ms(layer.time)}`; } },
  }));
}

function memory(parent, found) {
  const most = found.layers.reduce((best, layer) => (layer.live > best.live ? layer : best));
  const totals = [`weights ${bytes(found.totals.weights)}`, ...(known(found.totals.memory) ? [`the whole module ${bytes(found.totals.memory)}`] : [])].join(", ");
  chart(parent, "memory", "Activations over time", `What must exist while each layer runs; most, ${bytes(most.live)}, at ${short(most.name, 60)}. Besides: ${totals}. Shared or overwritten memory is not subtracted, alignment not added.`, true).setOption(base({
    legend: { show: false }, xAxis: overLayers({ boundaryGap: false }), yAxis: axis("MiB", { type: "value", nameGap: 50 }), dataZoom: zooming(),
    series: [{ type: "line", step: "middle", symbolSize: 5, showSymbol: true, areaStyle: { color: css("accent"), opacity: 0.22 }, lineStyle: { color: css("accent"), width: 1.6 }, itemStyle: { color: css("accent") }, data: found.layers.map((layer) => ({ value: layer.live / 2 ** 20, layer: layer.index })) }],
    tooltip: { ...base({}).tooltip, formatter: ({ data }) => `${named(found.layers[data.layer])}\n${digits(data.value)} MiB live` },
  }));
}

function errors(parent, kinds) {
  const found = model();
  chart(parent, "error", "Relative error of each layer", "Relative to the largest magnitude of the reference. Layers without a point were exact, or are not known.", true).setOption(base({
    xAxis: overLayers(), yAxis: axis("", { type: "log", axisLabel: { color: css("quiet"), formatter: (value) => value.toExponential(0) } }), dataZoom: zooming(),
    series: kinds.map(([name, of], index) => ({ name, type: "scatter", symbolSize: 8, itemStyle: { color: CATEGORIES[[3, 0, 1, 2][index]] },
      data: found.layers.map((layer) => ({ value: of(layer) > 0 ? [layer.index, of(layer)] : [layer.index, null], layer: layer.index })) })),
    tooltip: { ...base({}).tooltip, formatter: ({ data, seriesName }) => `${named(found.layers[data.layer])}\n${small(data.value[1])} ${seriesName}` },
  }));
}

const PHASES = [["prepare", "interpreter, imports, opening", "#d9a441"], ["read", "read ahead", "#4f8bc9"], ["move", "moved to huge pages", "#9b7fc4"], ["execute", "inferences", "#5aa469"]];

function coldStart(parent, bars) {
  const lanes = [...new Set(bars.map((bar) => bar.lane))];
  const drawn = chart(parent, "cold", "From the start of a process to its results", "A lane for each thread of a typical process, with files in the page cache or dropped from it.");
  drawn.getDom().style.height = `${130 + 36 * lanes.length}px`;
  drawn.resize();
  drawn.setOption(base({
    grid: { left: 210, right: 30, top: 40, bottom: 54 }, dataZoom: [{ type: "inside" }],
    xAxis: axis("ms since the process was started", { type: "value", min: 0 }),
    yAxis: axis("", { type: "category", data: lanes, inverse: true, splitLine: { show: false }, axisLabel: { color: css("text"), width: 190, overflow: "truncate" } }),
    series: PHASES.map(([kind, name, colour]) => ({ name, type: "custom", itemStyle: { color: colour }, encode: { x: [0, 1], y: 2 },
      data: bars.filter((bar) => bar.kind === kind).map((bar) => ({ value: [bar.begin * 1e3, bar.end * 1e3, lanes.indexOf(bar.lane)], bar })),
      renderItem: (_, api) => { const [left, right] = [api.coord([api.value(0), api.value(2)]), api.coord([api.value(1), api.value(2)])], height = api.size([0, 1])[1] * 0.6;
        return { type: "rect", shape: { x: left[0], y: left[1] - height / 2, width: Math.max(right[0] - left[0], 1), height }, style: { fill: colour, stroke: css("panel"), lineWidth: 0.5 } }; } })),
    tooltip: { ...base({}).tooltip, formatter: ({ data: { bar } }) => `${bar.lane}\n${bar.label}: ${digits(bar.begin * 1e3)} to ${digits(bar.end * 1e3)} ms${bar.size ? `, ${bytes(bar.size)}` : ""}` },
  }));
}

function drawCharts(tab) {
  charts.get(tab)?.forEach((each) => each.dispose());
  charts.set(tab, []);
  const parent = byId(tab);
  parent.replaceChildren();
  DRAW[tab](parent);
  // What stands beside a chart came after it.
  charts.get(tab).forEach((each) => each.resize());
}
