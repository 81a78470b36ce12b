"use strict";
// The graph: laid out by ELK in a worker, drawn by Cytoscape.
const MOST = 34, WIDTH = 234, HEIGHT = 46, PILL = 30;
const layoutUrl = URL.createObjectURL(new Blob([byId("layout-worker").textContent], { type: "text/javascript" }));
const elk = new ELK({ workerFactory: () => new Worker(layoutUrl) });
const drawn = { graph: null, layouts: new Map() };

const isFree = (adapt) => !(adapt.inPlace ?? adapt.seconds ?? 0);
const written = (schema) => schema.split(":").pop().replace("@", " ");

/** Nodes and edges of a model: its inputs, layers and outputs. */
function elementsOf(found) {
  const nodes = [], edges = [];
  found.inputs.forEach((input, index) => nodes.push({ id: `in${index}`, label: input.name, pill: true }));
  found.layers.forEach((layer) => nodes.push({ id: `n${layer.index}`, layer }));
  const start = (source, index) => (source < 0 ? `in${index}` : `n${source}`);
  const push = (from, to, adapt) => edges.push({ id: `e${edges.length}`, from, to, adapt: adapt ?? null });
  found.layers.forEach((layer) => layer.inputs.forEach(([source, index], slot) =>
    push(start(source, index), `n${layer.index}`, found.into.get(`${layer.name}#${slot}`))));
  found.returned.forEach(([source, index], position) => {
    const name = found.outputs[position]?.name ?? `output ${position}`;
    nodes.push({ id: `out${position}`, label: name, pill: true });
    const adapt = found.adapts.find((each) => each.consumer === `output:${name}`);
    push(start(source, index), `out${position}`, adapt);
  });
  return { nodes, edges };
}

async function layoutOf(side, wrap) {
  const key = `${side} ${wrap}`;
  if (!drawn.layouts.has(key)) {
    const { nodes, edges } = elementsOf(report.models[side]);
    const box = byId("graph");
    const options = {
      "elk.algorithm": "layered",
      "elk.direction": "DOWN",
      "elk.edgeRouting": "ORTHOGONAL",
      "elk.aspectRatio": `${Math.max(0.4, box.clientWidth / Math.max(1, box.clientHeight))}`,
      "elk.layered.spacing.nodeNodeBetweenLayers": "34",
      "elk.spacing.nodeNode": "26",
      "elk.spacing.edgeNode": "18",
      "elk.layered.nodePlacement.strategy": "NETWORK_SIMPLEX",
      "elk.layered.considerModelOrder.strategy": "NODES_AND_EDGES",
      ...(nodes.length > 120 ? { "elk.layered.nodePlacement.strategy": "BRANDES_KOEPF" } : {}),
      ...(wrap ? { "elk.layered.wrapping.strategy": "MULTI_EDGE", "elk.layered.wrapping.additionalEdgeSpacing": "26" } : {}),
    };
    const children = nodes.map((each) => ({ id: each.id, width: each.pill ? pillWidth(each.label) : WIDTH, height: each.pill ? PILL : HEIGHT }));
    const placed = await elk.layout({ id: "root", layoutOptions: options, children,
      edges: edges.map((each) => ({ id: each.id, sources: [each.from], targets: [each.to] })) });
    drawn.layouts.set(key, { nodes, edges, placed });
  }
  return drawn.layouts.get(key);
}
const pillWidth = (label) => Math.min(WIDTH, 30 + 7.4 * label.length);

/** Bends of an edge as Cytoscape has them: distances from the line between two points, and shares of its length. */
function segments(points) {
  const [from, to] = [points[0], points[points.length - 1]];
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const bends = points.slice(1, -1);
  return {
    weights: bends.map((each) => ((each.x - from.x) * dx + (each.y - from.y) * dy) / (length * length)).join(" "),
    distances: bends.map((each) => ((each.y - from.y) * dx - (each.x - from.x) * dy) / length).join(" "),
  };
}

function cytoscapeElements({ nodes, edges, placed }) {
  const boxes = new Map(placed.children.map((each) => [each.id, each]));
  const centre = (id) => { const box = boxes.get(id); return { x: box.x + box.width / 2, y: box.y + box.height / 2 }; };
  const shown = nodes.map((each) => ({
    group: "nodes",
    data: { id: each.id, index: each.layer ? each.layer.index : -1, width: boxes.get(each.id).width, height: boxes.get(each.id).height,
      label: each.pill ? short(each.label, 24) : `${short(each.layer.name, 32)}\n${caption(each.layer)}` },
    classes: each.pill ? "pill" : "",
    position: centre(each.id),
  }));
  placed.edges.forEach((each, index) => {
    const edge = edges[index], section = each.sections[0];
    const points = [section.startPoint, ...(section.bendPoints ?? []), section.endPoint];
    const offset = (point, id) => `${point.x - centre(id).x}px ${point.y - centre(id).y}px`;
    const { weights, distances } = segments(points);
    const adapt = edge.adapt;
    shown.push({
      group: "edges",
      data: { id: edge.id, source: edge.from, target: edge.to, from: offset(points[0], edge.from), to: offset(points[points.length - 1], edge.to),
        weights, distances, label: adapt ? `${written(adapt.source)} → ${written(adapt.target)}${isFree(adapt) ? "" : `\n${ms(adapt.inPlace ?? adapt.seconds)}`}` : "" },
      classes: [weights ? "bent" : "", adapt ? "conversion" : "", adapt && isFree(adapt) ? "free" : ""].join(" "),
    });
  });
  return shown;
}
function caption(layer) {
  if (layer.variant === null) return layer.kind;
  const whole = layer.routine.replace(/^[a-z0-9]+\//, ""), time = known(layer.time) ? ` · ${ms(layer.time)}` : "";
  const routine = whole.length + time.length > MOST ? whole.split(".").pop() : whole;
  return `${short(routine, MOST - time.length)}${time}`;
}

function graphStyle() {
  const [text, panel, edge, conversion, accent, line, quiet] = ["text", "panel", "edge", "conversion", "accent", "line", "quiet"].map(css);
  return [
    { selector: "node", style: { shape: "round-rectangle", width: "data(width)", height: "data(height)", label: "data(label)", "text-wrap": "wrap",
      "text-valign": "center", "font-size": 12, "line-height": 1.3, "font-family": "system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif",
      "background-color": panel, color: text, "border-width": 1, "border-color": line, "min-zoomed-font-size": 5 } },
    { selector: "node.pill", style: { "corner-radius": 15, "background-color": panel, "border-color": quiet, color: quiet } },
    { selector: "node.dim", style: { opacity: 0.22 } },
    { selector: "node:selected", style: { "border-width": 4, "border-color": accent } },
    { selector: "edge", style: { width: 1.4, "line-color": edge, "target-arrow-color": edge, "target-arrow-shape": "triangle", "arrow-scale": 0.85,
      "source-endpoint": "data(from)", "target-endpoint": "data(to)", "curve-style": "straight" } },
    { selector: "edge.bent", style: { "curve-style": "round-segments", "segment-weights": "data(weights)", "segment-distances": "data(distances)",
      "segment-radii": 7, "edge-distances": "endpoints" } },
    { selector: "edge.conversion", style: { width: 3.4, "line-color": conversion, "target-arrow-color": conversion, label: "data(label)", "text-wrap": "wrap",
      "font-size": 10, color: conversion, "text-background-color": css("ground"), "text-background-opacity": 0.9, "text-background-padding": 2,
      "min-zoomed-font-size": 6, "font-family": "system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif" } },
    { selector: "edge.free", style: { "line-style": "dashed", width: 2 } },
    { selector: "edge.near", style: { "line-color": accent, "target-arrow-color": accent, width: 3 } },
  ];
}

async function drawGraph() {
  byId("busy").hidden = false;
  const side = state.side, found = await layoutOf(side, state.wrap);
  if (side !== state.side) return;
  drawn.graph?.destroy();
  drawn.graph = cytoscape({ container: byId("graph"), elements: cytoscapeElements(found), style: graphStyle(), layout: { name: "preset" },
    minZoom: 0.02, maxZoom: 3, boxSelectionEnabled: false, autoungrabify: true, selectionType: "single",
    hideEdgesOnViewport: found.edges.length > 1500, textureOnViewport: found.nodes.length > 1500, pixelRatio: "auto" });
  drawn.graph.on("tap", "node", (event) => { const index = event.target.data("index"); if (index >= 0) select(index, false); });
  drawn.graph.on("tap", (event) => { if (event.target === drawn.graph) select(null, false); });
  paint();
  fitGraph();
  byId("busy").hidden = true;
  showSelection(false);
}

/** All of the graph, or its upper part if all of it would be too small to read. */
function fitGraph() {
  const graph = drawn.graph;
  graph.fit(undefined, 22);
  if (graph.zoom() < 0.09) {
    graph.zoom(0.3);
    const box = graph.elements().boundingBox();
    graph.pan({ x: graph.width() / 2 - ((box.x1 + Math.min(box.x2, box.x1 + graph.width() / 0.3)) / 2) * 0.3, y: 20 - box.y1 * 0.3 });
  }
}

function paint() {
  const colours = colouring();
  drawn.graph?.style(graphStyle());
  drawn.graph?.batch(() => drawn.graph.nodes().forEach((node) => {
    const index = node.data("index");
    if (index < 0) return;
    const colour = colours.of(model().layers[index]);
    node.style({ "background-color": colour, color: contrast(colour) });
  }));
  drawLegend(colours);
}

function showSelection(centre) {
  const graph = drawn.graph;
  if (!graph) return;
  graph.elements().unselect().removeClass("near");
  if (state.layer === null) return;
  const node = graph.getElementById(`n${state.layer}`);
  node.select();
  node.connectedEdges().addClass("near");
  if (!centre) return;
  const zoom = Math.min(Math.max(graph.zoom(), 0.85), 1.3);
  graph.stop().animate({ zoom, center: { eles: node } }, { duration: state.still ? 0 : 220 });
}

function mark(indices) {
  drawn.graph?.batch(() => drawn.graph.nodes().forEach((node) => {
    node.toggleClass("dim", indices !== null && !indices.has(node.data("index")));
  }));
}
