"use strict";
// The panel beside the graph: what is known about one layer, or about the whole module.
const term = (name, ...value) => [make("dt", {}, name), make("dd", {}, ...value)];
const link = (index) => make("button", { class: "link", type: "button", onclick: () => select(index, true) }, model().layers[index].name);
const FEW = 6;

function showDetails() {
  const panel = byId("details");
  panel.replaceChildren(...(state.layer === null ? overview() : layerDetails(model().layers[state.layer])));
  panel.scrollTop = 0;
}

function overview() {
  const found = model(), total = found.layerTime;
  const slowest = [...found.layers].filter((each) => known(each.time)).sort((a, b) => b.time - a.time).slice(0, 12);
  const rows = slowest.map((layer) => {
    const bar = make("i");
    bar.style.width = `${(layer.time / slowest[0].time) * 100}%`;
    return make("div", { class: "candidate" },
      make("div", { class: "head" }, link(layer.index), make("b", {}, `${ms(layer.time)} · ${percent(layer.time / total)}`)),
      make("div", { class: "spread" }, bar));
  });
  return [
    make("h2", {}, found.name),
    make("dl", {}, ...found.facts.flatMap(([name, value]) => term(name, value))),
    ...(rows.length ? [make("h3", {}, "Slowest layers"), ...rows] : []),
    make("p", { class: "note" }, "Choose a layer in the graph, or search for one."),
  ];
}

function layerDetails(layer) {
  const found = model();
  const parameters = (layer.variant ?? "").match(/\{(.*)\}/)?.[1];
  const facts = [
    term("routine", layer.routine),
    parameters ? term("parameters", make("code", {}, parameters.replaceAll(",", ", "))) : [],
    term("runs on", [layer.device, layer.dtype].filter(Boolean).join(", ")),
    layer.kind ? term("kind", layer.kind) : [],
    known(layer.alone) ? term("alone", ms(layer.alone)) : [],
    known(layer.seconds) ? term("predicted", ms(layer.seconds)) : [],
    known(layer.inPlace) ? term("in the network", `${ms(layer.inPlace)}${layer.seconds ? ` · ${digits(layer.inPlace / layer.seconds)} × the prediction` : ""}`) : [],
    layer.operations ? term("operations", `${count(layer.operations)}, ${rate(layer.rate)}`) : [],
    known(layer.share) ? term("of the peak", percent(layer.share)) : [],
    known(layer.traffic) ? term("reads and writes", `${bytes(layer.traffic)}${layer.intensity ? `, ${digits(layer.intensity)} operations per byte` : ""}`) : [],
    known(layer.changes) ? term("runs other code from", layer.changes) : [],
    known(layer.live) ? term("live memory", `${bytes(layer.live)} of activations`) : [],
    known(layer.rounding) ? term("rounding", `causes ${small(layer.rounding)} of the outputs' error`) : [],
    known(layer.saved) ? term("saves", `${ms(layer.saved)} against the model's own type`) : [],
    layer.errors ? term("error", `${small(layer.errors.error)} in the network, ${small(layer.errors.alone)} alone`) : [],
  ];
  return [
    make("h2", {}, layer.name),
    make("dl", {}, ...facts.flat()),
    make("h3", {}, layer.nodes.length === 1 ? "ONNX node" : `${layer.nodes.length} ONNX nodes`),
    make("div", {}, ...layer.nodes.flatMap((node, index) => [index ? ", " : "", make("code", {}, node)])),
    ...tensors(layer),
    ...difference(layer),
    ...candidates(found.cases[layer.case], layer),
  ];
}

function tensors(layer) {
  if (!layer.reads.length && !layer.results.length) return [];
  const describe = (tensor) => `${tensor.type} as ${tensor.form}, ${bytes(tensor.bytes)}`;
  const reads = layer.reads.flatMap((tensor, slot) => {
    const [source, index] = layer.inputs[slot];
    const adapt = model().into.get(`${layer.name}#${slot}`);
    const converted = adapt ? make("div", { class: "why" }, `converted from ${adapt.source}, ${ms(adapt.inPlace ?? adapt.seconds)}`) : null;
    return term(source < 0 ? make("span", {}, model().inputs[index]?.name ?? "input") : link(source), describe(tensor), converted);
  });
  const writes = layer.results.flatMap((tensor, index) => term(layer.results.length > 1 ? `result ${index}` : "result", describe(tensor)));
  const weights = layer.weights.flatMap((tensor, index) => term(`weight ${index}`, tensor.form === tensor.type ? `${tensor.type}, ${bytes(tensor.bytes)}` : `${tensor.type} packed as ${tensor.form}, ${bytes(tensor.bytes)}`));
  const readers = layer.readers.flatMap((index, at) => [at ? ", " : "", link(index)]);
  return [make("h3", {}, "Reads and writes"), make("dl", { class: "tensors" }, ...reads, ...weights, ...writes,
    ...(readers.length ? term("read by", ...readers) : []))];
}

function difference(layer) {
  const change = changeOf[state.side].get(layer.name);
  if (!change) return [];
  const other = 1 - state.side, theirs = change.sides[other];
  const lines = theirs.layers.map((name, index) => make("div", {}, name, " ", make("code", {}, theirs.variants[index])));
  return [make("h3", {}, `In ${report.models[other].name}`), ...lines,
    make("dl", {}, ...term("there", ms(theirs.total)), ...term("here", ms(change.sides[state.side].total)))];
}

function candidates(found, layer) {
  const tried = found.candidates;
  const rejected = found.rejected.map(([variant, reason]) => ({ variant, reason: model().reasons[reason] }));
  const longest = Math.max(...tried.map((each) => each.seconds ?? 0), 0);
  const rows = tried.map((each) => candidate(each, longest));
  const place = tried.findIndex((each) => each.chosen);
  const first = Math.max(FEW, place + 1);
  const parts = [make("h3", {}, tried.length ? `${tried.length} candidates tried` : "Candidates")];
  if (!tried.length) parts.push(make("p", { class: "note" }, "No measurement of this layer is in the tuning database that the report was made with."));
  parts.push(...rows.slice(0, first), ...folded(rows.slice(first), "further candidates"));
  if (rejected.length) {
    const refused = rejected.map((each) => make("div", { class: "candidate" }, make("code", {}, each.variant), make("div", { class: "why" }, each.reason)));
    parts.push(make("h3", {}, `${rejected.length} routines do not support it`), ...folded(refused, "routines with their reasons"));
  } else if (!model().asked && layer.variant !== null) {
    parts.push(make("p", { class: "note" }, "Why other routines do not support the layer is in reports that were made with the model: --vs MODEL.onnx."));
  }
  return parts;
}

function folded(rows, what) {
  if (!rows.length) return [];
  const rest = make("div", { hidden: true }, ...rows);
  const button = make("button", { type: "button", onclick: () => { rest.hidden = !rest.hidden; button.textContent = rest.hidden ? `${rows.length} ${what}` : "fewer"; } }, `${rows.length} ${what}`);
  return [button, rest];
}

/** A descriptor that may be broken before its parameters and between them. */
const broken = (variant) => variant.split(/(?=\{)|(?<=,)/).flatMap((part, index) => (index ? [make("wbr"), part] : [part]));

function candidate(each, longest) {
  const spread = make("div", { class: "spread" });
  if (known(each.seconds)) {
    const bar = make("i"), whisker = make("u");
    const place = (seconds) => Math.min(100, (seconds / longest) * 100);
    bar.style.width = `${place(each.seconds)}%`;
    whisker.style.left = `${place(each.spread[0])}%`;
    whisker.style.width = `${Math.max(0.5, place(each.spread[3]) - place(each.spread[0]))}%`;
    spread.append(bar, whisker);
    spread.title = `${each.samples} samples: least ${ms(each.spread[0])}, quartiles ${ms(each.spread[1])}, ${ms(each.spread[2])}, ${ms(each.spread[3])}, most ${ms(each.spread[4])}`;
  }
  const time = known(each.seconds) ? `${ms(each.seconds)} ± ${percent((each.spread[3] - each.spread[1]) / 2 / each.spread[2])}` : each.status.replaceAll("_", " ");
  const extra = [known(each.error) && each.error > 0 ? `error ${small(each.error)}` : "", each.load ? "measured beside other programs" : ""].filter(Boolean).join(", ");
  return make("div", { class: `candidate${each.chosen ? " chosen" : ""}` },
    make("div", { class: "head" }, make("code", {}, ...broken(each.variant)), make("b", {}, time)), spread,
    make("div", { class: "why" }, [each.chosen ? "chosen" : each.reason, extra].filter(Boolean).join(" · ")));
}
