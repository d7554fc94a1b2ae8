"use strict";
// Figures in the paper's layout: a panel per defense, a line per attack, error bars from the intervals.
function drawPaperFigure(host, figure) {
  const labels = [...new Set(figure.panels.flatMap((panel) => panel.lines.map((line) => line.label)))];
  const shape = (label) => `q${Math.min(labels.indexOf(label), 6)}`;
  const values = figure.panels.flatMap((p) => p.lines.flatMap((l) => [...l.y.flatMap((e) => e || []), ...l.paper])).filter(known);
  // The wanted range, widened where a figure or its interval would leave it.
  const low = Math.min(...(figure.range ? [figure.range[0]] : []), Math.floor(Math.min(...values) * 10 + 1e-9) / 10);
  const high = Math.max(...(figure.range ? [figure.range[1]] : []), Math.ceil(Math.max(...values) * 10 - 1e-9) / 10);
  if (!values.length) return host.replaceChildren(el("p", { class: "note" }, "No run is finished yet."));
  const hasPaper = figure.panels.some((p) => p.lines.some((l) => l.paper.some(known)));
  const entries = labels.map((label) => [svg("line", { class: `line ${shape(label)}`, x1: 1, x2: 21, y1: 5.5, y2: 5.5 }), label]);
  if (hasPaper) entries.push([svg("path", { class: "theirs-mark q6", d: "M11 1.5l4 4l-4 4l-4 -4z" }), "the paper's"]);
  const key = keys(entries);
  key.style.gridColumn = "1 / -1";
  host.replaceChildren(key);
  for (const panel of figure.panels) {
    const box = el("div", { class: "chart" });
    host.append(el("div", {}, el("h4", {}, panel.title), box));
    const xs = [...new Set(panel.lines.flatMap((l) => l.x))].sort((a, b) => a - b);
    const pad = ((xs[xs.length - 1] - xs[0]) || 1) * 0.05;
    const chart = frame(box, {
      height: 200,
      x: { low: xs[0] - pad, high: xs[xs.length - 1] + pad, label: figure.x, ticks: xs.map((x) => [x, String(x)]) },
      y: { low, high: high > low ? high : low + 1, label: figure.y },
      label: `${panel.title}: ${figure.y} by ${figure.x}. ${panel.lines.map((l) => `${l.label} ${l.y.map((e) => fixed(e && e[0])).join(", ")}`).join("; ")}`,
    });
    for (const line of panel.lines) {
      const cls = shape(line.label);
      const ys = line.y.map((e) => (e ? e[0] : NaN));
      chart.layer.append(svg("path", { class: `line ${cls}`, d: path(line.x, ys, chart.sx, chart.sy) }));
      line.x.forEach((x, i) => {
        const e = line.y[i];
        const at = chart.sx(x);
        if (e && known(e[1]) && known(e[2])) {
          chart.layer.append(svg("path", { class: `line whisker ${cls}`, d: `M${at} ${chart.sy(e[1])}V${chart.sy(e[2])}M${at - 3} ${chart.sy(e[1])}h6M${at - 3} ${chart.sy(e[2])}h6` }));
        }
        if (e) chart.layer.append(svg("circle", { class: `line ${cls}`, cx: at, cy: chart.sy(e[0]), r: 2, fill: "currentColor" }));
        if (known(line.paper[i] ?? null)) {
          const y = chart.sy(line.paper[i]);
          chart.layer.append(svg("path", { class: `theirs-mark ${cls}`, d: `M${at} ${y - 4}l4 4l-4 4l-4 -4z` }));
        }
      });
    }
    box.replaceChildren(
      chart.root,
      dataTable("As a table", [figure.x, ...panel.lines.map((l) => l.label)], () =>
        xs.map((x) => [String(x), ...panel.lines.map((l) => {
          const e = l.y[l.x.indexOf(x)];
          if (!e) return "–";
          return known(e[1]) && known(e[2]) ? `${fixed(e[0], 3)} [${fixed(e[1], 3)}, ${fixed(e[2], 3)}]` : fixed(e[0], 3);
        })])),
    );
  }
}
