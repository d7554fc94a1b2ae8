"use strict";
// What the reader does: choose a setting, a measure, a cell, a seed. Every choice works by mouse and by keyboard.
(function () {
  const data = JSON.parse($("data").textContent);
  const state = { study: 0, row: -1, column: -1, seed: 0 };
  const studyOf = () => data.studies[state.study];

  // The cell that shows the verdict's worst case, unless the address names another: #study/row/column.
  function opening() {
    const named = /^#(\d+)\/(\d+)\/(\d+)$/.exec(location.hash);
    if (named) {
      const [study, row, column] = named.slice(1).map(Number);
      if (data.studies[study] && data.studies[study].cells[row] && data.studies[study].cells[row][column]) return [study, row, column];
    }
    return [0, ...(data.studies[0].start || [0, 0])];
  }

  function chooseStudy(index) {
    state.study = index;
    document.querySelectorAll("[data-study]:not(table)").forEach((part) => { part.hidden = +part.dataset.study !== index; });
    document.querySelectorAll("[data-choose]").forEach((button) => {
      if (+button.dataset.choose === index) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    });
    const study = studyOf();
    fill($("pick-attack"), study.attacks);
    fill($("pick-defense"), study.defenses);
  }
  function fill(select, names) {
    select.replaceChildren(...names.map((name, i) => el("option", { value: i }, name)));
  }

  // A narrow screen shows some of the columns: the chosen one is among them. The page itself does not move.
  function bringIntoView(cell) {
    const box = cell.closest(".scroll");
    const heading = cell.parentElement.firstElementChild.getBoundingClientRect();
    const [here, frame] = [cell.getBoundingClientRect(), box.getBoundingClientRect()];
    if (here.right + 8 > frame.right) box.scrollLeft += here.right + 8 - frame.right;
    else if (here.left < heading.right) box.scrollLeft -= heading.right - here.left;
  }

  function chooseCell(row, column, remember) {
    state.row = row;
    state.column = column;
    state.seed = 0;
    document.querySelectorAll("table.heat td[data-row]").forEach((cell) => {
      const own = +cell.closest("table").dataset.study === state.study;
      const chosen = own && +cell.dataset.row === row && +cell.dataset.column === column;
      cell.setAttribute("aria-selected", String(chosen));
      if (own) cell.tabIndex = chosen ? 0 : -1;
      if (chosen) bringIntoView(cell);
    });
    $("pick-attack").value = row;
    $("pick-defense").value = column;
    if (remember) {
      try {
        history.replaceState(null, "", `#${state.study}/${row}/${column}`);
      } catch {
        // Inside a notebook's frame there is no address to keep.
      }
    }
    drawDetail();
  }

  function drawDetail() {
    const study = studyOf();
    const cell = study.cells[state.row][state.column];
    const names = { attack: study.attacks[state.row], defense: study.defenses[state.column] };
    $("detail-title").textContent = `${names.attack} against ${names.defense}`;
    const run = cell.runs[state.seed];
    const note = $("detail-note");
    note.textContent = [cell.reason && (run ? cell.reason : `There is no finished run: ${cell.reason}.`), run && run.problem].filter(Boolean).join(" ");
    note.hidden = !note.textContent;
    $("detail-body").hidden = !run;
    $("pick-seed-box").hidden = cell.runs.length < 2;
    $("pick-seed").replaceChildren(...cell.runs.map((one, i) => el("option", { value: i, selected: i === state.seed }, String(one.seed))));
    if (!run) return;
    const baseline = study.baseline ? study.cells[study.baseline[0]][study.baseline[1]] : null;
    drawFigures($("figures"), cell, baseline);
    drawScores($("scores"), run);
    drawLeakage($("leak-chart"), cell, run, baseline);
    drawTest($("test-chart"), cell, run, baseline);
    drawRoc($("roc-chart"), cell, baseline);
    drawScapegoat(run, names, data.stride);
    drawExposed($("exposed"), run);
    drawExposure($("exposure"), run);
    drawSpec($("spec"), run);
  }

  // A heat map is one stop for Tab; arrows walk its cells, Enter or Space chooses.
  function attachGrid(grid) {
    const at = (row, column) => grid.querySelector(`td[data-row="${row}"][data-column="${column}"]`);
    const choose = (cell) => chooseCell(+cell.dataset.row, +cell.dataset.column, true);
    grid.addEventListener("click", (event) => {
      const cell = event.target.closest("td[data-row]");
      if (!cell) return;
      choose(cell);
      cell.focus({ preventScroll: true });
    });
    grid.addEventListener("keydown", (event) => {
      const cell = event.target.closest("td[data-row]");
      if (!cell) return;
      const [row, column] = [+cell.dataset.row, +cell.dataset.column];
      const columns = cell.parentElement.querySelectorAll("td[data-row]").length;
      const rows = grid.tBodies[0].rows.length;
      const moves = {
        ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
        Home: [event.ctrlKey ? 0 : row, 0], End: [event.ctrlKey ? rows - 1 : row, columns - 1],
      };
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        choose(cell);
      } else if (moves[event.key]) {
        event.preventDefault();
        const next = at(...moves[event.key]);
        if (!next) return;
        grid.querySelectorAll("td[data-row]").forEach((other) => { other.tabIndex = -1; });
        next.tabIndex = 0;
        next.focus();
      }
    });
  }

  // Radio buttons: arrows move and choose.
  function attachSwitch(group) {
    const buttons = [...group.querySelectorAll("button")];
    function choose(button) {
      document.querySelectorAll(".switch button").forEach((other) => {
        const on = other.dataset.measure === button.dataset.measure;
        other.setAttribute("aria-checked", String(on));
        other.tabIndex = on ? 0 : -1;
      });
      document.querySelectorAll(".grids").forEach((grids) => { grids.dataset.measure = button.dataset.measure; });
    }
    buttons.forEach((button, i) => {
      button.addEventListener("click", () => choose(button));
      button.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const next = buttons[(i + step + buttons.length) % buttons.length];
        choose(next);
        next.focus();
      });
    });
  }

  const figures = [...document.querySelectorAll("[data-figure]")];
  const drawFiguresOfPaper = () => figures.forEach((host) => drawPaperFigure(host, data.figures[+host.dataset.figure]));
  drawFiguresOfPaper();
  const drawThePlan = () => { if (data.plan) drawPlan($("plan-chart"), data.plan); };
  drawThePlan();

  if (data.studies.length) {
    const [study, row, column] = opening();
    chooseStudy(study);
    document.querySelectorAll("table.heat").forEach(attachGrid);
    document.querySelectorAll(".switch").forEach(attachSwitch);
    document.querySelectorAll("[data-choose]").forEach((button) =>
      button.addEventListener("click", () => {
        chooseStudy(+button.dataset.choose);
        chooseCell(...(studyOf().start || [0, 0]), true);
      }));
    for (const id of ["pick-attack", "pick-defense"]) {
      $(id).addEventListener("change", () => chooseCell(+$("pick-attack").value, +$("pick-defense").value, true));
    }
    $("pick-seed").addEventListener("change", () => {
      state.seed = +$("pick-seed").value;
      drawDetail();
    });
    chooseCell(row, column, false);
  }

  // Charts are drawn for the width they have, so that text keeps its size.
  let width = window.innerWidth;
  let waiting = 0;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (data.studies.length) drawDetail();
      drawFiguresOfPaper();
      drawThePlan();
    }, 120);
  });
  $("print").addEventListener("click", () => window.print());
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details.runs:not([open])")];
    closed.forEach((box) => { box.open = true; });
    document.body.dataset.printing = "yes";
    if (data.studies.length) drawDetail();
    drawThePlan();
  });
  window.addEventListener("afterprint", () => {
    closed.forEach((box) => { box.open = false; });
    delete document.body.dataset.printing;
    if (data.studies.length) drawDetail();
    drawThePlan();
  });
})();
