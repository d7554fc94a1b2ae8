"use strict";
// Leakage against test accuracy: a point per setting, the frontier, and early stopping as a curve.
function drawPlan(host, plan) {
  const options = plan.options;
  const curves = plan.curves.map((index) => options[index].stops);
  const tests = [...options.map((o) => o.test), ...curves.flat().map((s) => s[2])].filter(known);
  const aucs = [...options.flatMap((o) => [o.auc, o.high]), ...curves.flat().map((s) => s[1])].filter(known);
  // Rounds that learn next to nothing would squeeze the rest into a corner.
  const top = Math.max(...tests);
  const low = Math.max(Math.min(...tests), Math.min(...options.map((o) => o.test), top - 0.3) - 0.02);
  const chart = frame(host, {
    height: 330,
    x: { low, high: top + 0.02, label: "test accuracy, nobody attacking" },
    y: { low: Math.min(0.5, Math.floor(Math.min(...aucs) * 20) / 20), high: Math.min(1.02, Math.max(...aucs) + 0.03), label: "AUC, strongest attack" },
    label: `Leakage against test accuracy. ${options.map((o) => `${o.label}: AUC ${fixed(o.auc, 3)}, test accuracy ${fixed(o.test, 3)}`).join("; ")}`,
  });
  const { layer, sx, sy } = chart;
  const today = options[plan.today];
  const limit = today.test - plan.budget;
  layer.append(svg("line", { class: "ref", x1: sx(limit), x2: sx(limit), y1: chart.top, y2: chart.height - chart.bottom }));
  const entries = [];
  curves.forEach((stops, k) => {
    const cls = k ? " chosen" : "";
    const shown = stops.filter((s) => s[2] >= low);
    layer.append(svg("path", { class: `line p-curve${cls}`, d: path(shown.map((s) => s[2]), shown.map((s) => s[1]), sx, sy) }));
    for (const [round, auc, test] of shown) {
      layer.append(svg("circle", { class: `p-stop${cls}`, "data-round": round, cx: sx(test), cy: sy(auc), r: 2 }, svg("title", {}, `round ${round}`)));
    }
    entries.push([svg("line", { class: `line p-curve${cls}`, x1: 1, x2: 21, y1: 5.5, y2: 5.5 }), `stopping early: ${options[plan.curves[k]].name}`]);
  });
  const front = plan.frontier.map((index) => options[index]);
  layer.append(svg("path", { class: "line p-front", d: path(front.map((o) => o.test), front.map((o) => o.auc), sx, sy) }));
  entries.push([svg("line", { class: "line p-front", x1: 1, x2: 21, y1: 5.5, y2: 5.5 }), "frontier"]);
  options.forEach((o, index) => {
    const marked = index === plan.today ? "p-today" : index === plan.recommended ? "p-chosen" : `p-point${o.complete ? "" : " partial"}`;
    layer.append(svg("circle", { class: marked, "data-option": index, cx: sx(o.test), cy: sy(o.auc), r: marked.startsWith("p-point") ? 4 : 6.5 }, svg("title", {}, o.label)));
  });
  const named = [[plan.today, "today"]];
  if (plan.recommended !== plan.today) named.push([plan.recommended, "recommended"]);
  for (const [index, text] of named) {
    const o = options[index];
    const end = sx(o.test) > chart.width - 110;
    layer.append(svg("text", { class: "name", x: sx(o.test) + (end ? -10 : 10), y: Math.max(sy(o.auc) - 9, 11), "text-anchor": end ? "end" : "start" }, text));
  }
  entries.push(
    [svg("circle", { class: "p-today", cx: 11, cy: 5.5, r: 5 }), "today"],
    [svg("circle", { class: "p-chosen", cx: 11, cy: 5.5, r: 5 }), "recommended"],
    [svg("circle", { class: "p-point partial", cx: 11, cy: 5.5, r: 4 }), "not all attacks"],
  );
  const readout = el("p", { class: "readout no-print", "aria-live": "polite" }, "Arrow keys or the mouse name the points.");
  attachPoints(chart, options, readout);
  const stops = plan.curves.flatMap((index) => options[index].stops.map((s) => [options[index].name, String(s[0]), fixed(s[1], 3), fixed(s[2], 3)]));
  host.replaceChildren(keys(entries), chart.root, readout, dataTable("Stopping early, as a table", ["Setting", "Round", "AUC", "Test accuracy"], () => stops));
}

// The point under the mouse, or the next one by arrow key, is ringed and named.
function attachPoints(chart, options, readout) {
  const { root, layer, sx, sy } = chart;
  const ring = svg("circle", { class: "p-ring no-print", r: 9, visibility: "hidden" });
  layer.append(ring);
  const order = options.map((_, i) => i).sort((a, b) => options[a].test - options[b].test || a - b);
  let place = -1;
  function show(at) {
    place = (at + order.length) % order.length;
    const o = options[order[place]];
    ring.setAttribute("cx", sx(o.test));
    ring.setAttribute("cy", sy(o.auc));
    ring.setAttribute("visibility", "visible");
    readout.textContent = `${o.label}: AUC ${fixed(o.auc, 3)} (${o.attack}), test accuracy ${fixed(o.test, 3)}, cost ${fixed(o.cost, 3)}`;
  }
  root.setAttribute("tabindex", "0");
  root.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(place < 0 && step < 0 ? order.length - 1 : place + step);
  });
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const [x, y] = [((event.clientX - box.left) / box.width) * chart.width, ((event.clientY - box.top) / box.height) * chart.height];
    const away = (i) => Math.hypot(sx(options[order[i]].test) - x, sy(options[order[i]].auc) - y);
    const nearest = order.map((_, i) => i).reduce((a, b) => (away(b) < away(a) ? b : a));
    if (away(nearest) < 30) show(nearest);
  });
}
