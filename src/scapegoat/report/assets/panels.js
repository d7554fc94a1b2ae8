"use strict";
// The panels of a chosen cell but the scapegoat view: figures, curves, ROC, exposed targets, the run itself.
function decodeCurves(run) {
  if (!run.decodedCurves && run.curves) {
    const c = run.curves;
    run.decodedCurves = { round: words(c.round), test: floats(c.test), accuracy: floats(c.accuracy), auc: floats(c.auc), loss: floats(c.loss) };
  }
  return run.decodedCurves || null;
}

// Mean over seeds, round by round, where every seed has the figure.
function meanCurve(runs, name) {
  const all = runs.map(decodeCurves).filter(Boolean);
  if (!all.length) return { x: [], y: [] };
  const x = all[0].round;
  if (all.length === 1) return { x, y: all[0][name] };
  const at = all.map((c) => new Map(c.round.map((r, i) => [r, c[name][i]])));
  return { x, y: x.map((r) => at.reduce((sum, m) => sum + (m.has(r) ? m.get(r) : NaN), 0) / at.length) };
}

function drawFigures(host, cell, baseline) {
  const base = new Map((baseline ? baseline.figures : []).map(([name, value, bounds]) => [name, [value, bounds]]));
  const rows = cell.figures.map(([name, value, bounds]) => {
    const other = base.get(name);
    return [name, figure(value, bounds), other && baseline !== cell ? figure(...other) : "–"];
  });
  const shown = table(["95% intervals in brackets", "This cell", "Watching, FedAvg"], rows, { text: [0] });
  host.replaceChildren(el("div", { class: "scroll" }, shown));
}

const figure = (value, bounds) => el("span", { class: "figure" }, el("b", {}, value), bounds ? el("span", { class: "ci" }, ` ${bounds}`) : null);

function drawScores(host, run) {
  const rows = run.scores.map(([name, seat, ...figures]) => [el("code", {}, name), seat, ...figures]);
  const heads = ["Score", "Seen by", "AUC", "TPR at 1% FPR", "TPR at 0.1% FPR", "By chance"];
  const shown = run.scores.length ? [el("div", { class: "scroll" }, table(heads, rows, { text: [0, 1] }))] : [];
  const about = "By chance: how often an AUC at least as large comes up if membership is dealt out at random. A score of the server's needs each client's update; all others need the models alone.";
  if (shown.length) shown.push(el("p", { class: "note" }, about));
  host.replaceChildren(...shown, ...run.grounds.map((sentence) => el("p", {}, sentence)));
  if (!host.childElementCount) nothing(host);
}

function drawLeakage(host, cell, run, baseline) {
  const series = [];
  const runs = cell.runs.filter((r) => r.curves);
  if (!runs.length) return nothing(host);
  const accuracy = meanCurve(runs, "accuracy");
  const auc = meanCurve(runs, "auc");
  const over = runs.length > 1 ? `, mean of ${runs.length} seeds` : "";
  series.push({ name: `accuracy${over}`, cls: "c-attack", ...accuracy }, { name: "AUC", cls: "c-auc", ...auc });
  if (runs.length > 1) {
    for (const one of runs) {
      const c = decodeCurves(one);
      series.unshift({ name: "", quiet: true, thin: true, cls: "c-attack", x: c.round, y: c.accuracy });
    }
  }
  const watching = baseline && baseline !== cell ? baseline.runs.filter((r) => r.curves) : [];
  if (watching.length) series.push({ name: "accuracy of watching under FedAvg", cls: "c-base", ...meanCurve(watching, "accuracy") });
  const marks = [];
  if (runs.length === 1 && run.best) marks.push({ x: run.best[0], y: run.best[1], cls: "m-attack", text: `best ${fixed(run.best[1])}` });
  const lowest = Math.min(0.45, ...series.flatMap((s) => s.y.filter(known)));
  lineChart(host, {
    height: 300,
    x: domain(accuracy.x),
    y: { low: Math.max(0, Math.floor(lowest * 20) / 20), high: 1, label: "share called correctly, AUC" },
    series,
    marks,
    refs: [{ value: 0.5, text: "guessing" }],
    label: `Leakage by round. Accuracy ends at ${fixed(last(accuracy.y))}, AUC at ${fixed(last(auc.y))}.`,
  });
  host.append(
    dataTable("Leakage by round as a table", ["Round", "Accuracy", "AUC", "Loss"], () => {
      const c = decodeCurves(run);
      return c.round.map((r, i) => [String(r), fixed(c.accuracy[i], 3), fixed(c.auc[i], 3), fixed(c.loss[i], 4)]);
    }),
  );
}

function drawTest(host, cell, run, baseline) {
  const runs = cell.runs.filter((r) => r.curves);
  if (!runs.length) return nothing(host);
  const test = meanCurve(runs, "test");
  const series = [{ name: "this cell", cls: "c-test", ...test }];
  if (runs.length > 1) {
    for (const one of runs) {
      const c = decodeCurves(one);
      series.unshift({ name: "", quiet: true, thin: true, cls: "c-test", x: c.round, y: c.test });
    }
  }
  const watching = baseline && baseline !== cell ? baseline.runs.filter((r) => r.curves) : [];
  if (watching.length) series.push({ name: "FedAvg, nobody attacking", cls: "c-base", ...meanCurve(watching, "test") });
  const high = Math.max(0.1, ...series.flatMap((s) => s.y.filter(known)));
  lineChart(host, {
    height: 270,
    x: domain(test.x),
    y: { low: 0, high: Math.min(1, Math.ceil(high * 10 + 0.2) / 10), label: "test accuracy" },
    series,
    label: `Test accuracy by round. It ends at ${fixed(last(test.y))}.`,
  });
  host.append(
    dataTable("Test accuracy by round as a table", ["Round", "Test accuracy"], () => {
      const c = decodeCurves(run);
      return c.round.map((r, i) => [r, c.test[i]]).filter(([, v]) => known(v)).map(([r, v]) => [String(r), fixed(v, 3)]);
    }),
  );
}

function drawRoc(host, cell, baseline) {
  const runs = cell.runs.filter((r) => r.roc);
  if (!runs.length) return nothing(host);
  const others = Math.min(...runs.map((r) => r.roc.others));
  const low = 10 ** Math.min(-3, Math.floor(Math.log10(1 / others)));
  const decades = [];
  for (let p = Math.round(Math.log10(low)); p <= 0; p++) decades.push([10 ** p, p < -3 ? `1e${p}` : `${+(100 * 10 ** p).toPrecision(1)}%`]);
  const [at1, at01] = cell.tpr;
  const chart = frame(host, {
    height: 270,
    x: { low, high: 1, log: true, label: "false positive rate (log)", ticks: decades },
    y: { low: 0.01, high: 1, log: true, label: "true positive rate (log)", ticks: [[0.01, "1%"], [0.1, "10%"], [1, "100%"]] },
    left: 46,
    label: `ROC on log axes. True positive rate ${percent(at1)} at 1% false positives, ${percent(at01)} at 0.1%.`,
  });
  const { layer, sx, sy } = chart;
  const limit = sx(1 / others);
  layer.append(
    svg("rect", { class: "shade", x: chart.left, width: Math.max(0, limit - chart.left), y: chart.top, height: chart.height - chart.bottom - chart.top }),
    svg("text", { x: limit - 5, y: at01 > 0.1 ? chart.height - chart.bottom - 8 : chart.top + 14, "text-anchor": "end" }, "no false alarm"),
    svg("line", { class: "ref", x1: sx(0.01), y1: sy(0.01), x2: sx(1), y2: sy(1) }),
    svg("text", { x: sx(0.13), y: sy(0.068), "text-anchor": "start" }, "guessing"),
  );
  const draw = (list, cls, thin) =>
    list.forEach((one) => layer.append(svg("path", { class: `line ${cls}${thin ? " thin" : ""}`, d: path(floats(one.roc.fpr), floats(one.roc.tpr), sx, sy) })));
  const watching = baseline && baseline !== cell ? baseline.runs.filter((r) => r.roc) : [];
  draw(watching, "c-base", watching.length > 1);
  draw(runs, "c-attack", runs.length > 1);
  for (const [fpr, tpr, name] of [[0.01, at1, "1%"], [0.001, at01, "0.1%"]]) {
    if (!known(tpr) || fpr < low) continue;
    const high = sy(tpr) < chart.top + 30;
    layer.append(
      svg("line", { class: "ref", x1: sx(fpr), x2: sx(fpr), y1: chart.top, y2: chart.height - chart.bottom }),
      svg("circle", { class: "mark m-attack", cx: sx(fpr), cy: sy(Math.max(tpr, 0.01)), r: 5 }),
      svg("text", { class: "name", x: sx(fpr) + 8, y: sy(Math.max(tpr, 0.01)) + (high ? 16 : -8) }, `${percent(tpr)} at ${name}`),
    );
  }
  const entries = [[lineKey("c-attack"), runs.length > 1 ? `this cell, ${runs.length} seeds` : "this cell"]];
  if (watching.length) entries.push([lineKey("c-base"), "watching under FedAvg"]);
  host.replaceChildren(
    keys(entries),
    chart.root,
    el("p", { class: "note" }, `${runs[0].roc.members} members and ${others} non-members: in the shaded part not one non-member may be called.`),
    dataTable("ROC as a table", ["False positive rate", "True positive rate"], () => {
      const tpr = floats(runs[0].roc.tpr);
      return floats(runs[0].roc.fpr).map((f, i) => [fixed(f, 4), fixed(tpr[i], 4)]);
    }),
  );
}

function drawExposed(host, run) {
  if (!run.exposed.length) return nothing(host);
  const others = run.roc ? run.roc.others : null;
  const rows = run.exposed.map(([, record, label, client, score, mistaken, rate]) => [
    String(record), String(label), client === null ? "–" : String(client), fixed(score, 2), others === null ? String(mistaken) : `${mistaken} of ${others}`, percent(rate),
  ]);
  host.replaceChildren(
    el("p", { class: "note" }, "Members whose score few or no non-members reach: the attacker can name them almost without risk of error. Called: share of the last half of the rounds in which the paper's rule called it a member."),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The most exposed targets" },
      table(["Record", "Label", "Client", "Score", "Non-members as high", "Called"], rows)),
  );
}

function drawExposure(host, run) {
  if (!run.exposure.length) return nothing(host);
  const rows = run.exposure.map(([client, members, called]) => [
    `client ${client}`,
    el("span", {}, el("span", { class: "bar-box", "aria-hidden": "true" }, el("span", { class: "bar-cell", style: `width:${(100 * called) / members}%` })), percent(called / members)),
    `${called} of ${members}`,
  ]);
  host.replaceChildren(
    el("p", { class: "note" }, "Of each honest client's targets, those called members in the best round. A handful of targets per client: read it as a hint."),
    table(["Whose data", "Recognised", "Targets"], rows, { text: [0, 1] }),
  );
}

function drawSpec(host, run) {
  host.replaceChildren(
    el("p", { class: "note" }, "Spec hash ", el("code", { class: "hash", id: "spec-hash" }, run.hash), `, seed ${run.seed}`),
    el("details", {}, el("summary", {}, "The spec of this run"), el("pre", { class: "code" }, el("code", {}, run.spec))),
  );
}

const last = (values) => { for (let i = values.length - 1; i >= 0; i--) if (known(values[i])) return values[i]; return NaN; };
const domain = (xs) => ({ low: xs[0], high: xs[xs.length - 1], label: "round" });
function nothing(host) {
  host.replaceChildren(el("p", { class: "note" }, "Not on record for this run."));
}
