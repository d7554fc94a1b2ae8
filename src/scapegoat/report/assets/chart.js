"use strict";
// A small SVG chart layer. Everything is drawn with text nodes and attributes: data can never become markup.
const $ = (id) => document.getElementById(id);

function build(make, tag, attributes, children) {
  const node = make(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes, ...children) => build((t) => document.createElement(t), tag, attributes, children);
const svg = (tag, attributes, ...children) =>
  build((t) => document.createElementNS("http://www.w3.org/2000/svg", t), tag, attributes, children);

// Little-endian arrays in base64.
function view(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new DataView(bytes.buffer);
}
function unpack(text, size, method) {
  const data = view(text);
  const out = Array.from({ length: data.byteLength / size });
  for (let i = 0; i < out.length; i++) out[i] = data[method](i * size, true);
  return out;
}
const floats = (text) => unpack(text, 4, "getFloat32");
const words = (text) => unpack(text, 4, "getUint32");
const shorts = (text) => unpack(text, 2, "getUint16");
const octets = (text) => unpack(text, 1, "getUint8");

const fixed = (value, digits = 2) => (value === null || !Number.isFinite(value) ? "–" : value.toFixed(digits));
const percent = (share) => (share > 0 && share < 0.005 ? "<1%" : Number.isFinite(share) ? `${Math.round(share * 100)}%` : "–");
const known = (value) => value !== null && Number.isFinite(value);

function linear(low, high, from, to) {
  const scale = (value) => from + ((value - low) / (high - low || 1)) * (to - from);
  scale.invert = (place) => low + ((place - from) / (to - from || 1)) * (high - low);
  return scale;
}
function logarithmic(low, high, from, to) {
  const inner = linear(Math.log10(low), Math.log10(high), from, to);
  return (value) => inner(Math.log10(Math.max(value, low)));
}
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const out = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + step * 1e-6; t += step) out.push([t, t.toFixed(digits)]);
  return out;
}

// A frame with axes. x and y: {low, high, label, log, ticks}. Returns the scales and the layer to draw in.
function frame(host, { height, x, y, label, left = 40, right = 12 }) {
  // On paper two panels share the width; what is drawn for the screen would shrink to nothing there.
  const width = document.body.dataset.printing ? (host.closest(".wide") ? 720 : 350) : Math.max(260, host.clientWidth || 520);
  const top = 20;
  const bottom = 34;
  const make = (axis, from, to) => (axis.log ? logarithmic : linear)(axis.low, axis.high, from, to);
  const sx = make(x, left, width - right);
  const sy = make(y, height - bottom, top);
  const grid = svg("g", { "aria-hidden": "true" });
  for (const [value, text] of y.ticks || ticks(y.low, y.high, 5)) {
    grid.append(
      svg("line", { class: "gridline", x1: left, x2: width - right, y1: sy(value), y2: sy(value) }),
      svg("text", { x: left - 7, y: sy(value) + 4, "text-anchor": "end" }, text),
    );
  }
  for (const [value, text] of x.ticks || ticks(x.low, x.high, Math.max(3, Math.floor(width / 110)))) {
    grid.append(
      svg("line", { class: "axisline", x1: sx(value), x2: sx(value), y1: height - bottom, y2: height - bottom + 4 }),
      svg("text", { x: sx(value), y: height - bottom + 16, "text-anchor": "middle" }, text),
    );
  }
  grid.append(
    svg("line", { class: "axisline", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
    svg("text", { x: 0, y: 11 }, y.label),
    svg("text", { x: width - right, y: height - 4, "text-anchor": "end" }, x.label),
  );
  const layer = svg("g");
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, grid, layer);
  return { root, layer, sx, sy, width, height, left, right, top, bottom };
}

// A path through the known points; an unknown point between known ones is bridged, as rounds without evaluation are.
function path(xs, ys, sx, sy) {
  let text = "";
  for (let i = 0; i < xs.length; i++) {
    if (known(ys[i])) text += `${text ? "L" : "M"}${sx(xs[i]).toFixed(1)} ${sy(ys[i]).toFixed(1)}`;
  }
  return text;
}

function keys(entries) {
  return el(
    "ul",
    { class: "keys" },
    entries.map(([draw, text]) => el("li", {}, svg("svg", { viewBox: "0 0 22 11", "aria-hidden": "true" }, draw), text)),
  );
}
const lineKey = (cls) => svg("line", { class: `line ${cls}`, x1: 1, x2: 21, y1: 5.5, y2: 5.5 });

// Lines with a cursor that mouse and arrow keys move. series: [{name, cls, x, y, thin, quiet}].
function lineChart(host, { height = 230, x, y, series, marks = [], refs = [], label, caption }) {
  const chart = frame(host, { height, x, y, label });
  const { layer, sx, sy } = chart;
  for (const ref of refs) {
    layer.append(
      svg("line", { class: "ref", x1: chart.left, x2: chart.width - chart.right, y1: sy(ref.value), y2: sy(ref.value) }),
      svg("text", { x: chart.width - chart.right, y: sy(ref.value) - 4, "text-anchor": "end" }, ref.text),
    );
  }
  for (const one of series) {
    layer.append(svg("path", { class: `line ${one.cls}${one.thin ? " thin" : ""}`, d: path(one.x, one.y, sx, sy) }));
  }
  for (const mark of marks) {
    const end = sx(mark.x) > chart.width - 110;
    layer.append(
      svg("circle", { class: `mark ${mark.cls}`, cx: sx(mark.x), cy: sy(mark.y), r: 5 }),
      svg(
        "text",
        { class: "name", x: sx(mark.x) + (end ? -9 : 9), y: Math.max(sy(mark.y) - 7, 11), "text-anchor": end ? "end" : "start" },
        mark.text,
      ),
    );
  }
  const shown = series.filter((one) => !one.quiet);
  const readout = el("p", { class: "readout no-print", "aria-live": "polite" }, caption || "");
  const list = keys(shown.map((one) => [lineKey(one.cls), one.name]));
  host.replaceChildren(list, chart.root, readout);
  attachCursor(chart, shown[0].x, (index) => {
    const round = shown[0].x[index];
    const parts = shown.map((one) => {
      const at = one.x.indexOf(round);
      return at >= 0 && known(one.y[at]) ? `${one.name} ${fixed(one.y[at], 3)}` : null;
    });
    readout.textContent = `Round ${round}: ${parts.filter(Boolean).join(" · ") || "not evaluated"}`;
  });
  return chart;
}

// A vertical cursor over sorted xs; calls `moved(index)`. The chart becomes a slider for the keyboard.
function attachCursor(chart, xs, moved) {
  if (!xs.length) return { show() {} };
  const { root, sx } = chart;
  const line = svg("line", { class: "cursor no-print", y1: chart.top, y2: chart.height - chart.bottom, visibility: "hidden" });
  root.append(line);
  root.setAttribute("tabindex", "0");
  let index = -1;
  function show(next, silent) {
    index = Math.min(Math.max(next, 0), xs.length - 1);
    line.setAttribute("x1", sx(xs[index]));
    line.setAttribute("x2", sx(xs[index]));
    line.setAttribute("visibility", "visible");
    if (!silent) moved(index);
  }
  function nearest(value) {
    let low = 0;
    let high = xs.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low > 0 && value - xs[low - 1] < xs[low] - value ? low - 1 : low;
  }
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    show(nearest(sx.invert(((event.clientX - box.left) / box.width) * chart.width)));
  });
  root.addEventListener("keydown", (event) => {
    const ends = { Home: 0, End: xs.length - 1 };
    const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    if (!(event.key in ends) && !(event.key in steps)) return;
    event.preventDefault();
    show(event.key in ends ? ends[event.key] : index + steps[event.key]);
  });
  return { show };
}

// A table behind a chart, made when it is opened.
function dataTable(title, head, rows) {
  const body = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title });
  const box = el("details", {}, el("summary", {}, title), body);
  box.addEventListener("toggle", () => {
    if (box.open && !body.firstChild) body.append(table(head, rows()));
  });
  return box;
}
function table(head, rows, options = {}) {
  const numeric = (i) => (options.text || []).includes(i) ? null : "num";
  return el(
    "table",
    { class: "plain" },
    el("thead", {}, el("tr", {}, head.map((text, i) => el("th", { scope: "col", class: numeric(i) }, text)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, i) => el("td", { class: numeric(i) }, value))))),
  );
}
