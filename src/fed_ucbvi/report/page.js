"use strict";
// Draws every plot of the page and lets its legend switch names and variants on and off in all panels of a figure.
(() => {
  // Without plotly's button that sends the data to its makers.
  const CONFIG = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false,
    plotlyServerURL: "",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  };
  const queue = [];

  for (const figure of document.querySelectorAll("figure.chart")) {
    const panels = JSON.parse(figure.querySelector("script").textContent);
    const plots = [...figure.querySelectorAll(".plot")];
    const buttons = [...figure.querySelectorAll(".legend button")];
    const shown = (button) => button.getAttribute("aria-pressed") === "true";
    const show = (button, on) => button.setAttribute("aria-pressed", String(on));

    // A trace is seen if neither its name nor its variant is switched off; meta holds both.
    const visibility = (traces) => {
      const off = buttons.filter((button) => !shown(button));
      return traces.map(({ meta }) => !off.some((button) => meta[Number(button.dataset.part)] === button.dataset.value));
    };
    const refresh = () => {
      plots.forEach((plot, place) => {
        if (plot.data) Plotly.restyle(plot, { visible: visibility(panels[place].traces) });
      });
    };
    for (const button of buttons) {
      button.addEventListener("click", () => {
        show(button, !shown(button));
        refresh();
      });
      // Twice: this one alone; twice again: all.
      button.addEventListener("dblclick", () => {
        const others = buttons.filter((other) => other !== button && other.dataset.part === button.dataset.part);
        const alone = shown(button) && others.every((other) => !shown(other));
        show(button, true);
        others.forEach((other) => show(other, alone));
        refresh();
      });
    }
    plots.forEach((plot, place) => {
      queue.push(() => Plotly.newPlot(plot, panels[place].traces, panels[place].layout, CONFIG).then(refresh));
    });
  }

  // One at a time, so that the page can be read meanwhile.
  const next = () => {
    const draw = queue.shift();
    if (!draw) {
      document.documentElement.dataset.plots = "drawn";
      return;
    }
    draw().then(() => setTimeout(next));
  };
  next();

  // On paper panels stand below each other, as wide as A4 and Letter allow.
  const resize = (size) => {
    document.querySelectorAll(".plot").forEach((plot) => plot.data && Plotly.relayout(plot, size));
  };
  window.addEventListener("beforeprint", () => resize({ autosize: false, width: 620, height: 280 }));
  window.addEventListener("afterprint", () => resize({ autosize: true, width: null, height: null }));
})();
