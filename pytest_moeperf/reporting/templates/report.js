"use strict";
(() => {
  const config = { responsive: true, displayModeBar: false };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  // Figures name colours as var(--name); what a name means depends on light, dark or paper.
  const resolve = (value, style) => {
    if (typeof value === "string") {
      const match = /^var\((--[a-z]+)\)$/.exec(value);
      return match ? style.getPropertyValue(match[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((item) => resolve(item, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item, style)]));
    }
    return value;
  };

  const draw = (chart) => {
    const style = getComputedStyle(document.documentElement);
    const figure = resolve(JSON.parse(chart.querySelector("script").textContent), style);
    const canvas = chart.querySelector(".canvas");
    if (canvas.clientWidth < 560) figure.layout.margin.l = 44;
    Plotly.react(canvas, figure.data, figure.layout, config);
    chart.dataset.drawn = "yes";
  };

  const charts = () => [...document.querySelectorAll(".chart")];
  const visible = (chart) => !chart.closest("details:not([open])");
  const redraw = () => charts().filter((chart) => chart.dataset.drawn && visible(chart)).forEach(draw);

  charts().filter(visible).forEach(draw);
  document.querySelectorAll("details").forEach((details) => {
    details.addEventListener("toggle", () => {
      if (details.open) [...details.querySelectorAll(".chart")].filter(visible).forEach(draw);
    });
  });
  const openTarget = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (target && target.tagName === "DETAILS") target.open = true;
  };
  window.addEventListener("hashchange", openTarget);
  openTarget();
  dark.addEventListener("change", redraw);
  window.matchMedia("print").addEventListener("change", redraw);
})();
