"use strict";
// Before the first paint: the reader's own preference, until the button says otherwise.
(function () {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  function apply() {
    document.documentElement.dataset.theme = chosen || (dark.matches ? "dark" : "light");
  }
  dark.addEventListener("change", apply);
  apply();
  document.addEventListener("DOMContentLoaded", function () {
    const button = document.getElementById("theme");
    function label() {
      const on = document.documentElement.dataset.theme === "dark";
      button.textContent = on ? "Light theme" : "Dark theme";
    }
    button.addEventListener("click", function () {
      chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      apply();
      label();
    });
    dark.addEventListener("change", label);
    label();
  });
})();
