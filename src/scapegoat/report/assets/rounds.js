"use strict";
// The scapegoat view: each round's updates by mean angle to the others, and what the rule did with them.
const FATES = {
  honest: "honest, kept",
  dropped: "honest, discarded",
  goat: "honest, discarded while the hostile one was kept: the scapegoat",
  hostile: "hostile, kept",
  caught: "hostile, discarded",
  malformed: "malformed, set aside",
};
const SHORT = { honest: "kept", dropped: "discarded", goat: "scapegoat", hostile: "hostile, kept", caught: "hostile, discarded", malformed: "malformed" };

function decodeRows(run) {
  if (run.decodedRows || !run.rows) return run.decodedRows || null;
  const packed = run.rows;
  const count = shorts(packed.count);
  const total = count.reduce((a, b) => a + b, 0);
  const wide = view(packed.client).byteLength === 4 * total && total > 0;
  const rows = {
    round: words(packed.round),
    count,
    client: wide ? words(packed.client) : shorts(packed.client),
    angle: shorts(packed.angle).map((a) => (a === 65535 ? NaN : (a / 65534) * 180)),
    norm: shorts(packed.norm).map((n) => (n === 65535 ? NaN : 2 ** ((n - 32768) / 2000))),
    fate: octets(packed.flags).map((f) => (f & 4 ? "malformed" : f & 1 ? (f & 2 ? "hostile" : "caught") : f & 8 ? "goat" : f & 2 ? "honest" : "dropped")),
    start: [0],
  };
  count.forEach((n) => rows.start.push(rows.start[rows.start.length - 1] + n));
  run.decodedRows = rows;
  return rows;
}

// One mark a fate: shape and colour both tell them apart.
function mark(fate, x, y, r) {
  const [a, b] = [x.toFixed(1), y.toFixed(1)];
  const t = (v) => v.toFixed(1);
  switch (fate) {
    case "honest": return `M${a} ${b}h0`;
    case "dropped": return `M${t(x - r)} ${b}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
    case "goat": return `M${t(x - r)} ${t(y - r)}h${2 * r}v${2 * r}h${-2 * r}z`;
    case "hostile": return `M${a} ${t(y - r - 1)}L${t(x + r + 1)} ${b}L${a} ${t(y + r + 1)}L${t(x - r - 1)} ${b}z`;
    case "caught": return `M${t(x - r)} ${t(y - r)}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`;
    default: return `M${a} ${t(y - r)}l${r} ${1.8 * r}h${-2 * r}z`;
  }
}

function drawScapegoat(run, names, stride) {
  const rows = decodeRows(run);
  const text = $("goat-text");
  const parts = ["goat-chart", "goat-lanes", "goat-round", "goat-table"].map($);
  if (!rows || !rows.round.length) {
    text.textContent = "Not on record for this run.";
    parts.forEach((part) => part.replaceChildren());
    return;
  }
  const [chartHost, lanesHost, roundHost, tableHost] = parts;
  text.textContent = sentence(run, names) + (stride > 1 ? ` Drawn: every ${stride}th round; counts cover all rounds.` : "");
  const present = Object.keys(FATES).filter((fate) => rows.fate.includes(fate));
  const chart = drawAngles(chartHost, rows, present, run);
  const lanes = drawLanes(lanesHost, rows, run, chart);
  const inspector = drawRound(roundHost, rows);
  const slider = inspector.slider;
  const follow = (index) => {
    slider.value = index;
    inspector.show(index);
  };
  const cursors = [attachCursor(chart, rows.round, follow)];
  if (lanes) cursors.push(attachCursor(lanes, rows.round, follow));
  slider.addEventListener("input", () => {
    inspector.show(+slider.value);
    cursors.forEach((cursor) => cursor.show(+slider.value, true));
  });
  const first = rows.fate.findIndex((fate) => fate === "goat");
  const opening = first < 0 ? rows.round.length - 1 : rows.start.findIndex((s) => s > first) - 1;
  follow(opening);
  tableHost.replaceChildren(
    dataTable("By client as a table", ["Client", "Rounds", "Kept", "Discarded", "Malformed", "Rounds beside a hostile row", "Scapegoat", "Share"], () =>
      run.fates.map(([client, hostile, rounds, kept, discarded, rejected, contested, goat]) => [
        `${client}${hostile ? " (hostile)" : ""}`, String(rounds), String(kept), String(discarded), String(rejected), String(contested),
        hostile ? "–" : String(goat), hostile || !contested ? "–" : percent(goat / contested),
      ])),
  );
}

function sentence(run, names) {
  const hostile = run.fates.filter((f) => f[1]);
  const honest = run.fates.filter((f) => !f[1]);
  const sum = (list, i) => list.reduce((total, f) => total + f[i], 0);
  const took = sum(hostile, 2);
  if (!took) return "No hostile row was aggregated in this run.";
  if (!sum(run.fates, 4)) return `${names.defense} keeps every well-formed update: nobody is discarded, so nobody is the scapegoat.`;
  const who = hostile.length > 1 ? "Hostile clients' updates were" : "The hostile client's update was";
  let text = `${who} aggregated in ${percent(sum(hostile, 3) / took)} of the ${took} rounds that ${hostile.length > 1 ? "they" : "it"} took part in.`;
  const rate = run.aggregation.scapegoat_rate;
  if (known(rate)) text += ` In ${percent(rate)} of the rounds with a hostile row, an honest client was discarded while a hostile one was kept.`;
  const most = honest.filter((f) => f[6]).sort((a, b) => b[7] / b[6] - a[7] / a[6])[0];
  if (most && most[7]) text += ` Most often client ${most[0]}: the scapegoat in ${percent(most[7] / most[6])} of its rounds beside a hostile row.`;
  return text;
}

function drawAngles(host, rows, present, run) {
  const sorted = rows.angle.filter(known).sort((a, b) => a - b);
  if (!sorted.length) sorted.push(0, 90);
  const pad = Math.max(1, (sorted[sorted.length - 1] - sorted[0]) * 0.06);
  const hostile = run.fates.filter((f) => f[1]).length;
  const chart = frame(host, {
    height: 270,
    x: { low: rows.round[0], high: rows.round[rows.round.length - 1], label: "round" },
    y: { low: Math.max(0, sorted[0] - pad), high: Math.min(180, sorted[sorted.length - 1] + pad), label: "mean angle to the other updates, degrees" },
    left: host.clientWidth < 560 ? 60 : 84,
    right: host.clientWidth < 560 ? 60 : 74,
    label: `Mean angle of every update to the others by round; ${hostile} hostile client${hostile === 1 ? "" : "s"} marked. The table below gives the counts by client.`,
  });
  const paths = Object.fromEntries(present.map((fate) => [fate, ""]));
  const size = { dropped: 2.6, goat: 2.2, hostile: 2, caught: 2.6, malformed: 3, honest: 0 };
  rows.round.forEach((round, i) => {
    const x = chart.sx(round);
    for (let k = rows.start[i]; k < rows.start[i + 1]; k++) {
      const y = known(rows.angle[k]) ? chart.sy(rows.angle[k]) : chart.height - chart.bottom - 5;
      paths[rows.fate[k]] += mark(rows.fate[k], x, y, size[rows.fate[k]]);
    }
  });
  for (const fate of present) chart.layer.append(svg("path", { class: `dots d-${fate}`, d: paths[fate] }));
  host.replaceChildren(keys(present.map((fate) => [svg("path", { class: `dots d-${fate}`, d: mark(fate, 11, 5.5, Math.max(size[fate], 2.4)) }), FATES[fate]])), chart.root);
  return chart;
}

const LANES = 40;
function drawLanes(host, rows, run, above) {
  const ranked = [...run.fates].sort((a, b) => b[1] - a[1] || b[7] - a[7] || b[4] - a[4] || a[0] - b[0]);
  const chosen = ranked.slice(0, LANES).sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  if (!run.fates.some((f) => f[4] || f[5])) {
    host.replaceChildren();
    return null;
  }
  const lane = chosen.length > 16 ? 12 : 18;
  const top = 18;
  const height = top + lane * chosen.length + 4;
  const root = svg("svg", { viewBox: `0 0 ${above.width} ${height}`, role: "img", "aria-label": "What became of each client's updates, round by round. The table below gives the counts." });
  const place = new Map(chosen.map((f, i) => [f[0], top + i * lane]));
  const span = above.width - above.right - above.left;
  const tick = Math.max(0.7, (span / Math.max(1, rows.round.length)) * 0.86);
  const paths = {};
  rows.round.forEach((round, i) => {
    const x = above.sx(round) - tick / 2;
    for (let k = rows.start[i]; k < rows.start[i + 1]; k++) {
      const y = place.get(rows.client[k]);
      if (y === undefined) continue;
      const fate = rows.fate[k] === "honest" ? "kept" : rows.fate[k];
      paths[fate] = (paths[fate] || "") + `M${x.toFixed(1)} ${y + 1}h${tick.toFixed(1)}v${lane - 4}h${(-tick).toFixed(1)}z`;
    }
  });
  for (const [fate, d] of Object.entries(paths)) root.append(svg("path", { class: `lane l-${fate}`, d }));
  root.append(svg("text", { x: above.width - above.right + 10, y: 11 }, "scapegoat"));
  for (const [client, hostile, rounds, kept, , , contested, goat] of chosen) {
    const y = place.get(client) + lane - 6;
    const share = hostile ? `kept ${percent(kept / rounds)}` : contested ? percent(goat / contested) : "–";
    root.append(
      svg("text", { class: hostile ? "lane-label" : "", x: above.left - 8, y, "text-anchor": "end", "font-weight": hostile ? 700 : 400 }, hostile ? `hostile ${client}` : `client ${client}`),
      svg("text", { class: "lane-label", x: above.width - above.right + 10, y, "font-weight": hostile ? 700 : 400 }, share),
    );
  }
  host.replaceChildren(root);
  if (ranked.length > LANES) host.append(el("p", { class: "note" }, `The ${LANES} clients discarded most of ${ranked.length}; the table has all.`));
  return { root, sx: above.sx, width: above.width, height, top, bottom: 4 };
}

function drawRound(host, rows) {
  const slider = el("input", { type: "range", id: "round", min: 0, max: rows.round.length - 1, step: 1 });
  const output = el("output", { for: "round" });
  const list = el("ol", { class: "chips", "aria-label": "Updates of this round, the largest mean angle first" });
  function show(index) {
    output.textContent = `Round ${rows.round[index]}`;
    slider.setAttribute("aria-valuetext", `round ${rows.round[index]}`);
    const members = [];
    for (let k = rows.start[index]; k < rows.start[index + 1]; k++) members.push(k);
    members.sort((a, b) => (known(rows.angle[b]) ? rows.angle[b] : -1) - (known(rows.angle[a]) ? rows.angle[a] : -1));
    list.replaceChildren(
      ...members.map((k) =>
        el("li", { class: `f-${rows.fate[k]}` },
          el("b", {}, `client ${rows.client[k]}`),
          el("span", {}, `${fixed(rows.angle[k], 1)}° · ${known(rows.norm[k]) ? `${+rows.norm[k].toPrecision(2)}× length` : "length –"}`), el("br"),
          SHORT[rows.fate[k]])),
    );
  }
  host.replaceChildren(
    el("div", { class: "inspect" }, el("label", { for: "round" }, "One round:"), output, slider),
    list,
    el("p", { class: "note" }, "From the largest mean angle to the smallest. Length: relative to the round's median update."),
  );
  return { slider, show };
}
